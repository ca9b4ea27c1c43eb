"""`oppo train`: a real run, its folder, and a run that was killed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from oppo_sim.cli import main
from oppo_sim.runs import read_run
from tests.real.short_runs import GRPO, REPEATABLE, assert_same, scenario, train, weights


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return scenario(tmp_path)


def test_a_run_leaves_its_folder(config: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "run"
    assert train(config, out, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["role"] == "measured"
    run = read_run(out)
    assert run.complete
    assert run.header.role == "measured"
    assert {span.kind for span in run.spans} == {"decode", "score", "train", "sync"}
    trained = [rollout for record in run.steps for rollout in record.trained]
    assert len(trained) == len(set(trained)) == 24
    updates = [json.loads(line) for line in (out / "updates.jsonl").read_text().splitlines()]
    assert [update["step"] for update in updates] == [0, 1, 2, 3]
    for record, update in zip(run.steps, updates, strict=True):
        assert update["objective/scores"] == pytest.approx(record.reward, rel=1e-5)
    assert (out / "model" / "config.json").exists()
    assert list((out / "tensorboard").iterdir())
    assert main(["trace", str(out)]) == 0


def test_torchs_own_spans_lie_in_their_step(config: Path, tmp_path: Path, capsys: Any) -> None:
    """Of all lanes' threads, on the run's clock, in the file that the run's own spans are in."""
    out = tmp_path / "run"
    assert train(config, out, "--steps", "3", "--profile", "2") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "gpu0 and so on are the scenario's devices: in this run, parts of the CPU." in said
    assert main(["trace", str(out)]) == 0
    events = json.loads((out / "trace.json").read_text())["traceEvents"]
    ours = {event["pid"] for event in events if event.get("cat") == "train"}
    torchs = [event for event in events if event["ph"] == "X" and event["pid"] >= 1_000_000]
    assert ours
    assert len({event["tid"] for event in torchs}) >= 3  # actor, scorer, trainer
    step, slack_us = read_run(out).steps[1], 1e5
    assert min(event["ts"] for event in torchs) > step.start_s * 1e6 - slack_us
    assert max(event["ts"] + event["dur"] for event in torchs) < step.end_s * 1e6 + slack_us


@pytest.mark.parametrize("objective", [(), GRPO], ids=["ppo", "grpo"])
@pytest.mark.parametrize("schedule", ["trl", "oppo"])
def test_a_run_that_goes_on_ends_with_the_same_weights(
    schedule: str, objective: tuple[str, ...], config: Path, tmp_path: Path
) -> None:
    """On one thread, to the last bit: carried tokens, caches, rewards, optimiser, data."""
    options = ["--schedule", schedule, *objective, *REPEATABLE]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert train(config, whole, *options, "--steps", "4") == 0
    assert train(config, parts, *options, "--steps", "2") == 0
    assert train(config, parts, *options, "--steps", "3", "--resume") == 0
    assert train(config, parts, *options, "--steps", "4", "--resume") == 0
    assert_same(weights(whole), weights(parts))
    one, other = read_run(whole), read_run(parts)
    assert [r.trained for r in one.steps] == [r.trained for r in other.steps]
    assert [r.rewards for r in one.steps] == [r.rewards for r in other.steps]
    assert [r.staleness for r in one.steps] == [r.staleness for r in other.steps]
    if schedule == "oppo":
        assert any(r.carried for r in one.steps)


def test_what_only_a_simulation_reads_may_be_left_out(config: Path, tmp_path: Path) -> None:
    """Responses end where the model ends them; nothing asks what that would cost elsewhere."""
    lean(config)
    assert train(config, tmp_path / "run", "--steps", "2", *REPEATABLE) == 0
    assert read_run(tmp_path / "run").complete
    assert main(["trace", str(tmp_path / "run")]) == 0


def test_lengths_of_the_workload_need_no_rewards_and_no_prompts(
    config: Path, tmp_path: Path
) -> None:
    """They are those that they are with them."""
    whole, part = tmp_path / "whole", tmp_path / "part"
    options = ["--schedule", "trl", "--steps", "1", *REPEATABLE]
    assert train(config, whole, *options) == 0
    lean(config, lengths=True)
    assert train(config, part, *options) == 0
    assert [r.tokens for r in read_run(whole).steps] == [r.tokens for r in read_run(part).steps]


def test_a_simulation_says_what_is_missing(config: Path, tmp_path: Path, capsys: Any) -> None:
    lean(config)
    assert main(["run", str(config)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "workload.lengths and workload.reward and costs are missing" in said
    assert main(["run", str(config), "--set", "real.lengths=workload"]) == 2
    assert "workload.lengths is missing: add it, or leave out" in capsys.readouterr().err


def lean(config: Path, *, lengths: bool = False) -> None:
    """Leave out what only a simulation reads."""
    text = re.sub(r"(?m)^(reward = \{|prompt_tokens).*\n", "", config.read_text())
    text = re.sub(r"(?s)\[costs\].*?(?=\[schedule\])", "", text)
    if not lengths:
        text = re.sub(r"(?m)^lengths = .*\n", "", text)
    config.write_text(text)


@pytest.mark.parametrize("workers", ["inline", "threads", "processes"])
def test_a_reward_function_gets_the_columns_of_its_prompt(
    workers: str, config: Path, tmp_path: Path
) -> None:
    """`matches` raises where the answer is not that of the prompt it is called with."""
    lines = [{"prompt_ids": [2 + i, 3 + i, 4 + i], "answer": str(2 + i)} for i in range(10)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "prompts.jsonl").write_text(text)
    sets = ["real.reward=tests.real.rules:matches", f"real.workers={workers}"]
    options = [part for one in sets for part in ("--set", one)]
    assert train(config, tmp_path / "run", "--steps", "3", *options) == 0
    assert read_run(tmp_path / "run").complete


LINEAR = ("--schedule", "trl", *REPEATABLE, "--set", "real.ppo.lr_schedule=linear")


def rates(out: Path) -> list[float]:
    lines = (out / "updates.jsonl").read_text().splitlines()
    return [json.loads(line)["lr"] for line in lines]


def test_a_linear_learning_rate_falls_over_what_was_planned(config: Path, tmp_path: Path) -> None:
    """1e-3 in quarters, and in parts as in one: the line does not bend where a run goes on."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert train(config, whole, *LINEAR, "--steps", "4") == 0
    planned = [*LINEAR, "--set", "real.ppo.lr_total_steps=4"]
    assert train(config, parts, *planned, "--steps", "2") == 0
    assert train(config, parts, *planned, "--steps", "4", "--resume") == 0
    assert rates(whole) == rates(parts) == pytest.approx([1e-3, 7.5e-4, 5e-4, 2.5e-4])
    assert_same(weights(whole), weights(parts))


def test_a_linear_learning_rate_does_not_jump(config: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "run"
    assert train(config, out, *LINEAR, "--steps", "2") == 0
    before = (out / "run.json").read_bytes()
    assert train(config, out, *LINEAR, "--steps", "4", "--resume") == 2
    said = capsys.readouterr().err
    assert "falls to 0 over the 2 steps that the run was begun with, and would jump" in said
    assert "real.ppo.lr_total_steps = 4" in said
    assert (out / "run.json").read_bytes() == before
    beyond = ["--set", "real.ppo.lr_total_steps=3", "--steps", "4"]
    assert train(config, tmp_path / "other", *LINEAR, *beyond) == 2
    assert "would be 0 from step 3 on of 4" in capsys.readouterr().err


def test_streaming_without_overcommitment_changes_no_weight(config: Path, tmp_path: Path) -> None:
    """In float64, to the last bit, after three updates: chunks on threads against whole batches."""
    options = ["--steps", "3", "--set", "real.dtype=float64"]
    options += ["--set", "real.on_scorer=['reward', 'reference']"]
    whole, streamed = tmp_path / "whole", tmp_path / "streamed"
    assert train(config, whole, "--schedule", "trl", *options) == 0
    assert train(config, streamed, "--schedule", "intra", *options) == 0
    assert_same(weights(whole), weights(streamed))
    scores = [span for span in read_run(streamed).spans if span.kind == "score"]
    assert len(scores) > 3, "nothing was streamed"


def test_streaming_in_float32_changes_rewards_by_rounding(config: Path, tmp_path: Path) -> None:
    """What goes into the first update, before Adam makes more of it."""
    whole, streamed = tmp_path / "whole", tmp_path / "streamed"
    assert train(config, whole, "--schedule", "trl", "--steps", "1") == 0
    assert train(config, streamed, "--schedule", "intra", "--steps", "1") == 0
    one, other = (
        dict(zip(step.trained, step.rewards, strict=True))
        for step in (read_run(whole).steps[0], read_run(streamed).steps[0])
    )
    assert one == pytest.approx(other, abs=1e-6)


def test_tensorboard_shows_each_step_once(config: Path, tmp_path: Path) -> None:
    """Of a run that went on from the checkpoint before its last step."""
    out = tmp_path / "run"
    assert train(config, out, "--steps", "3") == 0
    shutil.rmtree(out / "checkpoints" / "step-00000003")
    assert train(config, out, "--steps", "4", "--resume") == 0
    updates = [json.loads(line) for line in (out / "updates.jsonl").read_text().splitlines()]
    curves = EventAccumulator(str(out / "tensorboard")).Reload()
    for name in ("objective/scores", "objective/kl"):
        shown = [(event.step, event.value) for event in curves.Scalars(name)]
        told = [(row["step"] + 1, row[name]) for row in updates]
        assert [step for step, _ in shown] == [1, 2, 3, 4]
        assert shown == [(step, pytest.approx(value, rel=1e-6)) for step, value in told]


def test_a_model_that_was_not_written_any_more_is_written_by_resume(
    config: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    assert train(config, out, "--steps", "2") == 0
    last = load_file(out / "model" / "model.safetensors")
    shutil.rmtree(out / "model")
    assert train(config, out, "--steps", "2", "--resume") == 0
    assert_same(load_file(out / "model" / "model.safetensors"), last)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["trl", "oppo"])
def test_a_killed_run_goes_on(schedule: str, config: Path, tmp_path: Path) -> None:
    options = ["--schedule", schedule, *REPEATABLE, "--steps", "6"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert train(config, whole, *options) == 0
    kill_after_a_step(config, killed, options)
    assert train(config, killed, *options, "--resume") == 0
    assert_same(weights(whole), weights(killed))
    assert read_run(killed).complete


def kill_after_a_step(config: Path, out: Path, options: list[str]) -> None:
    """In a process of its own, as soon as it tells of its second step."""
    command = [sys.executable, "-c", "from oppo_sim.cli import main; main()"]
    arguments = ["train", str(config), "--out", str(out), *options]
    with subprocess.Popen(
        [*command, *arguments], stderr=subprocess.PIPE, text=True, env={**os.environ}
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "step 2/" in line:
                process.send_signal(signal.SIGKILL)
                break
    assert process.returncode == -signal.SIGKILL

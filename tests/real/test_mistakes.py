"""What users and models get wrong: one line, exit code 2, nothing trained on it, nothing lost."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

from oppo_real.prompts import Prompts, read_prompts
from oppo_sim.cli import main
from oppo_sim.runs import read_run
from tests.real import rules, tiny
from tests.real.short_runs import assert_same, scenario, train, weights

INLINE = ("--set", "real.workers=inline", "--set", "real.coalesce=false")
RULE = "real.reward=tests.real.rules:"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return scenario(tmp_path)


def complaint(capsys: Any, config: Path, out: Path, *more: str) -> str:
    """The one line that is said, beside progress."""
    capsys.readouterr()
    assert train(config, out, *more) == 2
    said = capsys.readouterr()
    assert not said.out
    *progress, last = said.err.splitlines()
    assert not any("Traceback" in line or line.startswith("oppo: ") for line in progress)
    assert last.startswith("oppo: ")
    return last.removeprefix("oppo: ")


def change(file: Path, **keys: object) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **keys}))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["real.rewrd=x"], "unknown key 'rewrd'; did you mean 'reward'"),
        (["real.prompts=nope.jsonl"], r"real.prompts: cannot read .*nope.jsonl"),
        (["real.actor=nope.json"], r"real.actor = 'nope.json': cannot read it"),
        (["real.stop_token_ids=[99]"], "real.stop_token_ids = 99: .* must be below 64"),
        (["real.stop_token_ids=[]"], r"stop_token_ids = \[\]: name at least one"),
        (["real.reference=none", "real.ppo.kl_coef=0.1"], "ppo.kl_coef = 0.1 with reference"),
        (["real.reference=none", 'real.on_scorer=["reward","reference"]'], "reference = 'none'"),
        (['real.on_scorer=["reference"]'], "must have 'reward'"),
        (["real.temperature=0"], "real.temperature = 0: must be above 0"),
        ([RULE + "nothing"], "has no nothing"),
        (["real.objective=grpo"], r"schedule.group = 1: .* set schedule.group to 2 or more"),
        (["real.objective=grpo", "real.ppo.lam=1"], "ppo.lam goes with objective = 'ppo'"),
        (["real.objective=grpo", "real.critic=reward.json"], "critic goes with objective = 'ppo'"),
        (["real.reward=nowhere:nothing"], "cannot import nowhere"),
    ],
)
def test_a_bad_table(
    keys: list[str], said: str, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sets = [part for key in keys for part in ("--set", key)]
    assert re.search(said, complaint(capsys, config, tmp_path / "run", *sets))


def test_no_cuda_here(
    config: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    said = complaint(capsys, config, tmp_path / "run", "--set", "real.device=cuda")
    assert "real.device = 'cuda'" in said
    assert "set it to 'cpu'" in said


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([[3], []], r"prompts.jsonl:2: the prompt is empty"),
        ([[3], [4] * 240], "longest prompt of 240 tokens it exceeds the actor's context of 256"),
        ([[3], [64]], "prompts.jsonl:2: token id 64 is not in the actor's vocabulary"),
        ([], "has no prompt"),
    ],
)
def test_bad_prompts(
    lines: list[list[int]], said: str, config: Path, tmp_path: Path, capsys: Any
) -> None:
    rows = [json.dumps({"prompt_ids": ids}) + "\n" for ids in lines]
    (tmp_path / "prompts.jsonl").write_text("".join(rows))
    assert re.search(said, complaint(capsys, config, tmp_path / "run"))


@pytest.mark.parametrize("line", ['{"prompt_ids": [', "[3]", '{"text": "x"}', '{"prompt": "x"}'])
def test_a_line_that_is_no_prompt(line: str, config: Path, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "prompts.jsonl").write_text(f'{{"prompt_ids": [3]}}\n{line}\n')
    assert "prompts.jsonl:2: " in complaint(capsys, config, tmp_path / "run")


def test_a_tokenizer_that_makes_nothing_of_a_prompt(
    config: Path, tmp_path: Path, capsys: Any
) -> None:
    """It drops what it does not know: the prompt is not to blame, and not empty."""
    deaf = Tokenizer(BPE({"x": 3}, []))
    PreTrainedTokenizerFast(tokenizer_object=deaf).save_pretrained(tmp_path / "deaf")
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "what is it"}\n')
    said = complaint(capsys, config, tmp_path / "run", "--set", "real.tokenizer=deaf")
    assert "prompts.jsonl:1: the tokenizer 'deaf' makes no token of 'what is it'" in said


def test_models_that_do_not_fit_the_actor(config: Path, tmp_path: Path, capsys: Any) -> None:
    shutil.copy(tmp_path / "reward.json", tmp_path / "other.json")
    change(tmp_path / "other.json", num_labels=2, id2label={"0": "a", "1": "b"})
    said = complaint(capsys, config, tmp_path / "run", "--set", "real.reward=other.json")
    assert "num_labels = 2, must be 1" in said
    for kind, source in (("reward", "reward"), ("critic", "reward"), ("reference", "actor")):
        shutil.copy(tmp_path / f"{source}.json", tmp_path / "other.json")
        change(tmp_path / "other.json", vocab_size=32)
        said = complaint(capsys, config, tmp_path / "run", "--set", f"real.{kind}=other.json")
        assert f"real.{kind}: its vocabulary has 32 ids, the actor's 64" in said


def test_a_window_narrower_than_a_rollout(config: Path, tmp_path: Path, capsys: Any) -> None:
    """Three tokens of prompt and up to 24 of response."""
    layers = {"use_sliding_window": True, "max_window_layers": 1}
    layers["layer_types"] = ["full_attention", "sliding_attention"]
    change(tmp_path / "actor.json", **layers, sliding_window=26)
    said = complaint(capsys, config, tmp_path / "run")
    assert "real.actor: its layers see 26 tokens back" in said
    assert "may have 27" in said
    change(tmp_path / "actor.json", sliding_window=27)
    assert train(config, tmp_path / "run", "--steps", "1") == 0


def test_another_tokenizer(config: Path, tmp_path: Path, capsys: Any) -> None:
    """Of the same size: only the words tell."""
    tiny.actor().save_pretrained(tmp_path / "actor")
    tiny.reward().save_pretrained(tmp_path / "reward")
    tiny.tokenizer().save_pretrained(tmp_path / "actor")
    tiny.tokenizer().save_pretrained(tmp_path / "reward")
    file = tmp_path / "reward" / "tokenizer.json"
    file.write_text(file.read_text().replace('"w7"', '"z7"'))
    keys = ["real.actor=actor", "real.reward=reward", "real.tokenizer=actor"]
    sets = [part for key in keys for part in ("--set", key)]
    said = complaint(capsys, config, tmp_path / "run", *sets)
    assert "its tokenizer is not the actor's" in said
    assert "7" in said


def test_a_padding_token_that_ends_responses_is_no_mistake(config: Path, tmp_path: Path) -> None:
    """No length is read off padding: all are those that the workload forces."""
    lengths = []
    for name, pad in (("apart", tiny.PAD), ("same", tiny.EOS)):
        change(tmp_path / "actor.json", pad_token_id=pad)
        assert train(config, tmp_path / name, "--schedule", "trl", *INLINE) == 0
        lengths.append([record.tokens for record in read_run(tmp_path / name).steps])
    assert lengths[0] == lengths[1]


@pytest.mark.parametrize("workers", ["inline", "threads"])
@pytest.mark.parametrize(
    ("rule", "why", "line"),
    [("raises", "failed with KeyError", "raise KeyError"), ("says", "returned 'good'", "def says")],
)
def test_a_reward_that_fails_names_its_rollout_and_both_lines(
    rule: str, why: str, line: str, workers: str, config: Path, tmp_path: Path, capsys: Any
) -> None:
    """The line of the prompts file, and that of the user's code."""
    sets = ["--set", RULE + rule, "--set", f"real.workers={workers}"]
    said = complaint(capsys, config, tmp_path / "run", *sets)
    place = rf"lane scorer0 .*rollout \d+, \S+/prompts.jsonl:\d+: the reward function {why}"
    assert re.search(place, said)
    found = re.search(r"(/\S+rules.py):(\d+)", said)
    assert found is not None
    assert Path(found[1]).read_text().splitlines()[int(found[2]) - 1].strip().startswith(line)


def test_a_column_that_the_prompts_lack(config: Path, tmp_path: Path, capsys: Any) -> None:
    said = complaint(capsys, config, tmp_path / "run", "--set", RULE + "matches")
    assert re.search(r"real.reward = 'tests.real.rules:matches': asks for 'answer', which ", said)
    assert "prompts.jsonl:1 does not have; add it to every prompt" in said


@pytest.mark.parametrize("mistake", ["real.actor=nope.json", RULE + "raises"])
def test_a_start_that_failed_can_be_tried_again(
    mistake: str, config: Path, tmp_path: Path, capsys: Any
) -> None:
    """Without --resume, and as another run: nothing was learnt that could be lost."""
    new, empty = tmp_path / "new", tmp_path / "empty"
    empty.mkdir()
    for out in (new, empty):
        complaint(capsys, config, out, "--set", mistake)
    assert not new.exists()
    assert not [*empty.iterdir()]
    for out in (new, empty):
        assert train(config, out, "--steps", "1") == 0


@pytest.mark.parametrize("schedule", ["trl", "oppo"])
def test_nothing_is_trained_on_a_reward_that_is_no_number(
    schedule: str, config: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it is mended the run goes on, and ends as if nothing had been."""
    options = ["--schedule", schedule, "--steps", "5", "--set", RULE + "odd_share", *INLINE]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert train(config, whole, *options) == 0
    with monkeypatch.context() as patch:
        given = read_prompts(tmp_path / "prompts.jsonl", None, tiny.VOCAB)
        patch.setattr(rules, "BROKEN", Prompts(given, seed=0)(9)[0])  # in none of the first nine
        said = complaint(capsys, config, broken, *options)
    found = re.search(r"rollout (\d+): its reward is nan; nothing is trained on it", said)
    assert found is not None
    trained = [rollout for record in read_run(broken).steps for rollout in record.trained]
    assert trained
    assert int(found[1]) not in trained
    assert train(config, broken, *options, "--resume") == 0
    assert_same(weights(whole), weights(broken))
    assert [r.rewards for r in read_run(whole).steps] == [r.rewards for r in read_run(broken).steps]


def test_the_folder_to_write_to(config: Path, tmp_path: Path, capsys: Any) -> None:
    assert main(["train", str(config), "--out", ""]) == 2
    assert "it is empty" in capsys.readouterr().err
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    said = complaint(capsys, config, tmp_path / "mine", "--resume")
    assert "not a run folder" in said
    assert "is not empty" in complaint(capsys, config, tmp_path / "mine")
    assert [file.name for file in (tmp_path / "mine").iterdir()] == ["notes.txt"]


def test_a_step_to_profile_that_there_is_not(config: Path, tmp_path: Path, capsys: Any) -> None:
    said = complaint(capsys, config, tmp_path / "run", "--steps", "2", "--profile", "9")
    assert "--profile 9: the run has 2 steps" in said


def test_another_runs_folder(config: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "run"
    assert train(config, out, "--steps", "2") == 0
    before = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    for more, said in (
        (["--seed", "5"], "seed is 0 there and 5 here"),
        (["--schedule", "trl"], "schedule.name is 'oppo' there and 'trl' here"),
        (["--set", "real.temperature=0.5"], "real.temperature is not set there and 0.5 here"),
        (["--steps", "1"], "which is not cut to 1"),
    ):
        assert said in complaint(capsys, config, out, "--steps", "3", *more, "--resume")
    assert {file: file.read_bytes() for file in out.rglob("*") if file.is_file()} == before


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-9])


def _flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-9] ^= 1
    file.write_bytes(bytes(content))


@pytest.mark.parametrize("harm", [_cut, _flip, Path.unlink])
@pytest.mark.parametrize(
    "name",
    ["weights.safetensors", "optimiser.safetensors", "caches.safetensors", "state.json"],
)
def test_a_damaged_checkpoint(
    name: str, harm: Any, config: Path, tmp_path: Path, capsys: Any
) -> None:
    """It is said which; without it the run goes on from the one before, to the same weights."""
    out, options = tmp_path / "run", ["--schedule", "trl", *INLINE]
    assert train(config, out, *options, "--steps", "2") == 0
    ends = weights(out)
    last = out / "checkpoints" / "step-00000002"
    harm(last / name)
    said = complaint(capsys, config, out, *options, "--steps", "2", "--resume")
    assert f"{last} cannot be used" in said
    assert name in said
    assert "go on from the checkpoint before" in said
    shutil.rmtree(last)
    assert train(config, out, *options, "--steps", "2", "--resume") == 0
    assert_same(weights(out), ends)


def test_another_runs_checkpoint(config: Path, tmp_path: Path, capsys: Any) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    assert train(config, one, "--steps", "1") == 0
    assert train(config, other, "--steps", "1", "--seed", "1") == 0
    shutil.rmtree(one / "checkpoints")
    shutil.copytree(other / "checkpoints", one / "checkpoints")
    assert "of another run" in complaint(capsys, config, one, "--steps", "2", "--resume")


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """As on a disk that is full; Python ignores the signal."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_costs_no_checkpoint_that_was_written(
    config: Path, tmp_path: Path, capsys: Any
) -> None:
    options = ["--schedule", "trl", *INLINE]
    out, whole = tmp_path / "run", tmp_path / "whole"
    assert train(config, whole, *options, "--steps", "3") == 0
    assert train(config, out, *options, "--steps", "1") == 0
    with files_of_at_most(20_000):
        said = complaint(capsys, config, out, *options, "--steps", "3", "--resume")
    assert "cannot write the checkpoint" in said
    assert [file.name for file in (out / "checkpoints").iterdir()] == ["step-00000001"]
    assert train(config, out, *options, "--steps", "3", "--resume") == 0
    assert_same(weights(whole), weights(out))


def test_a_full_disk_between_checkpoints(config: Path, tmp_path: Path, capsys: Any) -> None:
    """Whatever file grows first, it is named, and no thread dies of it."""
    options = ["--schedule", "trl", "--set", "real.save_steps=100", "--steps", "30", *INLINE]
    with files_of_at_most(6_000):
        said = complaint(capsys, config, tmp_path / "run", *options)
    assert re.match(r"cannot write .*(jsonl|tfevents.*): File too large; --resume", said)
    assert train(config, tmp_path / "run", *options, "--resume") == 0
    assert read_run(tmp_path / "run").complete


@pytest.mark.slow
def test_a_killed_worker_costs_no_step(config: Path, tmp_path: Path, capsys: Any) -> None:
    """Its process is named, and what it did, the run goes on from its checkpoint."""
    from oppo_real import train as real

    out, options = tmp_path / "run", ["--set", "real.workers=processes", "--steps", "6"]
    step = real.checkpoint.save

    def kill(run: Path, checkpoint: Any, keep: int) -> Path:
        folder = step(run, checkpoint, keep)
        if checkpoint.step == 2:
            (scorer,) = scorers()
            os.kill(scorer, signal.SIGKILL)
        return folder

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(real.checkpoint, "save", kill)
        said = complaint(capsys, config, out, *options)
    assert re.search(r"process of lane scorer0 \(pid \d+\) died: killed by SIGKILL", said)
    assert not scorers()
    assert len(read_run(out).steps) >= 2
    assert train(config, out, *options, "--resume") == 0
    run = read_run(out)
    trained = [rollout for record in run.steps for rollout in record.trained]
    assert run.complete
    assert len(trained) == len(set(trained)) == 36


def scorers() -> list[int]:
    found = psutil.Process().children(recursive=True)
    return [child.pid for child in found if "spawn_main" in " ".join(child.cmdline())]

"""`oppo run`: the same seed gives the same bytes, and a run that was stopped goes on."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pandas as pd
import pytest

from oppo_sim.config import load_scenario
from oppo_sim.runs import read_run
from oppo_sim.simulate import lanes
from tests.cli.conftest import Oppo

STEPS = ("--steps", 6)


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_a_run_is_summed_up_in_80_columns_as_simulated(oppo: Oppo) -> None:
    code, out, err = oppo("run", "tiny", *STEPS, "--schedule", "inter", "--seed", 3)
    assert (code, err) == (0, "")
    assert "tiny, schedule inter: 6 steps, seed 3. Every number is simulated." in out
    for words in ("staleness ", "deferrals ", "overcommit (D) ", "exposed: lengthens the step"):
        assert words in out
    for words in ("staleness: versions of", "deferrals: steps", "of one lane, that is"):
        assert words in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80


def test_a_run_says_what_its_scenario_assumes_or_where_that_is_said(oppo: Oppo) -> None:
    even = "experiments/configs/real/even-tokens.toml"
    said = " ".join(oppo("run", even, *STEPS).out.split())
    assert "Assumed: Lengths and costs are guesses for `oppo run`" in said
    said = " ".join(oppo("run", "stackexchange-7b", "--steps", 1).out.split())
    assert "assumes 10 things, which `oppo scenarios stackexchange-7b` names." in said


def test_json_is_one_document(oppo: Oppo) -> None:
    code, out, err = oppo("run", "tiny", *STEPS, "--json")
    document = json.loads(out)
    assert (code, err) == (0, "")
    assert document["role"] == "simulated"
    assert document["mean_step_s"] == document["metrics"]["mean_step_s"]
    assert document["metrics"]["steps"] == document["steps"] == 6


def test_the_same_seed_gives_the_same_bytes(oppo: Oppo, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        assert oppo("run", "tiny", *STEPS, "--spans", "--out", tmp_path / folder).code == 0
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert oppo("run", "tiny", *STEPS, "--seed", 1, "--out", tmp_path / "other").code == 0
    assert contents(tmp_path / "other") != contents(tmp_path / "one")


def test_what_is_written_can_be_read(oppo: Oppo, tmp_path: Path) -> None:
    oppo("run", "tiny", *STEPS, "--spans", "--out", tmp_path, "--schedule", "oppo")
    run = read_run(tmp_path)
    assert run.complete
    assert (run.header.seed, run.header.steps) == (0, 6)
    assert run.header.schedule["chunk"] == 50
    assert run.header.scenario["name"] == "tiny"
    spans = pd.read_json(tmp_path / "spans.jsonl", lines=True)
    assert set(spans.kind) == {"decode", "score", "train", "sync"}
    assert set(spans.lane) == {lane.name for lane in lanes(load_scenario("tiny"))}
    assert spans[spans.kind == "train"].step.tolist() == list(range(6))
    assert len(pd.read_json(tmp_path / "steps.jsonl", lines=True)) == 6


def test_no_file_names_this_machine_or_the_time(oppo: Oppo, tmp_path: Path) -> None:
    scenario = tmp_path / "mine.toml"
    source = Path(__file__).parents[2] / "oppo_sim" / "data" / "scenarios" / "tiny.toml"
    scenario.write_text(source.read_text())
    oppo("run", scenario, *STEPS, "--out", tmp_path / "run")
    for text in contents(tmp_path / "run").values():
        for secret in (str(tmp_path), os.uname().nodename, str(time.localtime().tm_year)):
            assert f'"{secret}' not in text.decode()


def test_one_key_can_be_changed(oppo: Oppo) -> None:
    plain = json.loads(oppo("run", "tiny", *STEPS, "--json").out)
    slow = json.loads(oppo("run", "tiny", *STEPS, "--json", "--set", "costs.train_call_s=20").out)
    difference_s = (
        slow["metrics"]["stages_s"]["training"] - plain["metrics"]["stages_s"]["training"]
    )
    assert difference_s == pytest.approx(18)


def test_a_schedule_may_come_from_a_file(oppo: Oppo, tmp_path: Path) -> None:
    file = tmp_path / "short-rounds.toml"
    file.write_text('base = "oppo"\nchunk = 10\n')
    document = json.loads(oppo("run", "tiny", *STEPS, "--schedule", file, "--json").out)
    assert document["schedule"] == "short-rounds"
    assert document["metrics"]["chunk_tokens"] == {"10": 6}


CANNOT = [
    ("costs.decode_token_s=0", "decoding a token takes 0 s"),
    ("costs.decode_token_s=1e308", "costs.decode_token_s = 1e+308: must be at most"),
    ("cluster.card=H20", "cluster.card: unknown hardware card 'H20'"),
    ("costs={model='roofline'}", "needs cluster.card"),
    ("costs={model='table',file='none.csv'}", "costs.file: none.csv: cannot be read"),
    ("workload.lengths=none.csv", "workload.lengths: none.csv cannot be read"),
    ("workload.lengths={replay=[3,4]}", "holds 2 lengths, but"),
    ("workload.reward={curve='none',noise=0}", "no reward curve is called 'none'"),
    ("workload.max_prompt_tokens=19", "is above max_prompt_tokens = 19"),
    ("schedule.batch=1000", "schedule.batch = 1000"),
    ("schedule.kv_reserve_tokens=5000", "schedule.kv_reserve_tokens = 5000"),
    ("cluster.kv_tokens=400", "cluster.kv_tokens = 400"),
    ("seed=18446744073709551616", "seed = 18446744073709551616: must be at most"),
]


@pytest.mark.parametrize("command", ["run", "compare"])
@pytest.mark.parametrize(("change", "said"), CANNOT)
def test_what_cannot_run_is_refused_before_its_folder_is_made(
    refused: Callable[..., str], tmp_path: Path, command: str, change: str, said: str
) -> None:
    out = tmp_path / "out"
    assert said in refused(command, "tiny", "--steps", 2, "--set", change, "--out", out)
    assert not out.exists()


def test_a_rollout_that_would_outgrow_its_lane_is_refused_before_its_folder_is_made(
    refused: Callable[..., str], tmp_path: Path
) -> None:
    small = ("--set", "cluster.kv_tokens=400", "--set", "schedule.kv_reserve_tokens=1")
    said = refused("run", "tiny", *STEPS, *small, "--out", tmp_path / "out")
    assert "cluster.kv_tokens = 400" in said
    assert "raise cluster.kv_tokens to 420" in said
    assert not (tmp_path / "out").exists()


def test_an_empty_name_is_none(
    refused: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "no schedule is called ''" in refused("run", "tiny", *STEPS, "--schedule", "")
    assert "'--out': it is empty" in refused("run", "tiny", *STEPS, "--out", "")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_reader_that_leaves_ends_a_run_quietly(form: tuple[str, ...], tmp_path: Path) -> None:
    """As `| head` does; 141 is what a shell reports of a program that a broken pipe ended."""
    process = started("run", "tiny", *STEPS, *form, "--out", tmp_path)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert process.wait(timeout=60) == 141
    assert read_run(tmp_path).complete


# going on


def test_a_run_goes_on_where_it_stopped(oppo: Oppo, tmp_path: Path) -> None:
    oppo("run", "tiny", *STEPS, "--out", tmp_path / "whole")
    oppo("run", "tiny", "--steps", 4, "--out", tmp_path / "part")
    steps = tmp_path / "part" / "steps.jsonl"
    steps.write_bytes(steps.read_bytes()[:-100])
    assert oppo("run", "tiny", *STEPS, "--out", tmp_path / "part", "--resume").code == 0
    assert contents(tmp_path / "part") == contents(tmp_path / "whole")


def test_a_folder_with_something_in_it_is_refused(
    oppo: Oppo, refused: Callable[..., str], tmp_path: Path
) -> None:
    oppo("run", "tiny", *STEPS, "--out", tmp_path)
    before = contents(tmp_path)
    assert "is not empty" in refused("run", "tiny", *STEPS, "--out", tmp_path)
    said = refused("run", "tiny", *STEPS, "--out", tmp_path, "--resume", "--seed", 5)
    assert "seed is 0 there and 5 here" in said
    said = refused("run", "tiny", *STEPS, "--out", tmp_path, "--resume", "--schedule", "trl")
    assert "schedule.name is 'oppo' there and 'trl' here" in said
    said = refused(
        "run", "tiny", *STEPS, "--out", tmp_path, "--resume", "--set", "costs.train_call_s=3"
    )
    assert "scenario.costs.train_call_s is 2.0 there and 3.0 here" in said
    assert contents(tmp_path) == before


def test_a_damaged_folder_is_an_error_that_changes_nothing(
    oppo: Oppo, refused: Callable[..., str], tmp_path: Path
) -> None:
    oppo("run", "tiny", *STEPS, "--out", tmp_path)
    steps = tmp_path / "steps.jsonl"
    steps.write_bytes(steps.read_bytes().replace(b'"step":2', b'"step":9'))
    before = contents(tmp_path)
    said = refused("run", "tiny", *STEPS, "--out", tmp_path, "--resume")
    assert "steps.jsonl:3: differs from what is simulated now" in said
    assert contents(tmp_path) == before


def started(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "oppo_sim.cli", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_lines(process: subprocess.Popen[str], file: Path) -> None:
    until = time.monotonic() + 60
    while not file.exists() or not file.read_bytes().count(b"\n"):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.parametrize("with_signal", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_process_leaves_a_run_that_goes_on(
    oppo: Oppo, tmp_path: Path, with_signal: signal.Signals
) -> None:
    process = started("run", "tiny", "--steps", 100_000, "--out", tmp_path / "run", "--spans")
    wait_for_lines(process, tmp_path / "run" / "steps.jsonl")
    process.send_signal(with_signal)
    _, err = process.communicate(timeout=60)
    if with_signal == signal.SIGINT:
        assert process.returncode == 130
        assert err.startswith("oppo: interrupted")
        assert err.count("\n") == 1
    run_json = tmp_path / "run" / "run.json"
    header = json.loads(run_json.read_text())
    run_json.write_text(json.dumps({**header, "steps": 1}, indent=2) + "\n")  # so as not to wait
    done = len((tmp_path / "run" / "steps.jsonl").read_bytes().splitlines())
    steps = ("--steps", done + 1, "--spans")
    assert oppo("run", "tiny", *steps, "--out", tmp_path / "run", "--resume").code == 0
    assert oppo("run", "tiny", *steps, "--out", tmp_path / "whole").code == 0
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


LOST = "; paths are relative to the folder of the scenario's file, "


@pytest.mark.parametrize(
    ("scenario", "field"),
    [
        ("tiny", "workload.lengths=x/lengths.csv"),
        ("tiny", "workload.lengths={replay='x/lengths.csv'}"),
        ("tiny", "costs={model='table',file='x/times.csv'}"),
        ("stackexchange-7b", "cluster.card=x/card.toml"),
        ("stackexchange-7b", "models.actor=x/config.json"),
    ],
)
def test_a_file_that_is_not_there_is_said_to_be_looked_for_beside_the_scenario(
    refused: Callable[..., str], tmp_path: Path, scenario: str, field: str
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    mine = folder / "mine.toml"
    mine.write_text((files("oppo_sim") / "data/scenarios" / f"{scenario}.toml").read_text())
    said = refused("run", mine, "--set", field)
    assert f"{folder}/x/" in said
    assert said.endswith(f"{LOST}{folder}\n")
    for known in ("tiny", mine):  # a shipped one has no folder, and what is absolute needs none
        assert LOST not in refused("run", known, "--set", f"workload.lengths={tmp_path}/none.csv")

"""`--set`: what was changed stands in the headline, in the folder, and in what is advised."""

import json
import shlex
from pathlib import Path

import pytest

from oppo_sim.runs import read_run
from tests.cli.conftest import Oppo

CAP = ("--set", "workload.max_response_tokens=150")
LAW = ("--set", "workload.lengths={ exponential = 50 }")
NOTE = (
    "Changed by --set: workload.max_response_tokens = 150 and workload.lengths = { exponential = "
    "50 }. What is assumed of that above may no longer hold."
)
STEPS = ("--steps", 3)


def document(file: Path) -> dict:  # type: ignore[type-arg]
    return dict(json.loads(file.read_text()))


def test_a_headline_names_what_was_changed(oppo: Oppo) -> None:
    out = " ".join(oppo("run", "tiny", *STEPS, *CAP).out.split())
    assert out.startswith("tiny with workload.max_response_tokens = 150, schedule oppo: 3 steps, ")
    few = ("--steps", 2, "--seeds", 1, "--jobs", 1)
    out = " ".join(oppo("compare", "tiny", *few, *CAP, *LAW, "--set", "seed=1").out.split())
    said = (
        "tiny with workload.max_response_tokens = 150, workload.lengths = { exponential = 50 } and"
    )
    assert f"{said} seed = 1: 2 steps, 1 seed, common random numbers." in out


def test_json_says_it_too(oppo: Oppo) -> None:
    found = json.loads(oppo("run", "tiny", *STEPS, *CAP, "--json").out)
    assert found["sets"] == {"workload.max_response_tokens": "150"}
    assert json.loads(oppo("run", "tiny", *STEPS, "--json").out)["sets"] == {}


def test_a_folder_s_assumptions_say_what_was_changed(oppo: Oppo, tmp_path: Path) -> None:
    oppo("run", "tiny", *STEPS, *CAP, *LAW, "--out", tmp_path / "run")
    head = document(tmp_path / "run/run.json")
    assert head["scenario"]["assumptions"][-1] == NOTE
    assert len(head["scenario"]["assumptions"]) == 2
    few = ("--steps", 2, "--seeds", 1, "--jobs", 1)
    oppo("compare", "tiny", *few, *CAP, *LAW, "--out", tmp_path / "two")
    assert document(tmp_path / "two/comparison.json")["assumptions"][-1] == NOTE
    assert document(tmp_path / "two/header.json")["scenario"]["assumptions"][-1] == NOTE


def test_a_folder_of_what_was_not_changed_is_as_it_was(oppo: Oppo, tmp_path: Path) -> None:
    oppo("run", "tiny", *STEPS, "--out", tmp_path)
    head = document(tmp_path / "run.json")
    assert "sets" not in head
    assert len(head["scenario"]["assumptions"]) == 1


def test_a_changed_run_goes_on(oppo: Oppo, tmp_path: Path) -> None:
    arguments = ("run", "tiny", *CAP, *LAW, "--out")
    assert oppo(*arguments, tmp_path / "run", "--steps", 2).code == 0
    assert oppo(*arguments, tmp_path / "run", "--steps", 4, "--resume").code == 0
    assert oppo(*arguments, tmp_path / "whole", "--steps", 4).code == 0
    for name in ("run.json", "steps.jsonl"):
        assert (tmp_path / "run" / name).read_text() == (tmp_path / "whole" / name).read_text()


def test_folders_from_before_are_read_and_go_on(oppo: Oppo, tmp_path: Path) -> None:
    """They hold neither what was set nor the assumption about it."""
    run = ("run", "tiny", *STEPS, *CAP, "--out", tmp_path / "run")
    oppo(*run)
    before = document(tmp_path / "run/run.json")
    del before["sets"], before["scenario"]["assumptions"][-1]
    (tmp_path / "run/run.json").write_text(json.dumps(before))
    assert read_run(tmp_path / "run").header.sets == {}
    assert oppo(*run, "--resume").code == 0

    few = ("--steps", 2, "--seeds", 1, "--jobs", 1)
    two = ("compare", "tiny", *few, *CAP, "--out", tmp_path / "two")
    oppo(*two)
    before = document(tmp_path / "two/header.json")
    del before["sets"], before["scenario"]["assumptions"][-1]
    (tmp_path / "two/header.json").write_text(json.dumps(before))
    assert oppo(*two, "--resume").code == 0


@pytest.mark.parametrize("command", [("trace",), ("plot", "--kind", "gantt")])
def test_the_advice_for_a_timeline_repeats_what_was_changed(
    oppo: Oppo, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """Followed to the letter, it is the same run with its spans."""
    name, *options = command
    oppo("run", "tiny", *STEPS, *CAP, *LAW, "--out", tmp_path / "run")
    said = oppo(name, tmp_path / "run", *options).err
    advised = shlex.split(said.split("such as: oppo ")[1])
    assert oppo(*advised).code == 0
    assert (tmp_path / "run-spans/steps.jsonl").read_bytes() == (
        tmp_path / "run/steps.jsonl"
    ).read_bytes()
    assert oppo(name, tmp_path / "run-spans", *options).code == 0


def test_a_long_value_is_cut_in_the_headline_only(oppo: Oppo, tmp_path: Path) -> None:
    value = f"{{ replay = [{', '.join(['20'] * 100)}] }}"
    changed = ("--set", f"workload.lengths={value}")
    out = oppo("run", "tiny", *STEPS, *changed, "--out", tmp_path / "run").out
    assert f"workload.lengths = {value[:37]}..., schedule oppo" in " ".join(out.split())
    assert read_run(tmp_path / "run").header.sets == {"workload.lengths": value}

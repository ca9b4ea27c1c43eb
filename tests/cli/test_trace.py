"""`oppo trace`: a file next to the run, and one line for each mistake."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Oppo

Refused = Callable[..., str]


@pytest.fixture
def run(oppo: Oppo, tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    assert oppo("run", "tiny", "--steps", 3, "--spans", "--out", folder).code == 0
    return folder


def test_it_is_written_into_the_run_or_where_it_is_asked_for(
    oppo: Oppo, run: Path, tmp_path: Path
) -> None:
    code, out, err = oppo("trace", run)
    assert (code, err) == (0, "")
    assert "trace.json:3steps" in "".join(out.split())  # wherever a long path is folded
    assert "ui.perfetto.dev" in out
    assert max(map(len, out.splitlines())) <= 80
    elsewhere = tmp_path / "here.json"
    document = json.loads(oppo("trace", run, "--out", elsewhere, "--json").out)
    lines = (run / "spans.jsonl").read_text().splitlines()
    arrows = sum(len(json.loads(line)["reads"]) for line in lines)
    assert document == {"out": str(elsewhere), "steps": 3, "spans": len(lines), "arrows": arrows}
    assert elsewhere.read_bytes() == (run / "trace.json").read_bytes()


def test_a_run_with_a_trace_in_it_goes_on(oppo: Oppo, run: Path) -> None:
    oppo("trace", run)
    again = ("run", "tiny", "--steps", 4, "--spans", "--out", run, "--resume")
    assert oppo(*again).code == 0
    assert "trace.json:4steps" in "".join(oppo("trace", run).out.split())


def test_without_spans_it_says_how_to_make_some(
    oppo: Oppo, refused: Refused, tmp_path: Path
) -> None:
    oppo("run", "tiny", "--steps", 2, "--schedule", "trl", "--out", tmp_path / "bare")
    said = refused("trace", tmp_path / "bare")
    assert "has no spans.jsonl" in said
    command = said.split("such as: oppo ")[1].split()
    assert oppo(*command).code == 0
    assert oppo("trace", command[-1]).code == 0


def test_what_is_no_run_is_refused(refused: Refused, run: Path, tmp_path: Path) -> None:
    assert "no such run folder" in refused("trace", tmp_path / "missing")
    assert "has no run.json" in refused("trace", tmp_path)
    steps = (run / "steps.jsonl").read_bytes()
    (run / "steps.jsonl").write_bytes(b"")
    assert "has no steps yet" in refused("trace", run)
    (run / "steps.jsonl").write_bytes(steps[:-20])
    assert "steps.jsonl:3: cut off" in refused("trace", run)
    (run / "steps.jsonl").write_bytes(steps)
    (run / "spans.jsonl").write_bytes((run / "spans.jsonl").read_bytes()[:-20])
    assert "cut off: the run was stopped while it wrote" in refused("trace", run)
    assert not list(run.glob("*trace*"))


@pytest.mark.parametrize("command", ["sweep", "compare"])
def test_the_folder_of_many_runs_is_refused(
    oppo: Oppo, refused: Refused, tmp_path: Path, command: str
) -> None:
    file, out = tmp_path / "sweep.toml", tmp_path / "out"
    file.write_text('scenario = "tiny"\n[axes]\n"schedule.chunk" = [20, 50]\n')
    of = file if command == "sweep" else "tiny"
    assert oppo(command, of, "--steps", 2, "--seeds", 1, "--jobs", 1, "--out", out).code == 0
    said = refused("trace", out)
    assert "is of many runs, and a trace is of one: make it by oppo run SCENARIO --spans" in said


def test_a_place_that_cannot_be_written_is_refused(refused: Refused, run: Path) -> None:
    assert "a trace is a .json file" in refused("trace", run, "--out", run / "trace.png")
    for part in ("run.json", "torch.json"):  # a trace as torch's own would be in the next trace
        assert "a part of a run" in refused("trace", run, "--out", run / part)
    missing = run / "no" / "trace.json"
    assert f"cannot write {missing}: No such file or directory" in refused(
        "trace", run, "--out", missing
    )
    (run / "is.json").mkdir()
    assert "cannot write" in refused("trace", run, "--out", run / "is.json")
    assert not list(run.glob(".*"))

"""A run folder keeps what was written, refuses what does not belong, and goes on after a kill."""

import json
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oppo_sim.records import Span, StepRecord
from oppo_sim.runs import Header, RunError, RunWriter, claim_folder, each_step, read_run
from tests.steps import step

HEADER = Header(
    scenario={"name": "tiny", "steps": 500, "workload": {"max_response_tokens": 64}},
    schedule={"name": "oppo", "chunk": 256},
    seed=7,
    steps=3,
    spans=True,
)
STEPS = [step(number, 10.0 * number) for number in range(3)]
SPANS = [
    Span("scorer0", ("gpu1",), "score", 10.0 * n, 10.0 * n + 4, n, 2, 40, (("actor0", 10.0 * n),))
    for n in range(3)
]


def write(
    folder: Path,
    header: Header = HEADER,
    steps: Iterable[StepRecord] = STEPS,
    spans: Iterable[Span] = SPANS,
    *,
    resume: bool = False,
) -> None:
    with RunWriter(folder, header, resume=resume) as writer:
        for record, span in zip(steps, spans, strict=True):
            writer.span(span)
            writer.step(record)


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    write(tmp_path / "run")
    run = read_run(tmp_path / "run")
    assert (run.header, run.steps, run.spans) == (HEADER, tuple(STEPS), tuple(SPANS))
    assert run.complete


def test_pandas_reads_it_in_one_line(tmp_path: Path) -> None:
    write(tmp_path)
    assert list(pd.read_json(tmp_path / "steps.jsonl", lines=True).end_s) == [10, 20, 30]
    assert list(pd.read_json(tmp_path / "spans.jsonl", lines=True).tokens) == [40, 40, 40]


def test_the_header_names_no_time_place_or_machine(tmp_path: Path) -> None:
    write(tmp_path)
    header = json.loads((tmp_path / "run.json").read_text())
    assert header.keys() == {"schema", "role", "scenario", "schedule", "seed", "steps", "spans"}
    assert header["role"] == "simulated"


def test_spans_are_written_only_where_they_are_asked_for(tmp_path: Path) -> None:
    with RunWriter(tmp_path, replace(HEADER, spans=False)) as writer:
        writer.step(STEPS[0])
    assert sorted(contents(tmp_path)) == ["run.json", "steps.jsonl"]
    assert read_run(tmp_path).spans == ()


def test_a_run_that_stopped_early_says_so(tmp_path: Path) -> None:
    write(tmp_path, steps=STEPS[:2], spans=SPANS[:2])
    run = read_run(tmp_path)
    assert not run.complete
    assert len(run.steps) == 2


def test_an_error_in_the_run_leaves_whole_lines(tmp_path: Path) -> None:
    def steps() -> Iterator[StepRecord]:
        yield STEPS[0]
        raise KeyError

    with pytest.raises(KeyError):
        write(tmp_path, steps=steps())
    assert read_run(tmp_path).steps == (STEPS[0],)


# refusals


def test_reading_what_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no such run folder"):
        read_run(tmp_path / "missing")
    with pytest.raises(RunError, match=r"has no run\.json"):
        read_run(tmp_path)
    (tmp_path / "run.json").write_text("[1, 2")
    with pytest.raises(RunError, match="not the header of a run"):
        read_run(tmp_path)
    (tmp_path / "run.json").write_text('{"schema": 1, "seed": 0}')
    with pytest.raises(RunError, match="missing or unknown: role, scenario"):
        read_run(tmp_path)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("steps", "many", 'steps is "many": must be a whole number'),
        ("steps", 3.0, "steps is 3.0: must be a whole number"),
        ("steps", True, "steps is true: must be a whole number"),
        ("seed", None, "seed is null: must be a whole number"),
        ("spans", 1, "spans is 1: must be true or false"),
        ("role", [], "role is []: must be a text"),
        ("scenario", "tiny", 'scenario is "tiny": must be an object'),
        ("schedule", [1], "schedule is [1]: must be an object"),
    ],
)
def test_a_header_of_other_types_is_refused_by_its_field(
    tmp_path: Path, field: str, value: object, said: str
) -> None:
    write(tmp_path)
    header = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**header, field: value}))
    before = contents(tmp_path)
    for use in (read_run, lambda path: write(path, resume=True)):
        with pytest.raises(RunError, match=re.escape(f"{tmp_path}/run.json: {said}")):
            use(tmp_path)
    assert contents(tmp_path) == before


def test_reading_another_schema(tmp_path: Path) -> None:
    write(tmp_path)
    header = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**header, "schema": 99}))
    with pytest.raises(RunError, match="schema 99, this version reads 1"):
        read_run(tmp_path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[:-40], r"steps\.jsonl:3: cut off.*--resume"),
        (lambda text: text.replace(b'"start_s":10.0,', b""), r"steps\.jsonl:2: damaged.*start_s"),
        (lambda text: text.replace(b"{", b"{{", 1), r"steps\.jsonl:1: damaged"),
        (lambda text: b"17\n" + text, r"steps\.jsonl:1: damaged"),
        (lambda text: b"\xff\xfe\n" + text, r"steps\.jsonl:1: damaged"),
        (lambda text: text.split(b"\n", 1)[1], r"steps\.jsonl:1: step 1 where step 0 belongs"),
        (lambda text: b"[" * 100_000 + b"\n" + text, r"steps\.jsonl:1: damaged \(nested too"),
        (lambda text: text.replace(b"20.0", b"NaN", 1), r"steps\.jsonl:\d: damaged \(NaN is no"),
        (lambda text: text.replace(b"20.0", b"1e999", 1), r"_s is Infinity: must be a number"),
        (lambda text: text.replace(b"20.0", b"9" * 400, 1), r"_s is 99.*: must be a number"),
        (lambda text: text.replace(b'"admitted":', b'"admitted":-.5', 1), r"damaged"),
        (
            lambda text: text.replace(b'"trained":[', b'"trained":["1",', 1),
            r"a list of whole",
        ),
        (lambda text: text.replace(b'"trained":[', b'"trained":[9,', 1), r"lists of one length"),
        (lambda text: text.replace(b'"end_s":10.0', b'"end_s":1.0', 1), r"are not in order"),
    ],
)
def test_a_damaged_file_is_named_with_its_line(
    tmp_path: Path, damage: Callable[[bytes], bytes], message: str
) -> None:
    write(tmp_path)
    file = tmp_path / "steps.jsonl"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(RunError, match=message):
        read_run(tmp_path)


def test_a_folder_that_holds_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match=r"is not empty.*--resume"):
        write(tmp_path)
    with pytest.raises(RunError, match=r"has no run\.json"):
        write(tmp_path, resume=True)
    assert contents(tmp_path) == {"notes.txt": b"mine"}


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"cannot write to .*file/run: Not a directory"):
        write(tmp_path / "file" / "run")


def test_what_a_killed_writer_left_behind_does_not_count(tmp_path: Path) -> None:
    (tmp_path / ".run.json.part").write_text("{")
    claim_folder(tmp_path, resume=False)
    write(tmp_path)
    assert sorted(contents(tmp_path)) == ["run.json", "spans.jsonl", "steps.jsonl"]


JUNK = [None, True, -1, 0.5, 1e308, 10**30, 10**400, float("nan"), float("inf"), "", "x", [], {}]
JUNK += [[1], [[1, 2]], {"a": 1}, "\ud800"]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something is in a JSON value."""
    yield path
    if isinstance(value, dict | list):
        keys = list(value) if isinstance(value, dict) else range(len(value))
        for key in keys:
            yield from places(value[key], (*path, key))


def replaced(value: Any, path: tuple[Any, ...], junk: Any) -> Any:
    if not path:
        return junk
    copy = value.copy()
    copy[path[0]] = replaced(value[path[0]], path[1:], junk)
    return copy


@st.composite
def damaged(draw: st.DrawFn, text: bytes, has_lines: bool) -> bytes:
    """A file cut off, with another byte, without a line, or with another value somewhere."""
    at = draw(st.integers(0, len(text) - 1))
    lines = text.splitlines(keepends=True) if has_lines else [text]
    line = draw(st.integers(0, len(lines) - 1))
    match draw(st.sampled_from(["cut", "byte", "line", "value", "value", "value"])):
        case "cut":
            return text[:at]
        case "byte":
            return text[:at] + bytes([draw(st.integers(0, 255))]) + text[at + 1 :]
        case "line":
            return b"".join(lines[:line] + lines[line + 1 :])
    row = json.loads(lines[line])
    path = draw(st.sampled_from(list(places(row))))
    row = replaced(row, path, draw(st.sampled_from(JUNK)))
    return b"".join([*lines[:line], json.dumps(row).encode() + b"\n", *lines[line + 1 :]])


@given(st.data())
def test_whatever_the_damage_it_is_read_or_refused_in_a_line(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        write(Path(folder))
        name = data.draw(st.sampled_from(["run.json", "steps.jsonl", "spans.jsonl"]))
        file = Path(folder) / name
        file.write_bytes(data.draw(damaged(file.read_bytes(), name != "run.json")))
        for use in (read_run, lambda path: write(Path(path), resume=True)):
            said = ""
            try:
                use(folder)
            except RunError as error:
                said = str(error)
            assert "\n" not in said
            assert not said or folder in said


# going on


@pytest.mark.parametrize("cut", range(0, 2400, 97))
def test_a_killed_run_goes_on_to_the_same_bytes(tmp_path: Path, cut: int) -> None:
    write(tmp_path / "whole")
    whole = contents(tmp_path / "whole")
    killed = tmp_path / "killed"
    write(killed)
    for name in ("steps.jsonl", "spans.jsonl"):
        (killed / name).write_bytes(whole[name][:cut])
    write(killed, resume=True)
    assert contents(killed) == whole


def test_resuming_a_complete_run_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path)
    before = {file.name: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    write(tmp_path, resume=True)
    assert {file.name: file.stat().st_mtime_ns for file in tmp_path.iterdir()} == before


def test_resuming_an_empty_folder_begins(tmp_path: Path) -> None:
    write(tmp_path, resume=True)
    assert read_run(tmp_path).complete


def test_a_run_goes_on_to_more_steps_and_not_to_fewer(tmp_path: Path) -> None:
    write(tmp_path, replace(HEADER, steps=2), STEPS[:2], SPANS[:2])
    write(tmp_path, resume=True)
    assert len(read_run(tmp_path).steps) == read_run(tmp_path).header.steps == 3
    with pytest.raises(RunError, match="holds a run of 3 steps, which is not cut to 2"):
        write(tmp_path, replace(HEADER, steps=2), STEPS[:2], SPANS[:2], resume=True)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (replace(HEADER, seed=8), "seed is 7 there and 8 here"),
        (replace(HEADER, spans=False), "spans is True there and False here"),
        (replace(HEADER, schedule={"name": "trl"}), "schedule.name is 'oppo' there and 'trl' here"),
        (
            replace(HEADER, scenario={**HEADER.scenario, "workload": {"max_response_tokens": 32}}),
            "scenario.workload.max_response_tokens is 64 there and 32 here",
        ),
    ],
)
def test_another_run_is_refused(tmp_path: Path, other: Header, message: str) -> None:
    write(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(RunError, match=message):
        write(tmp_path, other, resume=True)
    assert contents(tmp_path) == before


def test_a_difference_is_an_error_and_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path, steps=STEPS[:2], spans=SPANS[:2])
    before = contents(tmp_path)
    slower = [STEPS[0], replace(STEPS[1], end_s=20.5), STEPS[2]]
    with pytest.raises(RunError, match=r"steps\.jsonl:2: differs from what is simulated now"):
        write(tmp_path, steps=slower, resume=True)
    assert contents(tmp_path) == before


def test_a_difference_in_the_spans_keeps_the_steps_from_being_written(tmp_path: Path) -> None:
    write(tmp_path)
    steps = tmp_path / "steps.jsonl"
    steps.write_bytes(steps.read_bytes().split(b"\n")[0] + b"\n")
    before = contents(tmp_path)
    longer = [*SPANS[:2], SPANS[2]._replace(tokens=41)]
    with pytest.raises(RunError, match=r"spans\.jsonl:3: differs"):
        write(tmp_path, spans=longer, resume=True)
    assert contents(tmp_path) == before


def test_lines_beyond_the_run_are_an_error(tmp_path: Path) -> None:
    write(tmp_path)
    with (tmp_path / "spans.jsonl").open("a") as spans:
        spans.write("{}\n")
    with pytest.raises(RunError, match=r"spans\.jsonl:4: more lines than the run has"):
        write(tmp_path, resume=True)


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """The file size limit of a process stands for the disk: the write that crosses it fails."""
    script = (
        "import resource, sys; from pathlib import Path; from tests.test_runs import write\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, (1000, {resource.RLIM_INFINITY}))\n"
        f"write(Path({str(tmp_path)!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert "RunError: cannot write" in done.stderr
    assert "File too large; what is written stays, --resume goes on" in done.stderr
    torn = (tmp_path / "steps.jsonl").read_bytes()
    assert len(torn) == 1000
    with pytest.raises(RunError, match="cut off"):
        list(each_step(tmp_path))
    write(tmp_path, resume=True)
    assert (tmp_path / "steps.jsonl").read_bytes()[:1000] == torn
    assert read_run(tmp_path).steps == tuple(STEPS)

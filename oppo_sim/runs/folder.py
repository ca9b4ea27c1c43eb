"""A run folder: what is in it, and how it is read.

run.json      schema, role of the numbers, scenario, schedule, seed, steps, what --set changed; no
              time, no path
steps.jsonl   one StepRecord a line: pandas.read_json(path, lines=True)
spans.jsonl   one Span a line, only where they were asked for
updates.jsonl what each update says of its loss, KL and the like; only of a real machine
torch.json    torch's own spans of one step, in the run's time; only where they were asked for
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from oppo_sim.records import SCHEMA_VERSION, Span, StepRecord
from oppo_sim.runs.changes import assumed, called
from oppo_sim.runs.rows import from_json, kinds_of, refuse_other_kinds, span_of, step_of

RUN, STEPS, SPANS, UPDATES = "run.json", "steps.jsonl", "spans.jsonl", "updates.jsonl"
TORCH = "torch.json"
Row = TypeVar("Row")


class RunError(ValueError):
    """A folder that cannot be read or written as asked; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a run is of. Scenario and schedule are JSON objects, complete enough to run again."""

    scenario: Mapping[str, Any]
    schedule: Mapping[str, Any]
    seed: int
    steps: int
    spans: bool = False
    role: str = "simulated"
    # dotted paths of the scenario that were set beside its file, and the values as written
    sets: Mapping[str, str] = field(default_factory=dict)

    @property
    def called(self) -> str:
        """The scenario's name with what was changed."""
        return called(self.scenario.get("name"), self.sets)


@dataclass(frozen=True, slots=True)
class Run:
    """A run read back. `spans` is empty where none were asked for."""

    header: Header
    steps: tuple[StepRecord, ...]
    spans: tuple[Span, ...]

    @property
    def complete(self) -> bool:
        """Whether all the steps that the header promises are there."""
        return len(self.steps) == self.header.steps


def read_run(path: str | Path) -> Run:
    """All of a run folder; RunError where it is missing, damaged or of another schema."""
    header = read_header(path)
    return Run(header, tuple(each_step(path)), tuple(each_span(path)))


def read_header(path: str | Path) -> Header:
    folder = Path(path)
    if not folder.is_dir():
        raise RunError(f"{folder}: no such run folder")
    if not (folder / RUN).is_file():
        raise RunError(f"{folder}: not a run folder, it has no {RUN}")
    try:
        row = from_json((folder / RUN).read_bytes())
        schema = row.pop("schema")
    except OSError as error:
        raise RunError(f"cannot read {folder / RUN}: {error.strerror}") from None
    except KeyError:
        raise RunError(f"{folder / RUN}: not the header of a run: it has no schema") from None
    except ValueError as error:
        raise RunError(f"{folder / RUN}: not the header of a run ({error})") from None
    if schema != SCHEMA_VERSION:
        raise RunError(
            f"{folder}: written in schema {schema}, this version reads {SCHEMA_VERSION}: "
            "read it with the version that wrote it, or simulate again"
        )
    odd = sorted({"sets", *row} ^ {field.name for field in fields(Header)})
    if odd:
        raise RunError(f"{folder / RUN}: missing or unknown: {', '.join(odd)}")
    try:
        refuse_other_kinds(row, kinds_of(Header))
    except ValueError as error:
        raise RunError(f"{folder / RUN}: {error}; simulate again into another folder") from None
    return Header(**row)


def each_step(path: str | Path) -> Iterator[StepRecord]:
    """The steps of a run, one at a time."""
    file = Path(path) / STEPS
    for line, record in enumerate(_each(file, step_of)):
        if record.step != line:
            raise RunError(f"{file}:{line + 1}: step {record.step} where step {line} belongs")
        yield record


def each_span(path: str | Path) -> Iterator[Span]:
    """The spans of a run, one at a time, in the order in which they ended."""
    yield from _each(Path(path) / SPANS, span_of)


def claim_folder(path: str | Path, *, resume: bool | None) -> Path:
    """Make a folder to write to; one that holds something is refused unless `resume`.

    `resume` None: what is written there is not gone on with.
    """
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = [entry.name for entry in folder.iterdir() if not entry.name.endswith(".part")]
    except OSError as error:
        raise RunError(f"cannot write to {folder}: {error.strerror}") from None
    if held and not resume:
        remedy = "" if resume is None else ", or add --resume to go on in it"
        raise RunError(f"{folder} is not empty: name another folder{remedy}")
    return folder


def write_whole(file: Path, content: str | bytes) -> None:
    """A file that is there completely or not at all."""
    part = file.with_name(f".{file.name}.part")
    try:
        try:
            with part.open("wb") as out:
                out.write(content.encode() if isinstance(content, str) else content)
                out.flush()
                os.fsync(out.fileno())
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise RunError(f"cannot write {file}: {error.strerror}") from None


def write_header(folder: Path, header: Header) -> None:
    """What the run is of, in the present schema."""
    head = {"schema": SCHEMA_VERSION, **asdict(header)}
    if not header.sets:
        del head["sets"]
    else:
        known = header.scenario.get("assumptions", ())
        head["scenario"]["assumptions"] = [*known, *assumed(header.sets)]
    write_whole(folder / RUN, json.dumps(head, indent=2, allow_nan=False) + "\n")


def line_of(row: Mapping[str, Any]) -> bytes:
    """An object as a line of JSON; the same object gives the same bytes."""
    return json.dumps(row, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def open_lines(file: Path) -> int:
    """A descriptor that appends to a file of lines."""
    return os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)


def write_lines(fd: int, lines: Iterable[bytes]) -> None:
    """All of them, however the system takes them."""
    data = memoryview(b"".join(lines))
    while data:
        data = data[os.write(fd, data) :]


def _each(file: Path, row_of: Callable[[bytes], Row]) -> Iterator[Row]:
    try:
        lines = file.open("rb")
    except FileNotFoundError:
        return  # killed before its first line, or not asked for
    except OSError as error:
        raise RunError(f"cannot read {file}: {error.strerror}") from None
    with lines:
        for number, line in enumerate(lines, start=1):
            if not line.endswith(b"\n"):
                raise RunError(
                    f"{file}:{number}: cut off: the run was stopped while it wrote; "
                    "run it again with --resume, or delete this line"
                )
            try:
                yield row_of(line)
            except ValueError as error:
                raise RunError(f"{file}:{number}: damaged ({error}); simulate again") from None

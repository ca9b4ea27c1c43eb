"""Writing a run folder: lines are whole, and a run that was killed goes on where it stopped."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from oppo_sim.records import Span, StepRecord, to_row
from oppo_sim.runs.folder import (
    SPANS,
    STEPS,
    Header,
    RunError,
    claim_folder,
    line_of,
    open_lines,
    read_header,
    write_header,
    write_lines,
)


class RunWriter:
    """Writes a run folder, each line whole, spans no later than the step in which they ended.

    With `resume` the run is simulated again from its first step: what the folder holds is compared
    byte for byte, a last line that was cut off is completed, and only then is anything written. A
    run may be continued to more steps, not to fewer. Raises RunError.
    """

    def __init__(self, path: str | Path, header: Header, *, resume: bool = False) -> None:
        self.folder = claim_folder(path, resume=resume)
        self.header = header
        self._files = {STEPS: _Lines(self.folder / STEPS)}
        if header.spans:
            self._files[SPANS] = _Lines(self.folder / SPANS)
        self._announced = False
        if any(self.folder.glob("[!.]*")):
            there = read_header(self.folder)
            refuse_other(self.folder, there, header)
            self._announced = there.steps == header.steps
        self._verify_next()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            for lines in self._files.values():
                lines.close()

    def span(self, span: Span) -> None:
        self._files[SPANS].put(line_of(to_row(span)))

    def step(self, record: StepRecord) -> None:
        self._files[STEPS].put(line_of(to_row(record)))
        self._verify_next()

    def _verify_next(self) -> None:
        """Write what has been held back, once all that was there has been met again."""
        if not all(lines.verified for lines in self._files.values()):
            return
        if not self._announced:
            write_header(self.folder, self.header)
            self._announced = True
        for name in reversed(self._files):  # spans first: steps never run ahead of them
            self._files[name].write()

    def _finish(self) -> None:
        for lines in self._files.values():
            lines.refuse_rest()
        self._verify_next()


class _Lines:
    """A file of lines: compared while it has some, then appended to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held: list[bytes] = []
        self._number = 0
        self._fd: int | None = None
        try:
            self._old = path.open("rb") if path.exists() else None
            if self._old is not None and not self._old.peek(1):
                self._stop_comparing()
        except OSError as error:
            raise RunError(f"cannot read {path}: {error.strerror}") from None

    @property
    def verified(self) -> bool:
        return self._old is None

    def put(self, line: bytes) -> None:
        self._number += 1
        if self._old is None:
            self._held.append(line)
            return
        there = self._old.readline()
        if there != line and (there.endswith(b"\n") or not line.startswith(there)):
            raise RunError(
                f"{self._path}:{self._number}: differs from what is simulated now, so it was "
                "written by another version or changed since: nothing was written; "
                "simulate into another folder"
            )
        if there != line:
            self._held.append(line[len(there) :])
        if not self._old.peek(1):
            self._stop_comparing()

    def write(self) -> None:
        if not self._held:
            return
        try:
            if self._fd is None:
                self._fd = open_lines(self._path)
            write_lines(self._fd, self._held)
        except OSError as error:
            raise RunError(
                f"cannot write {self._path}: {error.strerror}; what is written stays, "
                "--resume goes on from there"
            ) from None
        self._held.clear()

    def refuse_rest(self) -> None:
        if self._old is not None:
            raise RunError(f"{self._path}:{self._number + 1}: more lines than the run has")

    def close(self) -> None:
        if self._old is not None:
            self._old.close()
        if self._fd is not None:
            os.close(self._fd)

    def _stop_comparing(self) -> None:
        assert self._old is not None
        self._old.close()
        self._old = None


def refuse_other(folder: Path, there: Header, here: Header) -> None:
    """A run goes on only as what it was begun as."""
    if there.steps > here.steps:
        raise RunError(
            f"{folder} holds a run of {there.steps} steps, which is not cut to {here.steps}: "
            "ask for as many or more, or name another folder"
        )
    refuse_difference(folder, "run", _comparable(there), _comparable(here))


def refuse_difference(
    folder: Path, what: str, there: Mapping[str, Any], here: Mapping[str, Any]
) -> None:
    """RunError that names the first key in which two JSON objects differ, and both values."""
    found = first_difference(there, here)
    if found is not None:
        key, begun, asked = found
        raise RunError(
            f"{folder} holds another {what}: {key} is {begun} there and {asked} here; name another "
            "folder"
        )


def first_difference(
    one: Mapping[str, Any], other: Mapping[str, Any]
) -> tuple[str, str, str] | None:
    """The first key, dotted, in which two JSON objects differ, and both values, as shown."""
    ours, theirs = dict(_leaves(one)), dict(_leaves(other))
    for key in {**ours, **theirs}:
        if ours.get(key) != theirs.get(key):
            return key, _shown(ours, key), _shown(theirs, key)
    return None


def _shown(values: Mapping[str, Any], key: str) -> str:
    return repr(values[key]) if key in values else "not set"


def _comparable(header: Header) -> dict[str, Any]:
    """As read from JSON; the steps may grow, and the header's own seed and steps count.

    Assumptions are words, and what was set beside the scenario's file is a part of the scenario.
    """
    row: dict[str, Any] = json.loads(json.dumps(asdict(header)))
    no_settings = ("seed", "steps", "assumptions")
    scenario = {k: v for k, v in row["scenario"].items() if k not in no_settings}
    return {**row, "scenario": scenario, "steps": None, "sets": None}


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else key)
    else:
        yield path, value

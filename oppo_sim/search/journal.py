"""Units that are done, a line of JSON each, which outlive the process that writes them."""

from __future__ import annotations

import json
import os
from array import array
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from oppo_sim.runs import RunError
from oppo_sim.search.problem import Kind
from oppo_sim.search.result import Seeds
from oppo_sim.search.units import Found, is_found

KINDS: tuple[Kind, ...] = ("point", "baseline")
ABSENT = -1


class Journal:
    """Appended to line by line; what it holds stays on disk, and only its places in memory.

    A last line that was cut off is cut away, and one that is damaged is not counted: its unit runs
    again. So does one whose worker died, which may have been the fault of the moment. RunError
    where the file cannot be read or written.
    """

    def __init__(self, file: Path, points: int, seeds: Seeds) -> None:
        self._file = file
        self._points = points
        self._seeds = seeds
        self._width = max(seeds.least, seeds.most)
        self._at = array("q", [ABSENT]) * (len(KINDS) * points * self._width)
        try:
            self._out = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            self._lock()
            self._end = self._index()
            os.truncate(self._out, self._end)
            self._in = file.open("rb")
        except OSError as error:
            raise self._unusable(error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._in.close()
        os.close(self._out)

    def __len__(self) -> int:
        """How many units it holds."""
        return len(self._at) - self._at.count(ABSENT)

    def has(self, kind: Kind, place: int, seed: int) -> bool:
        return self._at[self._slot(kind, place, seed)] != ABSENT

    def read(self, kind: Kind, place: int, seed: int) -> Found:
        """What a unit has come to; KeyError for one that it has not."""
        at = self._at[self._slot(kind, place, seed)]
        if at == ABSENT:
            raise KeyError((kind, place, seed))
        self._in.seek(at)
        found: Found = json.loads(self._in.readline())["found"]
        return found

    def write(self, kind: Kind, place: int, seed: int, found: Found) -> None:
        """At once, so that a killed process loses nothing that is done."""
        row = {"unit": kind, "id": place, "seed": seed, "found": found}
        line = json.dumps(row, allow_nan=False).encode() + b"\n"
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(self._out, rest) :]
        except OSError as error:
            raise self._unusable(error) from None
        self._at[self._slot(kind, place, seed)] = self._end
        self._end += len(line)

    def _lock(self) -> None:
        """Until this process ends, however it does: another's lines would shift the places."""
        try:
            import fcntl
        except ImportError:  # Windows
            return
        try:
            fcntl.flock(self._out, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(
                f"{self._file.parent}: another process is writing to it: wait for its end, or "
                "name another folder"
            ) from None
        except OSError:
            pass  # a file system without locks

    def _index(self) -> int:
        """Note where each unit is; the end of the last whole line."""
        end = 0
        with self._file.open("rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                slot = self._slot_of(line)
                if slot is not None:
                    self._at[slot] = end
                end += len(line)
        return end

    def _slot_of(self, line: bytes) -> int | None:
        try:
            row: dict[str, Any] = json.loads(line)
            kind, place, seed = row["unit"], row["id"], row["seed"]
            if not is_found(row["found"]) or type(place) is not int or type(seed) is not int:
                return None
            if (
                kind in KINDS
                and 0 <= place < self._points
                and 0 <= self._within(seed) < self._width
            ):
                return self._slot(kind, place, seed)
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
        return None

    def _slot(self, kind: Kind, place: int, seed: int) -> int:
        return (KINDS.index(kind) * self._points + place) * self._width + self._within(seed)

    def _within(self, seed: int) -> int:
        return seed - self._seeds.first

    def _unusable(self, error: OSError) -> RunError:
        return RunError(
            f"cannot write {self._file}: {error.strerror}; what is written stays, "
            "--resume goes on from there"
        )

"""Writing the folder of a run that is not made again: lines are appended, and cut on resuming."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from oppo_sim.records import Span, StepRecord, to_row
from oppo_sim.runs.folder import (
    SPANS,
    STEPS,
    UPDATES,
    Header,
    RunError,
    claim_folder,
    line_of,
    open_lines,
    read_header,
    write_header,
    write_lines,
)
from oppo_sim.runs.writer import refuse_other


class RunJournal:
    """Appends to a run folder, each line whole, spans no later than the step in which they ended.

    `keep_steps`: how many steps of the folder a resumed run begins after; what was written later is
    cut off, for it will happen anew. None: a new run, for which the folder must be empty.
    Raises RunError.
    """

    def __init__(self, path: str | Path, header: Header, *, keep_steps: int | None = None) -> None:
        self.folder = claim_folder(path, resume=keep_steps is not None)
        self._held: dict[str, list[bytes]] = {name: [] for name in (SPANS, UPDATES, STEPS)}
        if keep_steps is not None:
            refuse_other(self.folder, read_header(self.folder), header)
            for name in self._held:
                kept = _cut(self.folder / name, keep_steps)
                if name == STEPS and kept < keep_steps:
                    raise RunError(
                        f"{self.folder / name}: has {kept} of the {keep_steps} steps before the "
                        "last checkpoint: delete the checkpoints after those"
                    )
        write_header(self.folder, header)
        try:
            self._files = {name: open_lines(self.folder / name) for name in self._held}
        except OSError as error:
            raise RunError(f"cannot write to {self.folder}: {error.strerror}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        for fd in self._files.values():
            os.close(fd)

    def span(self, span: Span) -> None:
        self._held[SPANS].append(line_of(to_row(span)))

    def update(self, step: int, stats: Mapping[str, float]) -> None:
        """What the update of a step says of itself: loss, KL and the like."""
        self._held[UPDATES].append(line_of({"step": step, **stats}))

    def step(self, record: StepRecord) -> None:
        """The step's line, after all that belongs to it."""
        self._held[STEPS].append(line_of(to_row(record)))
        for name, lines in self._held.items():
            try:
                write_lines(self._files[name], lines)
            except OSError as error:
                raise RunError(
                    f"cannot write {self.folder / name}: {error.strerror}; "
                    "--resume goes on from the last checkpoint"
                ) from None
            lines.clear()


def _cut(file: Path, steps: int) -> int:
    """Keep the lines of the first steps; `-> ` how many."""
    part = file.with_name(f".{file.name}.part")
    kept = 0
    try:
        if not file.exists():
            return 0
        with file.open("rb") as old, part.open("wb") as new:
            for line in old:
                if not line.endswith(b"\n") or json.loads(line)["step"] >= steps:
                    continue
                new.write(line)
                kept += 1
            new.flush()
            os.fsync(new.fileno())
        part.replace(file)
        return kept
    except OSError as error:
        raise RunError(f"cannot write {file}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{file}:{kept + 1}: damaged ({error})") from None
    finally:
        part.unlink(missing_ok=True)

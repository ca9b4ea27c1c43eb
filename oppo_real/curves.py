"""TensorBoard's event files, written as the steps end.

torch's SummaryWriter writes on a thread of its own, which a full disk ends with a traceback and
without a word to the run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from oppo_sim.runs import RunError


class Curves:
    """One event file of a folder; `purge_step`: what others in it hold from there on is void."""

    def __init__(self, folder: Path, purge_step: int | None = None) -> None:
        self._path = folder / f"events.out.tfevents.{time.time_ns()}.{os.getpid()}"
        try:
            folder.mkdir(exist_ok=True)
            self._file = self._path.open("wb")
        except OSError as error:
            raise RunError(f"cannot write {self._path}: {error.strerror}") from None
        self._records = RecordWriter(self._file)
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))
        if purge_step is not None:
            start = SessionLog(status=SessionLog.START)
            self._write(Event(wall_time=time.time(), step=purge_step, session_log=start))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        try:
            self._file.close()
        except OSError:
            if kind is None:
                raise

    def step(self, step: int, numbers: Mapping[str, float]) -> None:
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in numbers.items()]
        self._write(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))

    def _write(self, event: Event) -> None:
        try:
            self._records.write(event.SerializeToString())
            self._records.flush()
        except OSError as error:
            raise RunError(
                f"cannot write {self._path}: {error.strerror}; --resume goes on from the last "
                "checkpoint"
            ) from None

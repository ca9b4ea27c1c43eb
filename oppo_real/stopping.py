"""Ctrl-C while a run trains: the first ends it after the step in progress, the second at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SHOW_CURSOR = b"\x1b[?25h"


class Stopping:
    """While it is open, SIGINT and SIGTERM are noted; one more ends the process as a kill would."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[signal.Signals, Any] = {}

    @property
    def exit_code(self) -> int:
        """The shell's for a process that a signal ended: 130, 143."""
        return 128 + (self.signal or 0)

    @property
    def is_wanted(self) -> bool:
        return self.signal is not None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                    self._before[number] = signal.signal(number, self._noted)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _noted(self, number: int, _: FrameType | None) -> None:
        """It may come within a print: what is said goes past Python's buffers."""
        if self.signal is not None:
            if sys.stderr.isatty():
                os.write(2, SHOW_CURSOR)  # a live table hides it
            os.write(2, b"oppo: ended at once; --resume goes on from the last checkpoint\n")
            os._exit(128 + number)
        self.signal = number
        os.write(2, b"stops after this step, with a checkpoint; once more ends at once\n")

"""Warnings as one line each on stderr, and none of them twice."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

SHOWN = "ExtrapolationWarning"  # by its name: importing the costs here would slow every command


@contextmanager
def in_lines() -> Iterator[None]:
    """While it is open, what a cost model warns of reads `oppo: warning: ...`."""
    seen: set[str] = set()
    with warnings.catch_warnings():
        warnings.filterwarnings("always", category=UserWarning, module="oppo_sim")
        plain = warnings.showwarning

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            text = " ".join(str(message).split())
            if category.__name__ != SHOWN:
                plain(message, category, filename, lineno, file, line)
            elif text not in seen:
                seen.add(text)
                print(f"oppo: warning: {text}", file=sys.stderr)

        warnings.showwarning = show
        yield

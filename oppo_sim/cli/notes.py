"""Warnings as one line each on stderr, and none of them twice."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TextIO


@contextmanager
def in_lines() -> Iterator[None]:
    """While it is open, what is warned of reads `oppo: warning: ...`."""
    seen: set[str] = set()

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        text = " ".join(str(message).split())
        if text not in seen:
            seen.add(text)
            print(f"oppo: warning: {text}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.filterwarnings("always", category=UserWarning, module="oppo_sim")
        warnings.showwarning = show
        yield


def say(texts: Iterable[str]) -> None:
    """Each as a warning."""
    for text in texts:
        warnings.warn(text, stacklevel=1)

"""The command line `oppo`; what a command needs is imported when it runs, so that help is quick."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    try:  # around the imports too: Ctrl-C may come at any time
        from oppo_sim.cli.app import main as run

        return run(arguments)
    except KeyboardInterrupt:
        return interrupted()


class Interrupted(Exception):
    """By Ctrl-C, of which a command has more to say."""


def interrupted(
    said: str = "interrupted; with --out, --resume goes on from what is written",
) -> int:
    print(f"oppo: {said}", file=sys.stderr)
    return INTERRUPTED

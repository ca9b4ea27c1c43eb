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


def interrupted() -> int:
    print("oppo: interrupted; with --out, --resume goes on from what is written", file=sys.stderr)
    return INTERRUPTED

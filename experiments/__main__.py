"""`python -m experiments [NAME ...]`: draw figures, each with its numbers and a paragraph."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from experiments.registry import EXPERIMENTS

OUT = Path("reports/experiments")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(EXPERIMENTS)}")
    parser.add_argument("--out", type=Path, default=OUT, help=f"a folder (default: {OUT})")
    parser.add_argument("--quick", action="store_true", help="few steps, for a look")
    parser.add_argument("--force", action="store_true", help="draw finished figures again, too")
    asked = parser.parse_args(arguments)
    unknown = [name for name in asked.names if name not in EXPERIMENTS]
    if unknown:
        parser.error(f"no experiment is called {unknown[0]!r}; known: {', '.join(EXPERIMENTS)}")
    try:  # before minutes are spent
        asked.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out {asked.out}: {error.strerror}; name a folder that can be written")
    for name in asked.names or _possible():
        experiment, picture = EXPERIMENTS[name], asked.out / f"{name}.png"
        if not asked.force and experiment.is_done(asked.out, asked.quick):
            print(f"{name}: is there, {picture}")
            continue
        print(f"{name}: {experiment.question}", file=sys.stderr, flush=True)
        began_s = time.monotonic()
        experiment.write(asked.out, asked.quick)
        print(f"{name}: {picture}, {time.monotonic() - began_s:.0f} s")
    return 0


def _possible() -> Iterator[str]:
    """All, but what is measured only where there is torch."""
    for name, experiment in EXPERIMENTS.items():
        if experiment.role == "simulated" or find_spec("torch"):
            yield name
        else:
            print(f"{name}: left out, it needs pip install 'oppo-testbed[real]'", file=sys.stderr)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("experiments: interrupted; what is finished stays, and is not drawn again")

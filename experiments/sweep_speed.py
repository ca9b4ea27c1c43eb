"""How long the sweep of 64,000 PPO steps takes, and what a second process gains it.

    python -m experiments.sweep_speed             # some four minutes on two idle cores
    python -m experiments.sweep_speed --steps 20  # to try it out

A second core gives a pure Python loop less than twice the speed on most machines (shared caches,
clock, other users), so a loop is timed in the same minutes: alone, and with a copy of itself.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from loky import get_reusable_executor

from oppo_sim.cli import main as oppo

FILE = Path(__file__).parent / "configs" / "sweep-64000.toml"
LOOP = "sum(i * i % 7 for i in range({n}))"
LOOPS = 25_000_000  # some two seconds


class Took(NamedTuple):
    wall_s: float
    cpu_s: float  # of this process and its children


def loops(copies: int) -> float:
    """Wall seconds of so many copies at once."""
    began = time.monotonic()
    code = [sys.executable, "-c", LOOP.format(n=LOOPS)]
    for process in [subprocess.Popen(code) for _ in range(copies)]:
        process.wait()
    return time.monotonic() - began


def sweep(jobs: int, steps: int) -> Took:
    """The whole of it, from reading its file to its table; workers are started anew."""
    with TemporaryDirectory() as out:
        began, cpu = time.monotonic(), _cpu_s()
        silent = os.open(os.devnull, os.O_WRONLY)
        stdout = os.dup(1)
        os.dup2(silent, 1)
        try:
            code = oppo(
                ["sweep", str(FILE), "--out", out, "--jobs", str(jobs), "--steps", str(steps)]
            )
            get_reusable_executor(max_workers=jobs).shutdown(wait=True)
        finally:
            os.dup2(stdout, 1)
        assert code == 0
        return Took(time.monotonic() - began, _cpu_s() - cpu)


def _cpu_s() -> float:
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the sweep of 64,000 steps.")
    parser.add_argument("--steps", type=int, default=200, help="of each of the 320 runs")
    steps = parser.parse_args().steps
    pure = [2 * loops(1) / loops(2)]
    two = sweep(2, steps)
    pure.append(2 * loops(1) / loops(2))
    one = sweep(1, steps)
    pure.append(2 * loops(1) / loops(2))
    loop = sorted(pure)[1]
    gained = one.wall_s / two.wall_s
    found = {
        "steps": 320 * steps,
        "two": two._asdict(),
        "one": one._asdict(),
        "steps_per_s": 320 * steps / two.wall_s,
        "sweep_gains": gained,
        "loop_gains": loop,
        "loop_gains_each": pure,
        "ratio": gained / loop,
        "cpu_two_over_one": two.cpu_s / one.cpu_s,
    }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()

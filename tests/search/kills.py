"""A sweep whose driver and workers are killed at random; as a script, as often as you like.

python -m tests.search.kills --times 20 --seed 1
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil

from tests.search.conftest import tables

SWEEP = """
scenario = "tiny"
steps = 25
seeds = 2

[axes]
"schedule.chunk" = { low = 10, high = 100, count = 10 }
"schedule.overcommit" = [0, 2, 4]
"schedule.pool" = [8, 40]
"schedule.batch" = [8, 12]
"""
UNITS = 244  # 120 points and two baselines, two seeds; a pool below the batch fails
WAIT_S = 100.0


def command(file: Path, out: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "oppo_sim.cli", "sweep", str(file), "--out", str(out)),
        *("--jobs", "2", "--resume"),
    ]


def undisturbed(file: Path, out: Path) -> None:
    done = subprocess.run(command(file, out), capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr  # a quarter of the points fails


def disturbed(file: Path, out: Path, times: int, dice: random.Random) -> Counter[str]:
    """Kill -9 driver or worker, `times` in all, resume until the sweep is done; whom it hit."""
    hit: Counter[str] = Counter()
    process: subprocess.Popen[bytes] | None = None
    for _ in range(times):
        if process is None or process.poll() is not None:
            process = _started(file, out)
        _wait(process, out, _lines(out) + dice.randrange(UNITS // times))
        workers = _workers(process)
        if workers and dice.random() < 0.5:
            dice.choice(workers).kill()
            hit["worker"] += 1
        else:
            process.kill()
            process.wait()
            hit["driver"] += 1
    if process is not None and process.poll() is None:
        process.wait()
    undisturbed(file, out)
    return hit


def _started(file: Path, out: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command(file, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def _wait(process: subprocess.Popen[bytes], out: Path, lines: int) -> None:
    """Until so many units are done, or the sweep is."""
    until = time.monotonic() + WAIT_S
    while _lines(out) < lines and process.poll() is None:
        assert time.monotonic() < until
        time.sleep(0.002)


def _lines(out: Path) -> int:
    journal = out / "journal.jsonl"
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def _workers(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    try:
        children = psutil.Process(process.pid).children(recursive=True)
        return [child for child in children if "--process-name" in child.cmdline()]
    except psutil.Error:
        return []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        file = Path(made) / "sweep.toml"
        file.write_text(SWEEP)
        undisturbed(file, Path(made) / "undisturbed")
        hit = disturbed(file, Path(made) / "disturbed", asked.times, random.Random(asked.seed))
        same = tables(Path(made) / "disturbed") == tables(Path(made) / "undisturbed")
    print(f"killed {dict(hit)}; the table is {'the same' if same else 'ANOTHER'}")
    sys.exit(not same)


if __name__ == "__main__":
    main()

"""Kills a run again and again, lets it go on, and tells how; a program of its own, for tests.

`python -m tests.real.kills CONFIG OUT KILLS SEED OPTION...` trains to the end through that many
`kill -9`, half of them at any moment, half while a checkpoint is being written, and prints how
many hit what. What every update was given is in OUT.jsonl, a line each.

Runs are forked from this process, which has imported torch and computed nothing: what takes
seconds is done once.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import oppo_real.train  # noqa: F401  what takes long to import, before the forks
from oppo_real.machine.store import Store
from oppo_real.ppo.batch import Batch
from oppo_sim.cli import main

PATIENCE_S = 120.0


def write_down_batches(file: Path) -> None:
    """What is trained on, as the store gives it."""
    batch = Store.batch

    def noted(store: Store, rollouts: Sequence[int]) -> Batch:
        made = batch(store, rollouts)
        line = {
            "rollouts": made.rollouts,
            "prompts": made.prompts,
            "responses": made.responses,
            "rewards": made.rewards,
        }
        with file.open("a") as lines:
            lines.write(json.dumps(line) + "\n")
        return made

    Store.batch = noted  # type: ignore[method-assign]


def begin(arguments: list[str]) -> int:
    pid = os.fork()
    if pid == 0:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os._exit(main(arguments))
    return pid


def ended(pid: int) -> int | None:
    done, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if done else None


def kill_once(pid: int, out: Path, chance: random.Random, *, writing: bool) -> str | None:
    """What it was doing; None: it had ended before."""
    began, wrote = time.monotonic(), stamp(out / "run.json")
    while stamp(out / "run.json") == wrote:  # it is written anew when training begins
        if ended(pid) is not None:
            return None
        assert time.monotonic() - began < PATIENCE_S
        time.sleep(0.001)
    until = time.monotonic() + chance.uniform(0, 0.02 if writing else 1.0)
    seen = not writing
    while not seen or time.monotonic() < until:
        if ended(pid) is not None:
            return None
        if not seen and partial(out):
            seen, until = True, time.monotonic() + chance.uniform(0, 0.02)
        time.sleep(0.0002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "checkpoint" if partial(out) else "step"


def stamp(file: Path) -> int:
    return file.stat().st_mtime_ns if file.exists() else 0


def partial(out: Path) -> bool:
    return any((out / "checkpoints").glob(".*.part"))


def run(config: str, out: Path, kills: int, seed: int, options: list[str]) -> dict[str, int]:
    chance = random.Random(seed)
    arguments = ["train", config, "--out", str(out), "--resume", *options]
    hit = {"step": 0, "checkpoint": 0}
    for number in range(kills):
        what = kill_once(begin(arguments), out, chance, writing=number % 2 == 1)
        if what is None:
            raise SystemExit(f"the run was over after {number} kills: give it more steps")
        hit[what] += 1
    pid = begin(arguments)
    _, status = os.waitpid(pid, 0)
    if code := os.waitstatus_to_exitcode(status):
        raise SystemExit(f"it ended with {code}")
    return hit


if __name__ == "__main__":
    folder = Path(sys.argv[2])
    write_down_batches(folder.with_suffix(".jsonl"))
    told = run(sys.argv[1], folder, int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:])
    print(json.dumps(told))

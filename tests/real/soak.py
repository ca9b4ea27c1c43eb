"""Trains many steps and tells what the process holds meanwhile; a program of its own, for tests.

`python -m tests.real.soak FOLDER WORKERS STEPS` prints a JSON object.
"""

from __future__ import annotations

import gc
import json
import os
import re
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import torch

from oppo_real.train import train
from oppo_sim.analysis.documents import schedule_document
from oppo_sim.config import load_scenario
from oppo_sim.runs import Header
from tests.real.short_runs import scenario


def soak(folder: Path, workers: str, steps: int) -> dict[str, Any]:
    """What is held each 50 steps, and what is left when the run is over."""
    before = threads(), shared_memory()
    loaded = load_scenario(scenario(folder), {"real.workers": workers})
    schedule = loaded.schedule("oppo")
    header = Header(
        scenario=loaded.document(),
        schedule=schedule_document(schedule),
        seed=0,
        steps=steps,
        spans=True,
        role="measured",
    )
    held = []
    for step in train(loaded, schedule, header, folder / "run"):
        if (step.record.step + 1) % 50 == 0:
            held.append(holds())
            last = sorted((folder / "run" / "checkpoints").glob("step-*"))[-1]
            held[-1]["state_bytes"] = (last / "state.json").stat().st_size
    after = threads(), shared_memory()
    left = [sorted(now - then) for now, then in zip(after, before, strict=True)]
    return {"held": held, "threads": left[0], "shared_memory": left[1], "processes": processes()}


def holds() -> dict[str, int]:
    gc.collect()
    me = psutil.Process()
    objects = gc.get_objects()
    return {
        "rss_bytes": me.memory_info().rss,
        "child_rss_bytes": sum(child.memory_info().rss for child in me.children(recursive=True)),
        "objects": len(objects),
        "tensors": sum(issubclass(type(thing), torch.Tensor) for thing in objects),
        "files": me.num_fds(),
        "threads": threading.active_count(),
    }


def threads() -> set[str]:
    return {f"{thread.name} {thread.ident}" for thread in threading.enumerate()}


def shared_memory() -> set[str]:
    """Without what joblib's pools have there, which tests beside this one may use."""
    return {name for name in os.listdir("/dev/shm") if not re.search("joblib|loky", name)}


def processes() -> list[str]:
    """Without the tracker that Python's own multiprocessing keeps until its end."""
    found = [" ".join(c.cmdline()) for c in psutil.Process().children(recursive=True)]
    return [command for command in found if "resource_tracker" not in command]


if __name__ == "__main__":
    print(json.dumps(soak(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))))

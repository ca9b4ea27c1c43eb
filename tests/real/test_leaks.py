"""A long run holds no more than a short one, and nothing outlives a run, however it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.real.short_runs import scenario
from tests.real.soak import shared_memory

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
WORKERS = ("inline", "threads", "processes")


@pytest.mark.parametrize("workers", WORKERS)
def test_memory_is_flat_over_200_steps(workers: str, tmp_path: Path) -> None:
    """From step 50 to step 200: objects, tensors, files, threads, bytes."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.real.soak", str(tmp_path), workers, "200"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    first, *_, last = told.pop("held")
    assert told == {"threads": [], "shared_memory": [], "processes": []}
    # What is carried differs from step to step: nine rollouts of at most 24 tokens.
    assert last["objects"] - first["objects"] < 500
    assert last["tensors"] - first["tensors"] < 20
    assert last["state_bytes"] - first["state_bytes"] < 5_000
    assert last["files"] == first["files"]
    assert last["threads"] == first["threads"]
    for memory in ("rss_bytes", "child_rss_bytes"):
        assert last[memory] - first[memory] < 8 * 2**20, memory


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("how", ["error", "interrupt", "kill"])
def test_nothing_outlives_a_run(how: str, workers: str, tmp_path: Path) -> None:
    config, segments = scenario(tmp_path), shared_memory()
    sets = [f"real.workers={workers}"]
    if how == "error":
        sets.append("real.reward=tests.real.rules:raises")
    options = [part for one in sets for part in ("--set", one)]
    command = [sys.executable, "-c", "import sys; from oppo_sim.cli import main; sys.exit(main())"]
    with subprocess.Popen(
        [
            *command,
            "train",
            str(config),
            "--out",
            str(tmp_path / "run"),
            "--steps",
            "500",
            *options,
        ],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        children: list[psutil.Process] = []
        said = ""
        for line in process.stderr:
            said = line
            if "step 2/" in line:
                children = psutil.Process(process.pid).children(recursive=True)
                process.send_signal(signal.SIGKILL if how == "kill" else signal.SIGINT)
                break
        said = process.stderr.read() or said
    assert process.returncode == {"error": 2, "interrupt": 130, "kill": -signal.SIGKILL}[how]
    if how != "error":
        assert bool(children) == (workers == "processes")
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not alive
    assert shared_memory() <= segments
    if how != "kill":
        assert "Traceback" not in said
        assert said.splitlines()[-1].startswith("oppo: ")

"""Ctrl-C and SIGTERM: the step in progress ends, a checkpoint is written, the run can go on."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from oppo_sim.runs import read_run
from tests.real.short_runs import REPEATABLE, assert_same, scenario, train, weights

RARELY = ("--set", "real.save_steps=100", "--steps", "5")


def signalled(
    config: Path, out: Path, *options: str, count: int = 1, number: int = signal.SIGINT
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.real.signalled", str(count), str(int(number))]
    return subprocess.run(
        [*command, str(config), "--out", str(out), *options],
        capture_output=True,
        text=True,
        check=False,
    )


def checkpoints(out: Path) -> list[str]:
    return sorted(folder.name for folder in (out / "checkpoints").glob("*"))


@pytest.mark.parametrize("schedule", ["trl", "oppo"])
def test_an_interrupted_run_goes_on_as_if_it_had_not_been(schedule: str, tmp_path: Path) -> None:
    """The signal comes in the second of five steps, which are a hundred from any checkpoint."""
    config, options = scenario(tmp_path), ["--schedule", schedule, *REPEATABLE, *RARELY]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    stopped = signalled(config, parts, *options)
    assert stopped.returncode == 130, stopped.stderr
    assert not stopped.stdout
    assert "stops after this step" in stopped.stderr
    assert "stopped after step 2 of 5; its checkpoint is written" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    assert checkpoints(parts) == ["step-00000002"]
    assert not (parts / "model").exists()
    assert train(config, whole, *options) == 0
    assert train(config, parts, *options, "--resume") == 0
    assert_same(weights(whole), weights(parts))
    assert [r.rewards for r in read_run(whole).steps] == [r.rewards for r in read_run(parts).steps]


@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_terminated_on_lanes_of_their_own(workers: str, tmp_path: Path) -> None:
    """As a batch system ends a job."""
    config, out = scenario(tmp_path), tmp_path / "run"
    options = ["--set", f"real.workers={workers}", *RARELY]
    stopped = signalled(config, out, *options, number=signal.SIGTERM)
    assert stopped.returncode == 143, stopped.stderr
    assert "its checkpoint is written" in stopped.stderr
    (last,) = checkpoints(out)
    assert len(read_run(out).steps) == int(last.removeprefix("step-"))
    assert train(config, out, *options, "--resume") == 0
    assert read_run(out).complete


def test_a_second_interrupt_ends_at_once(tmp_path: Path) -> None:
    config, out = scenario(tmp_path), tmp_path / "run"
    options = ["--schedule", "trl", *REPEATABLE, *RARELY]
    stopped = signalled(config, out, *options, count=2)
    assert stopped.returncode == 130
    assert "ended at once" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    assert not checkpoints(out)
    assert len(read_run(out).steps) == 1

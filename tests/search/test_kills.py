"""Kill -9 of the driver and of workers at random: the table is that of an undisturbed sweep."""

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from oppo_sim.analysis.pool import processes
from oppo_sim.search.problem import Problem, Unit
from oppo_sim.search.workers import DIED, TRIES, Workers
from tests.search import kills
from tests.search.conftest import tables


@pytest.mark.slow
def test_the_table_is_the_same_however_often_the_sweep_was_killed(tmp_path: Path) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(kills.SWEEP)
    kills.undisturbed(file, tmp_path / "undisturbed")
    assert (tmp_path / "undisturbed/journal.jsonl").read_bytes().count(b"\n") == kills.UNITS
    hit = kills.disturbed(file, tmp_path / "disturbed", 3, random.Random())
    assert hit.total() == 3
    assert tables(tmp_path / "disturbed") == tables(tmp_path / "undisturbed")


def deadly(problem: Problem, units: list[Unit]) -> tuple[list[dict[str, object]], float]:
    """Ends its process at point 3, and counts how often."""
    for unit in units:
        if unit.id == 3:
            with (problem.folder / "deaths").open("a") as deaths:
                deaths.write("x")
            os.kill(os.getpid(), signal.SIGKILL)
    return [{"step_s": float(unit.id)} for unit in units], 0.0


def test_a_unit_that_kills_its_worker_is_given_up_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oppo_sim.search.workers._timed", deadly)
    workers = Workers(Problem(document={}, file="", folder=tmp_path), processes(2))
    found = {unit.id: one for unit, one in workers.run(Unit("point", i, 0, {}) for i in range(30))}
    assert found.pop(3) == {"error": DIED, "died": True}
    assert found == {i: {"step_s": float(i)} for i in range(30) if i != 3}
    assert (tmp_path / "deaths").read_text() == "x" * TRIES


def test_an_interrupt_leaves_what_is_done_and_no_traceback(tmp_path: Path) -> None:
    file, out = tmp_path / "sweep.toml", tmp_path / "out"
    file.write_text(kills.SWEEP)
    process = subprocess.Popen(
        kills.command(file, out), stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    until = time.monotonic() + kills.WAIT_S
    while kills._lines(out) < 3:
        assert time.monotonic() < until
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=kills.WAIT_S)
    assert process.returncode in (130, -signal.SIGINT)
    assert "Traceback" not in said
    assert "--resume goes on" in said

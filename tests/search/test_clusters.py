"""The same table from a Ray or a Dask cluster of two processes, also where a worker dies."""

import importlib.util
import json
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest

from oppo_sim.search.clusters import _backend, connected
from oppo_sim.search.problem import Problem, Unit
from oppo_sim.search.workers import DIED, Workers
from tests.cli.conftest import Oppo
from tests.search.conftest import tables

CLUSTERS = [
    pytest.param(
        name,
        marks=[
            pytest.mark.slow,
            pytest.mark.timeout(300),
            pytest.mark.skipif(
                importlib.util.find_spec(module) is None, reason=f"{module} is not installed"
            ),
        ],
    )
    for name, module in (("ray", "ray"), ("dask", "distributed"))
]


@pytest.mark.parametrize("backend", CLUSTERS)
def test_two_processes_of_a_cluster_write_the_same_table(
    oppo: Oppo, tiny: Path, backend: str
) -> None:
    one, two = tiny.parent / "one", tiny.parent / "two"
    assert oppo("sweep", tiny, "--out", one, "--jobs", 1).code == 0
    done = oppo("sweep", tiny, "--out", two, "--jobs", 2, "--backend", backend, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["runs"] == 14
    assert tables(two) == tables(one)


def found_by(backend: str, folder: Path, units: int) -> dict[int, Any]:
    """What two processes make of so many units, by unit."""
    with connected(backend, None, 2) as connection:
        workers = Workers(Problem(document={}, file="", folder=folder), connection)
        return {
            unit.id: f for unit, f in workers.run(Unit("point", i, 0, {}) for i in range(units))
        }


def deadly(problem: Problem, units: list[Unit]) -> tuple[list[dict[str, Any]], float]:
    """Where it runs; the process ends at point 3."""
    if any(unit.id == 3 for unit in units):
        os.kill(os.getpid(), signal.SIGKILL)
    return [{"step_s": float(unit.id), "pid": os.getpid()} for unit in units], 0.2


@pytest.mark.parametrize("backend", CLUSTERS)
def test_a_unit_that_kills_workers_of_a_cluster_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.setattr("oppo_sim.search.workers._timed", deadly)
    found = found_by(backend, tmp_path, 20)
    assert found.pop(3) == {"error": DIED, "died": True}
    assert {place: one["step_s"] for place, one in found.items()} == {
        place: float(place) for place in range(20) if place != 3
    }
    assert os.getpid() not in {one["pid"] for one in found.values()}


def deadly_once(problem: Problem, units: list[Unit]) -> tuple[list[dict[str, Any]], float]:
    """The process of the very first unit ends the first time."""
    trace = problem.folder / "died"
    if any(unit.id == 0 for unit in units) and not trace.exists():
        trace.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return [{"step_s": float(unit.id)} for unit in units], 0.2


@pytest.mark.parametrize("backend", CLUSTERS)
def test_a_unit_whose_worker_died_once_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.setattr("oppo_sim.search.workers._timed", deadly_once)
    assert found_by(backend, tmp_path, 6) == {place: {"step_s": float(place)} for place in range(6)}


@pytest.mark.slow
def test_a_cluster_that_has_gone_is_one_line() -> None:
    pytest.importorskip("distributed")
    with (
        pytest.raises(RuntimeError, match="the dask cluster has gone; with --out, --resume goes"),
        connected("dask", None, 1),
    ):
        raise CancelledError  # as futures do whose scheduler has ended


def test_an_extra_that_is_missing_is_named(
    refused: Callable[..., str], tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ray", "distributed"):
        monkeypatch.setitem(sys.modules, name, None)
    assert "--backend ray needs ray, which is not installed: pip" in refused(
        "sweep", tiny, "--backend", "ray"
    )
    assert "--backend dask needs distributed" in refused("sweep", tiny, "--backend", "dask")


def test_an_address_where_nobody_listens(refused: Callable[..., str], tiny: Path) -> None:
    pytest.importorskip("distributed")
    for address in ("tcp://127.0.0.1:1", "127.0.0.1:no"):
        said = refused("sweep", tiny, "--backend", "dask", "--address", address)
        assert f"--address {address}: Dask does not answer" in said


def test_a_cluster_without_a_worker(
    refused: Callable[..., str], tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr("oppo_sim.search.clusters.STARTS_S", 0.1)
    with distributed.LocalCluster(n_workers=0, dashboard_address=None) as empty:
        address = empty.scheduler_address
        said = refused("sweep", tiny, "--backend", "dask", "--address", address)
    assert f"--address {address}: Dask has had no worker for 0.1 s: start one" in said


@pytest.mark.parametrize(
    ("asked", "cores", "jobs", "room"),
    [(None, 4, 4, 8), (4, 4, 4, 8), (3, 100, 3, 3), (1, 1, 1, 2)],
)
def test_no_more_tasks_are_handed_over_than_may_run_on_a_larger_cluster(
    asked: int | None, cores: int, jobs: int, room: int
) -> None:
    backend = _backend(asked, cores, print, ())  # type: ignore[arg-type]
    assert (backend.jobs, backend.room) == (jobs, room)


def test_an_address_needs_a_cluster(refused: Callable[..., str], tiny: Path) -> None:
    assert "--address auto: only --backend ray and dask have one" in refused(
        "sweep", tiny, "--address", "auto"
    )

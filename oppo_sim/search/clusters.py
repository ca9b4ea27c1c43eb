"""Workers on a Ray or Dask cluster, which both hand out futures."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, nullcontext
from typing import Any

from oppo_sim.analysis.parts import cores
from oppo_sim.analysis.pool import AHEAD, Backend, Submit, processes

LOCAL = "loky"
STARTS_S = 60.0  # within which a cluster has a worker
ANSWERS_S = 5.0  # within which a cluster accepts a connection


@contextmanager
def connected(name: str, address: str | None, jobs: int | None) -> Iterator[Backend | None]:
    """The backend of that name, while it is open; None: this process itself.

    `jobs` tasks at a time; None: one per core, here or of the cluster. `address`: of a cluster that
    runs; None starts one here, which ends with this process. ValueError for an extra that is not
    installed, and a cluster that does not answer.
    """
    if name == LOCAL:
        yield processes(jobs or cores())
        return
    jobs = jobs or (None if address else cores())
    try:
        with {"ray": _ray, "dask": _dask}[name](address, jobs) as backend:
            yield backend
    except ModuleNotFoundError as error:
        if error.name not in ("ray", "dask", "distributed"):
            raise
        raise ValueError(
            f"--backend {name} needs {error.name}, which is not installed: "
            f"pip install 'oppo-testbed[{name}]'"
        ) from None
    except CancelledError:
        raise RuntimeError(
            f"the {name} cluster has gone; with --out, --resume goes on from what is written"
        ) from None


@contextmanager
def _ray(address: str | None, jobs: int | None) -> Iterator[Backend]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    _refuse_silent("Ray", address)
    here = {} if address else {"num_cpus": jobs, "include_dashboard": False}
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL, **here)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ValueError(f"--address {address}: Ray does not answer: {error}") from None
    run = ray.remote(max_retries=0)(_call)  # another try is up to us
    deaths = (
        ray.exceptions.WorkerCrashedError,
        ray.exceptions.OutOfMemoryError,
        ray.exceptions.NodeDiedError,
        ray.exceptions.ObjectLostError,
    )
    try:
        free = int(ray.cluster_resources().get("CPU", 0))
        yield _backend(jobs, free, lambda *call: run.remote(*call).future(), deaths)
    except (ray.exceptions.LocalRayletDiedError, ray.exceptions.RaySystemError) as error:
        raise CancelledError from error
    finally:
        ray.shutdown()


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


@contextmanager
def _dask(address: str | None, jobs: int | None) -> Iterator[Backend]:
    import dask
    import distributed

    dask.config.set({"distributed.scheduler.allowed-failures": 0})  # another try is up to us
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    _refuse_silent("Dask", address)
    local = None
    if address is None:
        local = distributed.LocalCluster(
            n_workers=jobs,
            threads_per_worker=1,
            dashboard_address=":0",  # None would ask for a port that may be taken
            silence_logs=logging.CRITICAL,
        )
    try:
        client = distributed.Client(local or address)
    except (OSError, ValueError) as error:
        raise ValueError(f"--address {address}: Dask does not answer: {error}") from None
    try:
        submit = client.get_executor(pure=False).submit  # another try of a task is no repetition
        yield _backend(jobs, _threads(client, address), submit, (distributed.KilledWorker,))
    finally:
        client.close()
        if local is not None:
            local.close()


def _threads(client: Any, address: str | None) -> int:
    """Of the workers of Dask. ValueError where it has none, and gets none soon."""
    try:
        client.wait_for_workers(1, timeout=STARTS_S)
    except TimeoutError:
        raise ValueError(
            f"--address {address}: Dask has had no worker for {STARTS_S:g} s: start one"
        ) from None
    return sum(client.nthreads().values())


def _backend(
    jobs: int | None, free: int, submit: Submit, deaths: tuple[type[Exception], ...]
) -> Backend:
    """Tasks that are not wanted any more end with the connection. `free`: cores that there are."""
    jobs = jobs or max(1, free)
    room = AHEAD * jobs if jobs >= free else jobs  # what runs is not counted by a cluster
    return Backend(jobs, room, lambda _: nullcontext(submit), deaths)


def _refuse_silent(whose: str, address: str | None) -> None:
    """ValueError where nobody listens: Ray would try for ten minutes, and say so on every line."""
    host, colon, port = (address or "").rpartition("//")[2].rpartition(":")
    if not colon:
        return  # none, or "auto"
    try:
        socket.create_connection((host, int(port)), ANSWERS_S).close()
    except (OSError, ValueError, OverflowError) as error:
        raise ValueError(
            f"--address {address}: {whose} does not answer ({error}): is it started, and is this "
            "its host:port?"
        ) from None

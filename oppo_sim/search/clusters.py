"""Workers on a Ray or Dask cluster, through the backends that joblib has for them."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from oppo_sim.analysis.pool import Backend, on_this_machine

LOCAL = "loky"
RESTARTS_S = 120.0  # within which a cluster has a worker again, if all of them died
ANSWERS_S = 5.0  # within which a cluster accepts a connection


@contextmanager
def connected(name: str, address: str | None, jobs: int | None) -> Iterator[Backend]:
    """The backend of that name, while it is open.

    `address`: of a cluster that runs; None starts one of `jobs` processes here, which ends with
    this process. ValueError for an extra that is not installed, and a cluster that does not answer.
    """
    if name == LOCAL:
        yield on_this_machine()
        return
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


@contextmanager
def _ray(address: str | None, jobs: int | None) -> Iterator[Backend]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray
    from joblib import register_parallel_backend
    from ray.util.joblib.ray_backend import RayBackend

    class Streamed(RayBackend):  # type: ignore[misc]
        """Results as they come; only multiprocessing's own pool, its parent, cannot do that."""

        supports_return_generator = True

    register_parallel_backend("ray", Streamed)
    _refuse_silent("Ray", address)
    here = {} if address else {"num_cpus": jobs, "include_dashboard": False}
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL, **here)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ValueError(f"--address {address}: Ray does not answer: {error}") from None
    try:
        yield Backend("ray", {}, (ray.exceptions.RayError,))
    finally:
        ray.shutdown()


@contextmanager
def _dask(address: str | None, jobs: int | None) -> Iterator[Backend]:
    import dask
    import distributed
    from joblib import register_parallel_backend
    from joblib._dask import DaskDistributedBackend

    class Told(DaskDistributedBackend):  # type: ignore[misc]
        """joblib's own hangs where a task kills its workers: nobody is told that it failed.

        And where one worker is left it would run tasks in this process, which they might kill.
        """

        def __init__(self, **options: Any) -> None:
            super().__init__(wait_for_workers_timeout=RESTARTS_S, **options)

        def effective_n_jobs(self, n_jobs: int) -> int:
            return max(2, int(super().effective_n_jobs(n_jobs)))

        async def _collect(self) -> None:
            while self._continue:
                async for future, result in self.waiting_futures:
                    own, tell = self._results.pop(future), self._callbacks.pop(future)
                    if future.status == "error":
                        result = result[1]
                    own.set_result(result)
                    tell(result)
                await asyncio.sleep(0.01)

    register_parallel_backend("dask", Told)
    dask.config.set({"distributed.scheduler.allowed-failures": 0})  # another try is up to us
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    _refuse_silent("Dask", address)
    local = None
    if address is None:
        local = distributed.LocalCluster(
            n_workers=jobs,
            threads_per_worker=1,
            dashboard_address=None,
            silence_logs=logging.CRITICAL,
        )
    try:
        client = distributed.Client(local or address)
    except (OSError, ValueError) as error:
        raise ValueError(f"--address {address}: Dask does not answer: {error}") from None
    try:
        yield Backend("dask", {}, (distributed.KilledWorker,))
    finally:
        client.close()
        if local is not None:
            local.close()


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

"""A scorer in its own process: the same news, a clear obituary, nothing left behind."""

from __future__ import annotations

import os
import signal
from typing import Any

import psutil
import pytest

from oppo_real.machine.backend import Clock, TorchBackend
from oppo_real.machine.hosts import Threads
from oppo_real.machine.processes import ProcessScorer
from oppo_real.machine.store import Store
from oppo_sim.engine import EngineError, Limits, run
from oppo_sim.engine.contract import Entry, Score
from tests.engine.test_two_machines import small
from tests.real.fakes import Bench, FakeScorer, reward
from tests.real.test_backend import WORK, keeps_the_contract
from tests.simulator.lab import CAP, PROMPT_CAP, Run, room

pytestmark = pytest.mark.slow  # a process takes seconds to import torch


class ForkedBench(Bench):
    """As the other, its scorers in processes."""

    def _worker(self, lane: Any, work: Any, clock: Clock) -> Any:
        if lane.kind == "scorer":
            return ProcessScorer(lane.name, FakeScorer, (), 1, clock)
        return super()._worker(lane, work, clock)


def refuse() -> None:
    raise ValueError("no such model")


def children() -> set[int]:
    """Without the tracker that Python's own multiprocessing keeps until its end."""
    found = psutil.Process().children(recursive=True)
    return {child.pid for child in found if "resource_tracker" not in " ".join(child.cmdline())}


def test_a_scorer_in_a_process_gives_the_same_rewards() -> None:
    before = children()
    lanes, limits, log = room(2), Limits(PROMPT_CAP, CAP), list[Entry]()
    with ForkedBench(lanes, "threads", WORK).backend as backend:
        records = list(run(backend, small("oppo"), limits, 4, log.append))
    keeps_the_contract(Run(small("oppo"), lanes, limits, records, log))
    for record in records:
        assert list(record.rewards) == [
            reward(r, t) for r, t in zip(record.trained, record.tokens, strict=True)
        ]
    assert children() <= before


def test_a_killed_scorer_is_named() -> None:
    before = children()
    bench = ForkedBench(room(1), "threads", WORK)
    (pid,) = children() - before

    def kill(entry: Entry) -> None:
        if isinstance(entry, Score):
            os.kill(pid, signal.SIGKILL)

    with (
        bench.backend as backend,
        pytest.raises(EngineError, match=rf"scorer0.*pid {pid}.*killed by SIGKILL"),
    ):
        list(run(backend, small("trl"), Limits(PROMPT_CAP, CAP), 2, kill))
    assert children() <= before


def test_an_idle_scorer_that_was_killed_is_noticed_too() -> None:
    before = children()
    bench = ForkedBench(room(1), "threads", WORK)
    (pid,) = children() - before
    os.kill(pid, signal.SIGKILL)
    with bench.backend as backend, pytest.raises(EngineError, match="killed by SIGKILL"):
        list(run(backend, small("trl"), Limits(PROMPT_CAP, CAP), 2))


def test_a_scorer_that_cannot_be_built_says_why() -> None:
    before = children()
    with pytest.raises(EngineError, match="ValueError: no such model"):
        ProcessScorer("scorer0", refuse, (), 1, Clock())
    assert children() <= before


def test_the_backend_can_be_closed_at_any_time() -> None:
    before = children()
    worker = ProcessScorer("scorer0", FakeScorer, (), 1, Clock())
    TorchBackend(room(1), Threads({"scorer0": worker}), Store(lambda rollout: WORK.prompts)).close()
    assert children() <= before

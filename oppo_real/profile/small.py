"""What is not work: news on its way between threads, and new weights."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from oppo_real.machine.hosts import Threads
from oppo_real.machine.messages import Go, News, Stop, Swap, Task
from oppo_real.profile.lanes import Subjects
from oppo_real.profile.timing import Series, Timing
from oppo_real.profile.work import Decoding, timed
from oppo_sim.costs.measurements import LEAST_S, Row
from oppo_sim.engine.contract import Command, Emitted, Sync

TURNS = 50  # at a time
MANY = 1_000_000  # tokens


class _Echo:
    """A worker that has an event to tell of for every task."""

    def __init__(self) -> None:
        self._inbox: deque[Task] = deque()

    def give(self, task: Task) -> None:
        self._inbox.append(task)

    def step(self) -> News | None:
        if not self._inbox:
            return None
        self._inbox.popleft()
        return News(events=(Emitted(0.0, "echo", ((0, 1),)),))

    def doing(self) -> tuple[Command | None, tuple[int, ...]]:
        return None, ()

    def close(self) -> None:
        """It holds nothing."""


def latency() -> Timing:
    """From a task given to a lane's thread to the news of it, and half the way back."""
    host = Threads({"echo": _Echo()})
    task: Any = None
    try:

        def once() -> float:
            begin_s = time.perf_counter()
            for _ in range(TURNS):
                host.give("echo", task)
                host.take()
                host.answered()
            return (time.perf_counter() - begin_s) / TURNS

        once()
        news = Series()
        news.repeat(once, 1.0, least=3)
        return news.timing
    finally:
        host.close()


def handoff_rows(news: Timing) -> list[tuple[Row, Timing]]:
    """Tokens go to a scorer as news and as a task, however many they are."""
    return [(Row("handoff", 1, 0, tokens, news.seconds), news) for tokens in (1, MANY)]


def sync_row(on: Subjects, news: Timing) -> tuple[Row, Timing]:
    """Weights put into an actor lane, next to nothing where it shares the trainer's, and the news.

    A Sync goes to its lanes twice: to stop them, and to swap.
    """
    command = Sync((on.places["actor"].name,), 0, "keep")
    weights = None if on.shares_weights else dict(on.build.models.actor.named_parameters())

    def once() -> float:
        on.actor.give(Stop(command))
        on.actor.step()
        on.actor.give(Swap(command, weights))
        seconds = timed(on.actor)
        on.actor.give(Go())
        on.actor.step()
        return seconds

    decoding = Decoding(on, 1, len(on.prompt) + 1)
    decoding.join()
    once()
    swaps = Series(lambda seconds: Row("sync", 1, 0, 0, max(LEAST_S, seconds + 2 * news.seconds)))
    swaps.repeat(once, 1.0, least=3)
    decoding.leave()
    return swaps.row()

"""Lanes that lend the torch threads they do not use to those that work."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import torch

from oppo_real.machine.messages import News, Task, Worker
from oppo_sim.engine.contract import Command


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Team:
    """Lanes on one machine, each with a number of threads of its own.

    With those it borrows a lane has `most` at a time: the cores of this process, if not given.
    """

    def __init__(
        self,
        own: Mapping[str, int],
        use: Callable[[int], None] = torch.set_num_threads,
        most: int | None = None,
    ) -> None:
        self._own, self._use = own, use
        self._most = cores() if most is None else most
        self._idle: dict[str, int] = dict(own)  # one write by one lane at a time is whole
        self._last: dict[str, int] = {}

    def begin(self, lane: str) -> None:
        """The lane works, with its own threads and those of all that do not."""
        self._idle[lane] = 0
        own = self._own[lane]
        number = max(own, min(self._most, own + sum([*self._idle.values()])))
        if number != self._last.get(lane):
            self._last[lane] = number
            self._use(number)

    def end(self, lane: str) -> None:
        self._idle[lane] = self._own[lane]


class Sharing:
    """A Worker that works with what the others leave it: it asks anew at every step.

    A lane with rollouts works, between two steps as well. It is idle as soon as it has none: what
    it has just told of may be the next lane's work, which asks for threads at once.
    """

    def __init__(self, lane: str, worker: Worker, team: Team) -> None:
        self._lane, self._worker, self._team = lane, worker, team

    def give(self, task: Task) -> None:
        self._worker.give(task)

    def step(self) -> News | None:
        self._team.begin(self._lane)
        news = self._worker.step()
        if news is None or not self._worker.doing()[1]:
            self._team.end(self._lane)
        return news

    def doing(self) -> tuple[Command | None, tuple[int, ...]]:
        return self._worker.doing()

    def close(self) -> None:
        self._worker.close()

"""The lanes of scorers and trainers: one task a step; no threads here."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from oppo_real.machine.messages import NOTHING, Clock, Learn, News, Read, Task, Weights
from oppo_real.networks.scoring import Scored, Scorer
from oppo_real.ppo.batch import Batch
from oppo_sim.engine.contract import Command, Done, Drop, Score, Train


class ScorerLane:
    """Frozen models that read chunks. `synchronise` returns when the device has done its work."""

    def __init__(
        self, lane: str, scorer: Scorer, clock: Clock, synchronise: Callable[[], None]
    ) -> None:
        self._lane, self._scorer, self._clock = lane, scorer, clock
        self._synchronise = synchronise
        self._inbox: deque[Task] = deque()
        self._command: Score | None = None

    def give(self, task: Task) -> None:
        self._inbox.append(task)

    def doing(self) -> tuple[Command | None, tuple[int, ...]]:
        command = self._command
        return command, tuple([chunk.rollout for chunk in command.chunks]) if command else ()

    def close(self) -> None:
        """Nothing outlives the scorer."""

    def step(self) -> News | None:
        if not self._inbox:
            return None
        match self._inbox.popleft():
            case Drop(rollouts):
                self._scorer.drop(rollouts)
                return NOTHING
            case Read(command, chunks):
                self._command = command
                start_s = self._clock()
                scored = self._scorer.score(chunks)
                self._synchronise()
                rewards = [(s.rollout, s.reward) for s in scored if s.reward is not None]
                done = Done(self._clock(), self._lane, command, start_s, tuple(rewards))
                self._command = None
                return News(events=(done,), scored=tuple([_plain(s) for s in scored]))
            case other:
                raise TypeError(f"a scorer lane cannot do {type(other).__name__}")


def _plain(scored: Scored) -> Scored:
    """Lists for tensors: they may go through a pipe, and tensors would do so as shared memory."""
    along = (scored.reference, scored.values)
    reference, values = (None if t is None else tuple(map(float, t)) for t in along)
    return scored._replace(reference=reference, values=values)


class Learner(Protocol):
    """What makes weights `update + 1` of weights `update` and a batch; what it says of it."""

    def update(self, batch: Batch, update: int) -> Mapping[str, float]: ...


class TrainerLane:
    """Updates the weights. `weights()`: what a Sync carries; None where actors share them."""

    def __init__(
        self,
        lane: str,
        trainer: Learner,
        clock: Clock,
        synchronise: Callable[[], None],
        weights: Callable[[], Weights | None],
    ) -> None:
        self._lane, self._trainer, self._clock = lane, trainer, clock
        self._synchronise, self._weights = synchronise, weights
        self._inbox: deque[Task] = deque()
        self._command: Train | None = None

    def give(self, task: Task) -> None:
        self._inbox.append(task)

    def doing(self) -> tuple[Command | None, tuple[int, ...]]:
        return self._command, self._command.rollouts if self._command else ()

    def close(self) -> None:
        """Nothing outlives the trainer."""

    def step(self) -> News | None:
        if not self._inbox:
            return None
        match self._inbox.popleft():
            case Learn(command, batch):
                self._command = command
                start_s = self._clock()
                stats = self._trainer.update(batch, command.update)
                self._synchronise()
                done = Done(self._clock(), self._lane, command, start_s)
                self._command = None
                return News(events=(done,), stats=stats, weights=self._weights())
            case other:
                raise TypeError(f"a trainer lane cannot do {type(other).__name__}")

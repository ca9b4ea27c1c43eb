"""What goes to a lane and comes from it; lanes share nothing but these."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from oppo_real.machine.store import Tokens
from oppo_real.networks.scoring import ScoreChunk, Scored
from oppo_real.ppo.batch import Batch
from oppo_sim.engine.contract import (
    Command,
    Counts,
    Drop,
    Event,
    Generate,
    Pause,
    Score,
    Sync,
    Train,
)

Clock = Callable[[], float]  # seconds since the run began
Weights = Mapping[str, Any]
Cache = Mapping[str, Any]  # of one rollout: tensors by name


class Join(NamedTuple):
    """A Generate with the contexts of its rollouts: (prompt, response so far)."""

    command: Generate
    contexts: tuple[tuple[Sequence[int], Sequence[int]], ...]


class Stop(NamedTuple):
    """The first half of a Sync: rollouts stall at the next boundary."""

    command: Sync


class Swap(NamedTuple):
    """The second half: these weights, None where the lane shares the trainer's."""

    command: Sync
    weights: Weights | None


class Go(NamedTuple):
    """The end of a Sync: all lanes have their weights."""


class Save(NamedTuple):
    """Between two steps: what an actor lane keeps of paused rollouts."""


class Read(NamedTuple):
    command: Score
    chunks: tuple[ScoreChunk, ...]


class Learn(NamedTuple):
    command: Train
    batch: Batch


Task = Join | Pause | Stop | Swap | Go | Save | Read | Learn | Drop


@dataclass(frozen=True, slots=True)
class News:
    """What a step has to say: the events of one instant, and the data that goes with them."""

    events: tuple[Event, ...] = ()
    decoded: tuple[Tokens, ...] = ()
    scored: tuple[Scored, ...] = ()
    stats: Mapping[str, float] = field(default_factory=dict)  # of an update
    weights: Weights | None = None  # that an update made
    # the two halves of a Sync: the lane stands still; the weights are in place
    stopped: bool = False
    swapped: bool = False
    at_s: float = 0.0
    counts: Counts = ()  # of its running rollouts, when it stopped
    kv_peak_tokens: int = 0  # since the last Sync
    reprefilled_tokens: int = 0  # of responses, since the last Sync
    kept: Mapping[int, Cache] | None = None  # the answer to a Save


NOTHING = News()  # something was done; there is nothing to say of it


class Worker(Protocol):
    """One lane's work."""

    def give(self, task: Task) -> None: ...

    def step(self) -> News | None:
        """Do one thing; None: there was nothing to do."""

    def doing(self) -> tuple[Command | None, tuple[int, ...]]:
        """The command and the rollouts at work, for the message when a step fails."""

    def close(self) -> None: ...

"""A schedule: every scheduling choice of a PPO run as one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from oppo_sim.policies import checks
from oppo_sim.policies.checks import at_least, finite, one_of
from oppo_sim.policies.chunk import ChunkPolicy, FixedChunk, WholeResponse
from oppo_sim.policies.overcommit import FixedOvercommit, OvercommitPolicy
from oppo_sim.records import Observation

CHOICES: dict[str, tuple[object, ...]] = {
    "refill": ("batch", "idle", "event"),
    "take": ("finished", "oldest"),
    "surplus": ("keep", "drop"),
    "stale": ("keep", "wait", "drop"),
    "stop": ("taken", "train"),
    "partial": ("kv", "tokens", "nothing"),
    "update": ("in_flight", "interrupt", "drain"),
    "update_kv": ("keep", "recompute"),
    "scoring": ("batch", "response", "chunk"),
    "flush": ("round", "rollout"),
}
_WINDOW = {"window": "how many of the latest steps it reads"}
_MOST = {"most": "the largest overcommitment that it may ask for"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """An overcommitment that grows with the batch: its share of it, rounded to whole groups."""

    of_batch: float

    def __post_init__(self) -> None:
        finite("overcommit.of_batch", self.of_batch)
        if self.of_batch < 0:
            raise ValueError(f"overcommit.of_batch = {self.of_batch}: must be at least 0")

    def rollouts(self, batch: int, group: int) -> int:
        return group * round(self.of_batch * batch / group)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The axes along which systems differ; a published one is a value (see `catalog`).

    Admission: admitted - dropped <= (version + 1 + ahead) * batch + overcommit, and at most `pool`
    in flight. Where the work runs is not an axis: the engine reads it from the machine's lanes.
    """

    name: str
    # rollouts per step
    batch: int = 112
    # responses per prompt; a group is admitted, taken and dropped as one
    group: int = 1
    # rollouts in flight beyond the batch
    overcommit: OvercommitPolicy | Share | int = 0
    # whole batches admitted before their turn
    ahead: int = 0
    # most rollouts on the actors at once
    pool: int | None = None
    # between the starts of steps, rollouts go to the lanes when all of them are empty ("batch"), to
    # a lane that is empty ("idle"), or to any lane with room ("event")
    refill: Literal["batch", "idle", "event"] = "idle"
    # response tokens reserved per rollout; None: the cap, so that memory never runs out
    kv_reserve_tokens: int | None = None
    # the first to finish, or the oldest, waiting for them
    take: Literal["finished", "oldest"] = "finished"
    # finished beyond the batch: first in line for the next, or lost
    surplus: Literal["keep", "drop"] = "keep"
    # a rollout that would be trained later than `max_staleness` versions after its first token is
    # waited for in time, or dropped
    max_staleness: int | None = None
    stale: Literal["keep", "wait", "drop"] = "keep"
    # the rest stops decoding when the batch is complete, or when training needs its devices
    stop: Literal["taken", "train"] = "train"
    # what an unfinished rollout keeps when it is paused
    partial: Literal["kv", "tokens", "nothing"] = "kv"
    # running rollouts at a weight update: stall for the swap, are paused, or are waited for
    update: Literal["in_flight", "interrupt", "drain"] = "in_flight"
    # caches that the old weights made
    update_kv: Literal["keep", "recompute"] = "keep"
    # tokens per round; None: whole responses
    chunk: ChunkPolicy | int | None = None
    # what is handed to the scorer
    scoring: Literal["batch", "response", "chunk"] = "batch"
    # a finished response is handed over at the end of the round, or at once
    flush: Literal["round", "rollout"] = "round"

    def __post_init__(self) -> None:
        self._check_numbers()
        for field, allowed in CHOICES.items():
            one_of(field, getattr(self, field), allowed)
        self._check_together()

    def _check_numbers(self) -> None:
        at_least("batch", self.batch, 1)
        at_least("group", self.group, 1)
        at_least("ahead", self.ahead, 0)
        for field, least in (("pool", 1), ("kv_reserve_tokens", 1), ("max_staleness", 0)):
            if getattr(self, field) is not None:
                at_least(field, getattr(self, field), least)
        if self.batch % self.group:
            raise ValueError(f"batch = {self.batch}: must be a multiple of group = {self.group}")
        self._check_policies()

    def _check_policies(self) -> None:
        if isinstance(self.chunk, int):
            FixedChunk(self.chunk)  # checks it
        elif self.chunk is not None:
            checks.policy("chunk", self.chunk, "chunk_tokens", _WINDOW)
        if isinstance(self.overcommit, int):
            FixedOvercommit(self.overcommit)
        elif not isinstance(self.overcommit, Share):
            checks.policy("overcommit", self.overcommit, "overcommit", {**_WINDOW, **_MOST})

    def _check_together(self) -> None:
        """Choices that contradict each other."""
        if self.max_staleness is None and self.stale != "keep":
            raise ValueError(
                f"stale = {self.stale!r} with max_staleness = None: 'wait' and 'drop' need a "
                "bound: add max_staleness"
            )
        if self.max_staleness is not None and self.stale == "keep":
            raise ValueError(
                f"stale = 'keep' with max_staleness = {self.max_staleness}: such a bound needs "
                "its consequence: add stale = 'drop' or 'wait'"
            )
        if self.partial == "nothing" and self.scoring == "chunk":
            raise ValueError(
                "partial = 'nothing' with scoring = 'chunk' would score tokens that are thrown "
                "away: use scoring = 'response' or 'batch'"
            )
        if self.scoring == "response" and self.flush == "round" and self.chunk is None:
            raise ValueError(
                "scoring = 'response' with flush = 'round' needs rounds to hand anything over: "
                "set a chunk, or flush = 'rollout'"
            )
        if self.scoring == "chunk" and self.chunk is None:
            raise ValueError("scoring = 'chunk' needs a chunk: a size or a policy")
        if self.pool is not None and self.pool < self.batch and self.refill != "event":
            raise ValueError(
                f"pool = {self.pool} is less than batch = {self.batch}: "
                "raise it, or set refill = 'event' so that the pool is topped up"
            )

    @property
    def chunk_policy(self) -> ChunkPolicy:
        if self.chunk is None:
            return WholeResponse()
        return FixedChunk(self.chunk) if isinstance(self.chunk, int) else self.chunk

    @property
    def overcommit_policy(self) -> OvercommitPolicy:
        if isinstance(self.overcommit, Share):
            return FixedOvercommit(self.overcommit.rollouts(self.batch, self.group))
        if isinstance(self.overcommit, int):
            return FixedOvercommit(self.overcommit)
        return self.overcommit

    @property
    def window(self) -> int:
        """How many past steps its policies read."""
        return max(self.chunk_policy.window, self.overcommit_policy.window)

    def choose(self, seen: Observation) -> tuple[int | None, int]:
        """The chunk and the overcommitment of the step that begins.

        ValueError, with the policy and the value, where one returns what it must not.
        """
        chunk, overcommit = self.chunk_policy, self.overcommit_policy
        tokens, rollouts = chunk.chunk_tokens(seen), overcommit.overcommit(seen)
        if tokens is not None:
            tokens = checks.chosen(chunk, "chunk_tokens", tokens, 1, None)
        return tokens, checks.chosen(overcommit, "overcommit", rollouts, 0, overcommit.most)

"""What the engine's state is made of: rollouts, lanes as the engine sees them, batches."""

from __future__ import annotations

from oppo_sim.engine.contract import EngineError, Lane


class Rollout:
    """One response in progress or done, from its admission until it was trained on or dropped."""

    __slots__ = (
        "deferrals",
        "emitted",
        "finished",
        "home",
        "id",
        "lane",
        "oldest",
        "pausing",
        "reward",
        "segments",
        "sent",
        "since",
        "tokens",
        "version",
    )

    def __init__(self, rollout: int) -> None:
        self.id = rollout
        self.tokens = 0  # as far as the machine has told
        self.emitted = 0  # tokens that may be scored
        self.sent = 0  # tokens that were handed to the scorer
        self.finished = False
        self.reward: float | None = None
        self.lane: Actor | None = None  # where it decodes
        self.home: Actor | None = None  # where its cache is kept while it is paused
        self.pausing = False
        self.deferrals = 0
        self.oldest = -1  # the weights version that decoded its first token; -1: not begun
        self.version = -1  # the version that decodes now, from token `since` on
        self.since = 0
        self.segments: list[tuple[int, int, int]] = []  # before that: (start, end, version)

    def change_version(self, tokens: int, version: int) -> None:
        """Token `tokens` and those after it are decoded by other weights."""
        if tokens > self.since:
            self.segments.append((self.since, tokens, self.version))
        self.since = self.tokens = tokens
        self.version = version

    def stale_tokens(self, version: int) -> int:
        """Its tokens that weights before `version` decoded."""
        last = self.tokens - self.since if self.version < version else 0
        return last + sum([end - start for start, end, by in self.segments if by < version])


class Actor:
    """An actor lane as the engine sees it."""

    __slots__ = ("capacity", "index", "kept", "name", "running", "shared", "tight", "unflushed")

    def __init__(self, lane: Lane, index: int, capacity: int, shared: bool) -> None:
        self.name = lane.name
        self.index = index
        self.capacity = capacity  # rollouts, by slots and by KV reserve
        self.shared = shared  # with the trainer: it must be empty while training runs
        self.running: dict[int, Rollout] = {}
        self.tight = False  # its memory ran out, and nothing has left since
        self.kept = 0  # paused rollouts whose cache it keeps
        self.unflushed: list[Rollout] = []  # finished in this round

    @property
    def load(self) -> int:
        return len(self.running) + self.kept


class Scorer:
    """A scorer lane: rows that wait for it, the batch's first, and whether it is busy."""

    __slots__ = ("busy", "name", "pending", "urgent")

    def __init__(self, lane: Lane) -> None:
        self.name = lane.name
        self.busy = False
        self.urgent: dict[int, Rollout] = {}
        self.pending: dict[int, Rollout] = {}


class Batch:
    """A batch from its taking to its weights being in place."""

    __slots__ = (
        "rollouts",
        "scored_s",
        "taken_s",
        "train_end_s",
        "train_start_s",
        "unscored",
        "update",
    )

    def __init__(self, update: int, rollouts: list[Rollout], taken_s: float) -> None:
        self.update = update
        self.rollouts = rollouts
        self.taken_s = self.scored_s = self.train_start_s = self.train_end_s = taken_s
        self.unscored = sum(r.reward is None for r in rollouts)


def capacity(lane: Lane, reserve: int) -> int:
    """How many rollouts of `reserve` KV tokens a lane takes at a time."""
    if lane.kv_tokens is None:
        return lane.slots
    capacity = min(lane.slots, lane.kv_tokens // reserve)
    if capacity < 1:
        raise EngineError(
            f"lane {lane.name} has KV memory for {lane.kv_tokens} tokens, "
            f"one rollout reserves {reserve}: lower max_response_tokens or kv_reserve_tokens, "
            "or give the lane more memory"
        )
    return capacity

"""The contract between the engine and a machine: lanes, commands, events, the Backend protocol.

The rules that every machine keeps, so that the same schedule makes the same decisions on each of
them:

1.  A lane is a place where work runs. An actor lane holds a batch of rollouts that decode in
    lockstep, one token of each per iteration; the instants between iterations are its *boundaries*.
    While it stalls (prefill, the handling of a round's end, a weight swap) its next boundary is the
    end of the stall.
2.  A command takes effect at the lane's first boundary at or after the instant at which it was
    submitted, which is the instant of the last event delivered. A token's own events at that
    instant come before it.
3.  `Generate` joins rollouts to the lane's batch, stalls the lane while their missing context is
    prefilled (nothing is missing where the KV cache was kept), and leaves them decoding until they
    finish, are paused or the run ends. It survives steps.
4.  With `chunk_tokens`, a lane decodes in rounds: a round opens when a lane without rollouts gets
    some, ends `chunk_tokens` iterations later with `Emitted`, and the next one opens at once with
    the lane's latest `chunk_tokens`. Rollouts that join a running lane share its round. A round
    dies with the lane's last rollout; then nothing is emitted. `Emitted` names the rollouts still
    running, and is never empty.
5.  `Pause` takes rollouts out at the boundary; each is answered by `Paused` or, if the boundary's
    own token was its last, by `Finished`. With `keep_kv` the lane keeps their cache until they come
    back to it, are dropped, or a `Sync` with `kv="recompute"` throws it away.
6.  `Score` runs at once, one at a time per scorer. A chunk continues its row's cache; `start == 0`
    opens a row anew. `Done.rewards` has a reward for each chunk that is `last`.
7.  `Train` claims its lanes and their devices: no actor lane on those devices may hold running
    rollouts. It waits for scores that are running on its devices; scores submitted later wait for
    it. The rollouts are freed.
8.  `Sync` stops the running rollouts of its lanes at their boundaries, swaps the weights when the
    last lane has stopped, and is `Done` when they are in place; `Done.counts` are the running
    rollouts' tokens. With `kv="recompute"` kept caches are lost, and each lane stalls from then on
    until the context of its running rollouts is prefilled again, in place of prefills still due.
9.  Counts are sorted by rollout. Events of one instant come sorted: `Finished`, `Emitted`,
    `Paused`, `Done`, `Failed`; then by the lane's place in `lanes()`, then by rollout. An instant
    is delivered whole, except for what commands submitted at that instant cause at that very
    instant: that comes with the next `wait`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias


class EngineError(RuntimeError):
    """A machine failed, broke the contract, or cannot run the schedule."""


Counts: TypeAlias = tuple[tuple[int, int], ...]  # (rollout, response tokens so far)


class Lane(NamedTuple):
    name: str
    kind: Literal["actor", "scorer", "trainer"]
    devices: tuple[str, ...]
    slots: int = 1  # rollouts at a time (actors)
    kv_tokens: int | None = None  # KV memory of the lane; None: no limit


class Limits(NamedTuple):
    """What a rollout may need at most; the KV reserve and the cap come from here."""

    prompt_tokens: int
    response_tokens: int


class Chunk(NamedTuple):
    """Response tokens [start, end) of one rollout to score; after the `last`, read the reward."""

    rollout: int
    start: int
    end: int
    last: bool


# commands


class Generate(NamedTuple):
    lane: str
    starts: Counts
    cap_tokens: int
    chunk_tokens: int | None


class Pause(NamedTuple):
    lane: str
    rollouts: tuple[int, ...]
    keep_kv: bool


class Score(NamedTuple):
    lane: str
    chunks: tuple[Chunk, ...]


class Train(NamedTuple):
    lanes: tuple[str, ...]
    rollouts: tuple[int, ...]
    update: int  # trains weights version `update` into `update + 1`


class Sync(NamedTuple):
    lanes: tuple[str, ...]
    version: int
    kv: Literal["keep", "recompute"]


class Drop(NamedTuple):
    """Forget rollouts that are not running: their caches on actors and scorers are freed."""

    rollouts: tuple[int, ...]


Command: TypeAlias = Generate | Pause | Score | Train | Sync | Drop


# decisions: logged, so that a log replays, but never submitted


class Plan(NamedTuple):
    """What the policies chose for the step that begins."""

    step: int
    chunk_tokens: int | None
    overcommit: int


class Admit(NamedTuple):
    rollouts: range


class Take(NamedTuple):
    rollouts: tuple[int, ...]


Decision: TypeAlias = Plan | Admit | Take


# events


class Finished(NamedTuple):
    at_s: float
    lane: str
    rollout: int
    tokens: int
    reason: Literal["stop", "cap"]


class Emitted(NamedTuple):
    at_s: float
    lane: str
    counts: Counts


class Paused(NamedTuple):
    at_s: float
    lane: str
    counts: Counts
    kv_kept: bool
    why: Literal["asked", "memory"]


class Done(NamedTuple):
    at_s: float
    lane: str  # the first of the command's lanes
    command: Score | Train | Sync
    start_s: float
    rewards: tuple[tuple[int, float], ...] = ()  # Score
    counts: Counts = ()  # Sync
    kv_peak_tokens: int = (
        0  # Sync: the most KV tokens that one of its lanes held since the last Sync
    )
    # Sync: response tokens that its lanes have prefilled again since the last Sync. A prefill that
    # is due counts once it begins: not at all where its rollout leaves at the same boundary.
    reprefilled_tokens: int = 0


class Failed(NamedTuple):
    at_s: float
    lane: str
    command: Command
    rollouts: tuple[int, ...]
    why: str


Event: TypeAlias = Finished | Emitted | Paused | Done | Failed
Entry: TypeAlias = Command | Decision | Event


class Backend(Protocol):
    """A machine. It alone knows what time it is, and it never starts work on its own."""

    def lanes(self) -> Mapping[str, Lane]:
        """The lanes by name, in the order that breaks ties."""

    def submit(self, *commands: Command) -> None:
        """Hand over commands, in order; returns at once."""

    def wait(self, finishes: int = 1) -> Sequence[Event]:
        """Whole instants, through the `finishes`-th Finished or the first other event; never empty.

        `finishes` (at least 1) is how many finishes the engine needs before it can have anything to
        say; a machine may use it to work ahead, and may not: wait(k) and k times wait(1) give the
        same run.
        """

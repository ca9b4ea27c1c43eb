"""An actor's lane: a continuous batch behind the contract's rules 2 to 5 and 8; no threads here.

It is given tasks and is stepped: each step does one thing - a boundary's commands, a prefill, one
token of every running rollout, a half of a Sync - and says what there is to say of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from oppo_real.machine.messages import (
    NOTHING,
    Cache,
    Clock,
    Go,
    Join,
    News,
    Save,
    Stop,
    Swap,
    Task,
    Weights,
)
from oppo_real.machine.store import Row, Tokens
from oppo_real.networks.decoding import ContinuousBatch
from oppo_sim.engine.contract import (
    Command,
    Counts,
    Drop,
    Emitted,
    Event,
    Finished,
    Generate,
    Lane,
    Pause,
    Paused,
)


@dataclass(slots=True)
class _Running:
    prompt_tokens: int
    tokens: int  # response tokens so far
    ids: list[int] = field(default_factory=list)  # of these, what was not told yet
    logprobs: list[float] = field(default_factory=list)


class ActorLane:
    """`load(weights)` puts a Sync's weights into the model."""

    def __init__(
        self, lane: Lane, batch: ContinuousBatch, clock: Clock, load: Callable[[Weights], None]
    ) -> None:
        self._lane, self._batch, self._clock, self._load = lane, batch, clock, load
        self._inbox: deque[Task] = deque()
        self._running: dict[int, _Running] = {}
        self._kept: dict[int, int] = {}  # paused rollout -> tokens of its cache
        self._fresh: set[int] = set()  # joined, not prefilled
        self._command: Generate | None = None
        self._stopped = False
        self._round_left: int | None = None
        self._kv_peak = 0
        self._reprefilled_tokens = 0
        self.version = 0

    def give(self, task: Task) -> None:
        self._inbox.append(task)

    def doing(self) -> tuple[Command | None, tuple[int, ...]]:
        return self._command, tuple(sorted(self._running))

    def close(self) -> None:
        """Nothing outlives the batch."""

    def adopt(self, version: int, rows: Mapping[int, Row], kept: Mapping[int, Cache]) -> None:
        """Before the first step of a run that goes on: the weights' version, and kept caches."""
        self.version = version
        for rollout, cache in kept.items():
            row = rows[rollout]
            self._batch.load(rollout, row.prompt, row.ids, dict(cache))
            self._kept[rollout] = len(row.prompt) + len(row.ids)

    def step(self) -> News | None:
        if self._stopped:
            return self._stand()
        if self._inbox:
            return self._boundary(self._clock())
        if not self._running:
            return None
        if self._fresh:
            self._batch.prefill()
            self._reprefilled_tokens += sum([self._running[r].tokens for r in self._fresh])
            self._fresh.clear()
            return NOTHING
        return self._decode()

    # a boundary's commands

    def _stand(self) -> News | None:
        """While a Sync holds the lane, other commands wait for its end."""
        for place, task in enumerate([*self._inbox]):
            match task:
                case Swap():
                    del self._inbox[place]
                    return self._swap(task)
                case Go():
                    del self._inbox[place]
                    self._stopped = False
                    return NOTHING
                case Save():
                    del self._inbox[place]
                    return News(kept={rollout: self._batch.save(rollout) for rollout in self._kept})
        return None

    def _boundary(self, at_s: float) -> News:
        events: list[Event] = []
        decoded: list[Tokens] = []
        stopped = False
        while self._inbox:
            match self._inbox.popleft():
                case Join() as join:
                    self._join(join)
                case Pause() as pause:
                    decoded += self._pause(pause, at_s, events)
                case Drop(rollouts):
                    for rollout in rollouts:
                        if self._kept.pop(rollout, None) is not None:
                            self._batch.drop(rollout)
                case Stop():
                    self._stopped = stopped = True
                case other:
                    raise TypeError(f"an actor lane cannot do {type(other).__name__}")
        decoded += self._make_room(at_s, events)
        if stopped:
            decoded += self._tell(self._running)
        if not (events or stopped):
            return NOTHING
        counts = self._counts(self._running) if stopped else ()
        return News(tuple(events), tuple(decoded), stopped=stopped, at_s=at_s, counts=counts)

    def _join(self, join: Join) -> None:
        command = self._command = join.command
        if not self._running:
            self._round_left = command.chunk_tokens
        for (rollout, tokens), (prompt, response) in zip(
            command.starts, join.contexts, strict=True
        ):
            context = len(prompt) + tokens
            kept = self._kept.pop(rollout, None)
            if kept == context:
                self._batch.resume(rollout)
            else:
                if kept is not None:
                    self._batch.drop(rollout)
                self._batch.join(rollout, prompt, response, command.cap_tokens)
                self._fresh.add(rollout)
            self._running[rollout] = _Running(len(prompt), tokens)
        self._kv_peak = max(self._kv_peak, self._held())

    def _pause(self, pause: Pause, at_s: float, events: list[Event]) -> list[Tokens]:
        """Who has finished meanwhile has answered already."""
        there = [rollout for rollout in pause.rollouts if rollout in self._running]
        kept = [r for r in there if pause.keep_kv and r not in self._fresh]
        lost = [r for r in there if r not in kept]
        decoded = []
        for rollouts, kv_kept in ((kept, True), (lost, False)):
            if rollouts:
                counts = self._counts(rollouts)
                decoded += self._leave(rollouts, keep=kv_kept)
                events.append(Paused(at_s, self._lane.name, counts, kv_kept, "asked"))
        return decoded

    def _leave(self, rollouts: Sequence[int], *, keep: bool) -> list[Tokens]:
        decoded = self._tell(rollouts)
        for rollout in rollouts:
            self._batch.leave(rollout, keep)
            row = self._running.pop(rollout)
            self._fresh.discard(rollout)
            if keep:
                self._kept[rollout] = row.prompt_tokens + row.tokens
        return decoded

    def _swap(self, swap: Swap) -> News:
        if swap.weights is not None:
            self._load(swap.weights)
        self.version = swap.command.version
        if swap.command.kv == "recompute":
            self._kept.clear()
            self._batch.forget()
            self._batch.recompute()
            self._fresh.update(self._running)
        peak, self._kv_peak = self._kv_peak, self._held()
        again, self._reprefilled_tokens = self._reprefilled_tokens, 0
        return News(swapped=True, at_s=self._clock(), kv_peak_tokens=peak, reprefilled_tokens=again)

    # decoding

    def _decode(self) -> News:
        out = self._batch.decode()
        at_s, name = self._clock(), self._lane.name
        events: list[Event] = []
        decoded: list[Tokens] = []
        ended: list[tuple[int, Literal["stop", "cap"]]] = []
        for rollout, token, logprob, end in zip(
            out.rollouts, out.tokens, out.logprobs, out.ended, strict=True
        ):
            row = self._running[rollout]
            row.tokens += 1
            row.ids.append(token)
            row.logprobs.append(logprob)
            if end is not None:
                ended.append((rollout, end))
        self._kv_peak = max(self._kv_peak, self._held())
        for rollout, end in sorted(ended):
            decoded += self._tell((rollout,))
            row = self._running.pop(rollout)
            events.append(Finished(at_s, name, rollout, row.tokens, end))
        if self._running and self._round_left is not None:
            self._round_left -= 1
            if self._round_left == 0:
                decoded += self._tell(self._running)
                events.append(Emitted(at_s, name, self._counts(self._running)))
                assert self._command is not None
                self._round_left = self._command.chunk_tokens
        decoded += self._make_room(at_s, events)
        return News(events=tuple(events), decoded=tuple(decoded)) if events else NOTHING

    def _make_room(self, at_s: float, events: list[Event]) -> list[Tokens]:
        """Preempt the youngest until one more token of each fits; kept caches stay."""
        limit = self._lane.kv_tokens
        if limit is None:
            return []
        lost: list[int] = []
        held = self._held()
        for rollout in sorted(self._running, reverse=True):
            if held + len(self._running) - len(lost) <= limit:
                break
            row = self._running[rollout]
            held -= row.prompt_tokens + row.tokens
            lost.append(rollout)
        if not lost:
            return []
        counts = self._counts(lost)
        decoded = self._leave(lost, keep=False)
        events.append(Paused(at_s, self._lane.name, counts, False, "memory"))
        return decoded

    def _held(self) -> int:
        running = sum([row.prompt_tokens + row.tokens for row in self._running.values()])
        return running + sum(self._kept.values())

    def _counts(self, rollouts: Iterable[int]) -> Counts:
        return tuple([(rollout, self._running[rollout].tokens) for rollout in sorted(rollouts)])

    def _tell(self, rollouts: Iterable[int]) -> list[Tokens]:
        told = []
        for rollout in rollouts:
            row = self._running[rollout]
            if row.ids:
                told.append(Tokens(rollout, tuple(row.ids), tuple(row.logprobs), self.version))
                row.ids, row.logprobs = [], []
        return told

"""The log of a run as spans, one per task and lane, for timelines; it forgets what is over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from oppo_sim.engine.contract import (
    Counts,
    Done,
    Drop,
    Emitted,
    Entry,
    Finished,
    Generate,
    Lane,
    Paused,
    Plan,
    Score,
    Sync,
    Train,
)
from oppo_sim.records import Span


class SpanRecorder:
    """A listener for `engine.run` that hands each span to `emit` when it ends.

    decode  from the Generate that wets a dry lane until it is dry, cut at each Emitted and taken
            apart by a Sync: `rollouts` are those that run at its start, `tokens` those that are
            known at its end to have been decoded since the last count. What a rollout decodes
            between two counts (a round's end, its own end, a pause, a weight swap) is accounted
            in the span of the later one.
    score   `rollouts` are the chunks' rows, `tokens` the chunks' tokens
    train   on the devices of the whole gang; `tokens` are the batch's response tokens
    sync    on the devices of all actor lanes, from the instant at which the last has stopped;
            `rollouts` stall for it, `tokens` of theirs are prefilled again

    Stalls (prefill, a round's handling) are part of the decode span. What still runs when the run
    ends has no span: a step ends with a Sync, which has cut all of them.
    """

    def __init__(self, lanes: Mapping[str, Lane], emit: Callable[[Span], None]) -> None:
        self._lanes = lanes
        self._emit = emit
        self._now_s = 0.0
        self._step = 0
        self._decoding = {lane.name: _Decoding() for lane in lanes.values() if lane.kind == "actor"}
        self._finished: dict[int, int] = {}  # response tokens of what waits to be trained

    def __call__(self, entry: Entry) -> None:
        match entry:
            case Finished():
                self._now_s = entry.at_s
                self._finished[entry.rollout] = entry.tokens
                self._gone(entry.lane, ((entry.rollout, entry.tokens),))
            case Emitted():
                self._now_s = entry.at_s
                self._decoding[entry.lane].count(entry.counts)
                self._cut(entry.lane, entry.at_s, entry.at_s)
            case Paused():
                self._now_s = entry.at_s
                self._gone(entry.lane, entry.counts)
            case Done():
                self._now_s = entry.at_s
                self._done(entry)
            case Generate():
                self._decoding[entry.lane].join(entry.starts, self._now_s)
            case Drop():
                for rollout in entry.rollouts:
                    self._finished.pop(rollout, None)
            case Plan():
                self._step = entry.step

    def _gone(self, lane: str, counts: Counts) -> None:
        """Rollouts that leave their lane, which may be dry now."""
        decoding = self._decoding[lane]
        decoding.count(counts)
        for rollout, _ in counts:
            del decoding.tokens[rollout]
        if not decoding.tokens:
            self._cut(lane, self._now_s, self._now_s)

    def _done(self, event: Done) -> None:
        match event.command:
            case Score(_, chunks):
                tokens = sum(chunk.end - chunk.start for chunk in chunks)
                self._span(event, "score", (event.lane,), len(chunks), tokens)
            case Train(lanes, rollouts, _):
                tokens = sum(self._finished.pop(rollout) for rollout in rollouts)
                self._span(event, "train", lanes, len(rollouts), tokens)
            case Sync(lanes, _, kv):
                counts = dict(event.counts)
                for lane in lanes:
                    decoding = self._decoding[lane]
                    decoding.count(tuple((r, counts[r]) for r in decoding.tokens if r in counts))
                    self._cut(lane, event.start_s, event.at_s)
                again = sum(counts.values()) if kv == "recompute" else 0
                self._span(event, "sync", lanes, len(counts), again)

    def _cut(self, lane: str, end_s: float, next_s: float) -> None:
        """The lane's span ends; what still runs opens one at `next_s`."""
        decoding = self._decoding[lane]
        since_s = decoding.since_s
        if since_s is not None and (end_s > since_s or decoding.decoded):
            span = Span(
                lane,
                self._lanes[lane].devices,
                "decode",
                since_s,
                end_s,
                self._step,
                decoding.rollouts,
                decoding.decoded,
            )
            self._emit(span)
        decoding.open(next_s)

    def _span(
        self, event: Done, kind: str, lanes: Iterable[str], rollouts: int, tokens: int
    ) -> None:
        devices = tuple(dict.fromkeys(d for lane in lanes for d in self._lanes[lane].devices))
        start_s, end_s = event.start_s, event.at_s
        self._emit(Span(event.lane, devices, kind, start_s, end_s, self._step, rollouts, tokens))


class _Decoding:
    """What is known of an actor lane's running rollouts."""

    __slots__ = ("decoded", "rollouts", "since_s", "tokens")

    def __init__(self) -> None:
        self.tokens: dict[int, int] = {}  # running rollout: its tokens when last counted
        self.since_s: float | None = None  # start of the span, while the lane is wet
        self.rollouts = 0  # that ran then
        self.decoded = 0  # tokens counted in it

    def open(self, at_s: float) -> None:
        self.rollouts, self.decoded = len(self.tokens), 0
        self.since_s = at_s if self.tokens else None

    def join(self, starts: Counts, at_s: float) -> None:
        was_dry = not self.tokens
        self.tokens.update(starts)
        if was_dry:
            self.open(at_s)

    def count(self, counts: Counts) -> None:
        for rollout, tokens in counts:
            self.decoded += tokens - self.tokens[rollout]
            self.tokens[rollout] = tokens

"""The log of a run as spans, one per task and lane, for timelines; it forgets what is over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

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
    score   `rollouts` are the chunks' rows, `tokens` the chunks' tokens; it `reads` each decode
            span in which some of these were decoded, at the instant at which the last of them was
            counted: the span's end, or within it where a response was finished and scored at once
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
        self._unread: dict[int, list[_Part]] = {}  # by rollout: what no scorer has been given yet
        self._reads: dict[str, tuple[tuple[str, float], ...]] = {}  # by scorer: what it reads now

    def resume(self, now_s: float, finished: Mapping[int, int]) -> None:
        """Go on with a run between two steps: `finished` are the tokens of what waits to train."""
        self._now_s = now_s
        self._finished.update(finished)

    def __call__(self, entry: Entry) -> None:
        match entry:
            case Finished():
                self._now_s = entry.at_s
                self._finished[entry.rollout] = entry.tokens
                self._gone(entry.lane, ((entry.rollout, entry.tokens),))
            case Emitted():
                self._now_s = entry.at_s
                self._count(entry.lane, entry.counts, entry.at_s)
                self._cut(entry.lane, entry.at_s, entry.at_s)
            case Paused():
                self._now_s = entry.at_s
                self._gone(entry.lane, entry.counts)
            case Done():
                self._now_s = entry.at_s
                self._done(entry)
            case Generate():
                self._decoding[entry.lane].join(entry.starts, self._now_s)
                for rollout, tokens in entry.starts:
                    if not tokens:  # what it had decoded before was thrown away
                        self._unread.pop(rollout, None)
            case Score():
                self._reads[entry.lane] = self._read(entry)
            case Drop():
                for rollout in entry.rollouts:
                    self._finished.pop(rollout, None)
                    self._unread.pop(rollout, None)
            case Plan():
                self._step = entry.step

    def _gone(self, lane: str, counts: Counts) -> None:
        """Rollouts that leave their lane, which may be dry now."""
        decoding = self._decoding[lane]
        self._count(lane, counts, self._now_s)
        for rollout, _ in counts:
            del decoding.tokens[rollout]
        if not decoding.tokens:
            self._cut(lane, self._now_s, self._now_s)

    def _count(self, lane: str, counts: Counts, at_s: float) -> None:
        """Rollouts have so many tokens now; what is new of them waits to be read."""
        decoding = self._decoding[lane]
        since_s = decoding.since_s
        for rollout, tokens in counts:
            new = tokens - decoding.tokens[rollout]
            if new:
                assert since_s is not None  # what decodes makes its lane wet
                decoding.decoded += new
                decoding.tokens[rollout] = tokens
                self._unread.setdefault(rollout, []).append(_Part(tokens, lane, since_s, at_s))

    def _read(self, command: Score) -> tuple[tuple[str, float], ...]:
        """The decode spans in which its chunks were decoded, and when these were counted there."""
        spans: dict[tuple[str, float], float] = {}
        for chunk in command.chunks:
            parts = self._unread.pop(chunk.rollout, [])
            later = [part for part in parts if part.tokens > chunk.end]
            for part in parts[: len(parts) - len(later)]:
                span = part.lane, part.since_s
                spans[span] = max(part.at_s, spans.get(span, part.at_s))
            if later:
                self._unread[chunk.rollout] = later
        return tuple(sorted([(lane, at_s) for (lane, _), at_s in spans.items()]))

    def _done(self, event: Done) -> None:
        match event.command:
            case Score(_, chunks):
                tokens = sum(chunk.end - chunk.start for chunk in chunks)
                reads = self._reads.pop(event.lane, ())
                self._span(event, "score", (event.lane,), len(chunks), tokens, reads)
            case Train(lanes, rollouts, _):
                tokens = sum(self._finished.pop(rollout) for rollout in rollouts)
                self._span(event, "train", lanes, len(rollouts), tokens)
            case Sync(lanes, _, kv):
                counts = dict(event.counts)
                for lane in lanes:
                    decoding = self._decoding[lane]
                    here = tuple([(r, counts[r]) for r in decoding.tokens if r in counts])
                    self._count(lane, here, event.start_s)
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
        self,
        event: Done,
        kind: str,
        lanes: Iterable[str],
        rollouts: int,
        tokens: int,
        reads: tuple[tuple[str, float], ...] = (),
    ) -> None:
        devices = tuple(dict.fromkeys(d for lane in lanes for d in self._lanes[lane].devices))
        start_s, end_s, step = event.start_s, event.at_s, self._step
        self._emit(Span(event.lane, devices, kind, start_s, end_s, step, rollouts, tokens, reads))


class _Part(NamedTuple):
    """Tokens of one rollout, up to `tokens`, as counted at `at_s` in the decode span since then."""

    tokens: int
    lane: str
    since_s: float
    at_s: float


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

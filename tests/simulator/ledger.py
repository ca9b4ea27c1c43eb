"""A second bookkeeper: it reads a run's log alone and shares no code with the engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from oppo_sim.engine.contract import (
    Admit,
    Done,
    Drop,
    Emitted,
    Entry,
    Finished,
    Generate,
    Lane,
    Paused,
    Score,
    Sync,
    Take,
    Train,
)
from tests.simulator.lab import EVENTS, known_counts


class Ledger:
    """Where every rollout is, and what became of every token; it complains about the impossible."""

    def __init__(self, log: Iterable[Entry]) -> None:
        self.admitted = 0
        self.queued: set[int] = set()
        self.running: dict[int, str] = {}
        self.paused: set[int] = set()
        self.finished: set[int] = set()
        self.taken: set[int] = set()
        self.trained: list[int] = []
        self.dropped: list[int] = []
        self.tokens: dict[int, int] = {}  # of those that have begun, as far as known
        self.decoded_tokens = 0
        for entry in log:
            self._read(entry)

    @property
    def live(self) -> set[int]:
        places = (self.queued, set(self.running), self.paused, self.finished, self.taken)
        everywhere = set().union(*places)
        assert len(everywhere) == sum(map(len, places)), "a rollout is in two places"
        return everywhere

    def _read(self, entry: Entry) -> None:
        match entry:
            case Admit(rollouts):
                assert rollouts.start == self.admitted
                self.admitted = rollouts.stop
                self.queued.update(rollouts)
            case Generate(lane, starts):
                for rollout, tokens in starts:
                    (self.queued if rollout in self.queued else self.paused).remove(rollout)
                    assert tokens in (0, self.tokens.get(rollout, 0))
                    self.tokens[rollout] = tokens
                    self.running[rollout] = lane
            case Take(rollouts):
                self._move(rollouts, self.finished, self.taken)
            case Drop(rollouts):
                for rollout in rollouts:
                    (place,) = (
                        p for p in (self.queued, self.paused, self.finished) if rollout in p
                    )
                    place.remove(rollout)
                    self.dropped.append(rollout)
            case Finished() | Emitted() | Paused():
                self._count(known_counts(entry))
                if isinstance(entry, Finished):
                    del self.running[entry.rollout]
                    self.finished.add(entry.rollout)
                if isinstance(entry, Paused):
                    for rollout, _ in entry.counts:
                        del self.running[rollout]
                        self.paused.add(rollout)
            case Done(command=Train(rollouts=rollouts)):
                self._move(rollouts, self.taken, set())
                self.trained += rollouts
            case Done(command=Sync()):
                assert {rollout for rollout, _ in entry.counts} == set(self.running)
                self._count(entry.counts)

    def _count(self, counts: Iterable[tuple[int, int]]) -> None:
        for rollout, tokens in counts:
            assert rollout in self.running
            assert tokens >= self.tokens[rollout]
            self.decoded_tokens += tokens - self.tokens[rollout]
            self.tokens[rollout] = tokens

    @staticmethod
    def _move(rollouts: Iterable[int], source: set[int], target: set[int]) -> None:
        for rollout in rollouts:
            source.remove(rollout)
            target.add(rollout)


def busy_seconds(log: Sequence[Entry], lanes: Sequence[Lane]) -> dict[str, float]:
    """Per device, the union of what ran on it; what a task in flight overlaps is left for later."""
    devices = {lane.name: lane.devices for lane in lanes}
    spans: dict[str, list[tuple[float, float]]] = {d: [] for lane in lanes for d in lane.devices}
    claimed: dict[str, float] = {}  # lane: when its task in flight was submitted
    wet: dict[str, float] = {}  # actor lane: since when
    running: dict[str, set[int]] = {lane.name: set() for lane in lanes}
    now_s = 0.0

    def span(lane: str, start_s: float, end_s: float) -> None:
        for device in devices[lane]:
            spans[device].append((start_s, end_s))

    for entry in log:
        if isinstance(entry, EVENTS):
            now_s = entry.at_s
        match entry:
            case Generate(lane, starts):
                wet.setdefault(lane, now_s)
                running[lane] |= {rollout for rollout, _ in starts}
            case Finished() | Paused():
                running[entry.lane] -= {rollout for rollout, _ in known_counts(entry)}
                if not running[entry.lane]:
                    span(entry.lane, wet.pop(entry.lane), now_s)
            case Score(lane):
                claimed[lane] = now_s
            case Train(names):
                claimed |= dict.fromkeys(names, now_s)
            case Done(command=Score(lane)):
                del claimed[lane]
                span(lane, entry.start_s, entry.at_s)
            case Done(command=Train(names)):
                for lane in names:
                    del claimed[lane]
                    span(lane, entry.start_s, entry.at_s)
    for lane, since_s in wet.items():
        span(lane, since_s, now_s)
    settled = {
        device: min([now_s, *(at_s for lane, at_s in claimed.items() if device in devices[lane])])
        for device in spans
    }
    return {device: _union(spans[device], settled[device]) for device in spans}


def _union(spans: Iterable[tuple[float, float]], until_s: float) -> float:
    """By sweeping over starts (+1) and ends (-1)."""
    edges = [
        (min(at_s, until_s), way) for span in spans for at_s, way in zip(span, (-1, 1), strict=True)
    ]
    total = since_s = 0.0
    depth = 0
    for at_s, way in sorted(edges):
        if depth:
            total += at_s - since_s
        since_s = at_s
        depth -= way
    return total


def most_on_a_lane(log: Iterable[Entry]) -> Mapping[str, int]:
    """The most rollouts that a lane ever ran or kept the cache of."""
    at: dict[int, str] = {}  # running, or paused with its cache
    running: set[int] = set()
    most: dict[str, int] = {}
    for entry in log:
        match entry:
            case Generate(lane, starts):
                at |= {rollout: lane for rollout, _ in starts}
                running |= {rollout for rollout, _ in starts}
                most[lane] = max(most.get(lane, 0), sum(where == lane for where in at.values()))
            case Finished(rollout=rollout):
                del at[rollout]
                running.remove(rollout)
            case Paused(counts=counts, kv_kept=kept):
                for rollout, _ in counts:
                    running.remove(rollout)
                    if not kept:
                        del at[rollout]
            case Drop(rollouts):
                for rollout in rollouts:
                    at.pop(rollout, None)
            case Done(command=Sync(kv="recompute")):
                at = {rollout: lane for rollout, lane in at.items() if rollout in running}
    return most


def prefilled_again(log: Iterable[Entry]) -> tuple[int, int]:
    """At least, and at most, how many response tokens were prefilled again by the last Sync.

    A log does not show prefills. At most: whatever began without its cache. At least: of these, who
    has decoded since.
    """
    least = most = 0
    bounds = (0, 0)
    kept: set[int] = set()
    due: dict[int, int] = {}

    def decoded(counts: Iterable[tuple[int, int]]) -> int:
        return sum(due.pop(r) for r, tokens in counts if tokens > due.get(r, tokens))

    for entry in log:
        match entry:
            case Generate(starts=starts):
                due |= {r: tokens for r, tokens in starts if r not in kept}
                most += sum(tokens for r, tokens in starts if r not in kept)
                kept -= {r for r, _ in starts}
            case Finished() | Emitted():
                least += decoded(known_counts(entry))
            case Paused(counts=counts, kv_kept=is_kept):
                least += decoded(counts)
                for rollout, _ in counts:
                    least += due.pop(rollout, 0) if is_kept else 0
                    due.pop(rollout, None)
                kept |= {r for r, _ in counts} if is_kept else set()
            case Drop(rollouts):
                kept -= set(rollouts)
            case Done(command=Sync(kv=kv), counts=counts):
                least += decoded(counts)
                bounds = least, most
                if kv == "recompute":
                    kept.clear()
                    due |= dict(counts)
                    most += sum(tokens for _, tokens in counts)
    return bounds

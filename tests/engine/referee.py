"""A referee reads a run's log against the rules of the contract, whatever machine made it.

Nothing here depends on what anything costs: of time it asks only for order. Numbers are those of
the rules in `oppo_sim/engine/contract.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from oppo_sim.engine.contract import (
    Done,
    Drop,
    Emitted,
    Entry,
    Event,
    Failed,
    Finished,
    Generate,
    Lane,
    Pause,
    Paused,
    Score,
    Sync,
    Train,
)

KINDS = (Finished, Emitted, Paused, Done, Failed)


class Worked(NamedTuple):
    """A score or an update, from its start to its end."""

    command: Score | Train
    devices: frozenset[str]
    start_s: float
    end_s: float


class Referee:
    """Complains with an AssertionError that names the rule."""

    def __init__(self, lanes: Sequence[Lane], cap_tokens: int) -> None:
        self._lanes = {lane.name: lane for lane in lanes}
        self._places = {lane.name: place for place, lane in enumerate(lanes)}
        self._cap_tokens = cap_tokens
        self._running: dict[str, dict[int, int]] = {name: {} for name in self._lanes}
        self._round: dict[str, dict[int, int] | None] = {}  # counts when the round opened
        self._chunk: dict[str, int | None] = {}  # of the lane's round
        self._next_chunk: dict[str, int | None] = {}
        self._placed: set[int] = set()  # since then no emission has named them
        self._pausing: set[int] = set()
        self._scoring: dict[str, Score] = {}
        self._scored: dict[int, int] = {}  # tokens that the scorer has read, or reads now
        self._training: Train | None = None
        self._syncing: Sync | None = None
        self._worked: list[Worked] = []

    def read(self, log: Iterable[Entry]) -> None:
        instant: list[Event] = []
        for entry in log:
            if isinstance(entry, KINDS):
                if instant and entry.at_s < instant[-1].at_s:
                    raise AssertionError(f"9: {entry} after {instant[-1]}")
                instant = [e for e in instant if e.at_s == entry.at_s] + [entry]
            else:
                instant = []
            self._entry(entry)
        for one in self._worked:
            for other in self._worked:
                if isinstance(one.command, Train) and isinstance(other.command, Score):
                    apart = one.end_s <= other.start_s or other.end_s <= one.start_s
                    shared = one.devices & other.devices
                    assert apart or not shared, f"7: {one} and {other} at once on {set(shared)}"

    def _entry(self, entry: Entry) -> None:
        match entry:
            case Generate():
                self._generate(entry)
            case Pause(lane, rollouts):
                there = set(self._running[lane])
                assert set(rollouts) <= there, f"5: {entry} where {there} run"
                self._pausing.update(rollouts)
            case Finished(_, lane, rollout, tokens):
                known = self._running[lane].pop(rollout)
                assert known < tokens <= self._cap_tokens, f"3: {entry}, which had {known}"
                self._pausing.discard(rollout)
                self._close_if_dry(lane)
            case Emitted():
                self._emitted(entry)
            case Paused():
                self._paused(entry)
            case Score():
                self._score(entry)
            case Train(lanes):
                assert self._training is None, "7: one update at a time"
                devices = self._devices(lanes)
                for name, running in self._running.items():
                    shared = devices & set(self._lanes[name].devices)
                    assert not (running and shared), f"7: {entry} while {name} runs {set(running)}"
                self._training = entry
            case Sync():
                assert self._syncing is None, "8: one weight swap at a time"
                self._syncing = entry
            case Drop(rollouts):
                running = {r for lane in self._running.values() for r in lane}
                assert not running & set(rollouts), f"{entry} of what runs"
                for rollout in rollouts:
                    self._scored.pop(rollout, None)
            case Done():
                self._done(entry)

    # actors

    def _generate(self, command: Generate) -> None:
        lane = command.lane
        if not self._running[lane]:
            self._round[lane] = dict(command.starts)
            self._chunk[lane] = command.chunk_tokens
        self._next_chunk[lane] = command.chunk_tokens
        running = {r for rows in self._running.values() for r in rows}
        self._placed.update([rollout for rollout, _ in command.starts])
        for rollout, tokens in command.starts:
            assert rollout not in running, f"3: {rollout} runs already"
            self._running[lane][rollout] = tokens
        assert len(self._running[lane]) <= self._lanes[lane].slots, f"{lane} has no such slots"

    def _emitted(self, event: Emitted) -> None:
        running, opened = self._running[event.lane], self._round[event.lane]
        assert event.counts, "4: an emission is never empty"
        assert list(event.counts) == sorted(event.counts), f"9: {event}"
        named = {rollout for rollout, _ in event.counts}
        late = running.keys() - named  # placed while the lane's last token was decoded
        assert named <= running.keys(), f"4: {event} where {running} run"
        assert late <= self._placed, f"4: {event} forgets {late - self._placed}"
        self._placed -= named
        for rollout, tokens in event.counts:
            assert tokens >= running[rollout]
            if opened and rollout in opened:
                decoded, chunk = tokens - opened[rollout], self._chunk[event.lane]
                assert decoded == chunk, f"4: a round of {chunk} decoded {decoded} of {rollout}"
        running.update(event.counts)
        self._round[event.lane] = dict(event.counts)
        self._chunk[event.lane] = self._next_chunk[event.lane]

    def _paused(self, event: Paused) -> None:
        running = self._running[event.lane]
        assert event.counts, "5: a pause names who paused"
        assert list(event.counts) == sorted(event.counts), f"9: {event}"
        for rollout, tokens in event.counts:
            assert tokens >= running.pop(rollout), f"5: {event}"
            if event.why == "asked":
                assert rollout in self._pausing, f"5: nobody asked to pause {rollout}"
            else:
                assert not event.kv_kept, "a preempted rollout keeps no cache"
            self._pausing.discard(rollout)
        self._close_if_dry(event.lane)

    def _close_if_dry(self, lane: str) -> None:
        if not self._running[lane]:
            self._round[lane] = None
        opened = self._round[lane]
        if opened:
            self._round[lane] = {r: t for r, t in opened.items() if r in self._running[lane]}

    # scores, updates, weights

    def _score(self, command: Score) -> None:
        assert command.lane not in self._scoring, f"6: one at a time on {command.lane}"
        for chunk in command.chunks:
            read = self._scored.get(chunk.rollout, 0)
            assert chunk.start in (0, read), f"6: {chunk} after {read} tokens"
            assert chunk.start < chunk.end <= self._cap_tokens
            self._scored[chunk.rollout] = chunk.end
        self._scoring[command.lane] = command

    def _done(self, event: Done) -> None:
        assert event.start_s <= event.at_s
        match event.command:
            case Score() as score:
                assert self._scoring.pop(score.lane) == score
                last = [chunk.rollout for chunk in score.chunks if chunk.last]
                assert [rollout for rollout, _ in event.rewards] == last, f"6: {event}"
                devices = self._devices((score.lane,))
                self._worked.append(Worked(score, devices, event.start_s, event.at_s))
            case Train() as train:
                assert self._training == train
                self._training = None
                devices = self._devices(train.lanes)
                self._worked.append(Worked(train, devices, event.start_s, event.at_s))
                for rollout in train.rollouts:
                    self._scored.pop(rollout, None)
            case Sync() as sync:
                assert self._syncing == sync
                self._syncing = None
                running = {r: t for lane in sync.lanes for r, t in self._running[lane].items()}
                assert dict(event.counts).keys() == running.keys(), f"8: {event}, {running} run"
                for lane in sync.lanes:
                    for rollout, tokens in event.counts:
                        if rollout in self._running[lane]:
                            assert tokens >= self._running[lane][rollout], f"8: {event}"
                            self._running[lane][rollout] = tokens

    def _devices(self, lanes: Iterable[str]) -> frozenset[str]:
        return frozenset(device for name in lanes for device in self._lanes[name].devices)

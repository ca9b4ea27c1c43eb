"""TorchBackend: the contract of `oppo_sim.engine` over lanes that really work."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from oppo_real.machine.hosts import Broken, Host
from oppo_real.machine.messages import Cache, Go, Join, Learn, News, Read, Save, Stop, Swap, Weights
from oppo_real.machine.store import Store
from oppo_sim.engine.contract import (
    Command,
    Counts,
    Done,
    Drop,
    EngineError,
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


class Clock:
    """Seconds since the run began; a resumed run goes on from `from_s`."""

    def __init__(self, from_s: float = 0.0) -> None:
        self._began_s = time.monotonic() - from_s

    def __call__(self) -> float:
        return time.monotonic() - self._began_s


class TorchBackend:
    """A Backend. Use it as a context manager: it ends its lanes' threads and processes.

    `updated(update, stats)` hears what an update says of itself.
    """

    def __init__(
        self,
        lanes: Sequence[Lane],
        host: Host,
        store: Store,
        updated: Callable[[int, Mapping[str, float]], None] = lambda update, stats: None,
    ) -> None:
        self._lanes = {lane.name: lane for lane in lanes}
        self._actors = [lane.name for lane in lanes if lane.kind == "actor"]
        self._scorers = [lane.name for lane in lanes if lane.kind == "scorer"]
        self._host, self.store, self._updated = host, store, updated
        self._now_s = 0.0
        self._running: dict[int, str] = {}  # rollout -> its lane
        self._waiting: list[Score | Train] = []  # for their lane or their devices
        self._working: list[Score | Train] = []
        self._sync: _Syncing | None = None
        self._standing: tuple[str, ...] = ()  # lanes that a finished Sync still holds
        self._early: deque[tuple[str, News | Broken]] = deque()  # taken, not read yet
        self._weights: Weights | None = None  # of the latest update; None: shared with the actors

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._host.close()

    def lanes(self) -> Mapping[str, Lane]:
        return self._lanes

    @property
    def scoring(self) -> tuple[Score, ...]:
        """Scores that were asked for and have not been answered."""
        asked = (*self._working, *self._waiting)
        return tuple([command for command in asked if isinstance(command, Score)])

    def kept(self) -> dict[str, Mapping[int, Cache]]:
        """Between two steps: the caches of paused rollouts, by lane."""
        kept: dict[str, Mapping[int, Cache]] = {}
        for lane in self._standing:
            self._host.give(lane, Save())
        while len(kept) < len(self._standing):
            lane, news = self._host.take()
            if isinstance(news, Broken) or news.kept is None:
                self._early.append((lane, news))
            else:
                kept[lane] = news.kept
        return kept

    def submit(self, *commands: Command) -> None:
        for command in commands:
            match command:
                case Generate(lane, starts):
                    rows = [self.store.start(rollout, tokens) for rollout, tokens in starts]
                    contexts = tuple([(row.prompt, tuple(row.ids)) for row in rows])
                    self._running |= {rollout: lane for rollout, _ in starts}
                    self._host.give(lane, Join(command, contexts))
                case Pause(lane):
                    self._host.give(lane, command)
                case Score() | Train():
                    self._waiting.append(command)
                case Sync(lanes):
                    self._sync = _Syncing(command, set(lanes))
                    for lane in lanes:
                        self._host.give(lane, Stop(command))
                case Drop(rollouts):
                    self._forget(rollouts)
        self._start_waiting()

    def wait(self, finishes: int = 1) -> Sequence[Event]:
        if not (self._running or self._working or self._waiting or self._sync):
            raise EngineError("the machine has nothing to do, and nothing was asked of it")
        for lane in self._standing:
            self._host.give(lane, Go())
        self._standing = ()
        self._host.answered()
        while True:
            lane, news = self._early.popleft() if self._early else self._host.take()
            events = self._broken(lane, news) if isinstance(news, Broken) else self._read(news)
            if events:
                return events

    # news

    def _read(self, news: News) -> list[Event]:
        self.store.decoded(news.decoded)
        events = [self._stamped(event) for event in news.events]
        for event in events:
            match event:
                case Finished(_, _, rollout, _, reason):
                    del self._running[rollout]
                    self.store.rows[rollout].ended = reason
                case Paused(counts=counts):
                    for rollout, _ in counts:
                        del self._running[rollout]
                case Done(command=Score() as score):
                    self._working.remove(score)
                    self.store.scored(score.chunks, news.scored)
                case Done(command=Train() as train):
                    self._working.remove(train)
                    self._weights = news.weights
                    self._updated(train.update, news.stats)
                    self._forget(train.rollouts)
        if news.stopped or news.swapped:
            events += self._synced(news)
        self._start_waiting()
        return events

    def _synced(self, news: News) -> list[Event]:
        """The halves of a Sync: swap when the last lane has stopped, done when the last swapped."""
        sync = self._sync
        assert sync is not None
        if news.stopped:
            sync.stopping -= 1
            sync.counts += news.counts
            sync.start_s = max(sync.start_s, news.at_s)
            if not sync.stopping:
                for lane in sync.command.lanes:
                    self._host.give(lane, Swap(sync.command, self._weights))
            return []
        sync.swapping -= 1
        sync.kv_peak_tokens = max(sync.kv_peak_tokens, news.kv_peak_tokens)
        sync.reprefilled_tokens += news.reprefilled_tokens
        if sync.swapping:
            return []
        self._sync, self._standing = None, sync.command.lanes
        command, counts = sync.command, tuple(sorted(sync.counts))
        lane, peak, again = command.lanes[0], sync.kv_peak_tokens, sync.reprefilled_tokens
        done = Done(news.at_s, lane, command, sync.start_s, (), counts, peak, again)
        return [self._stamped(done)]

    def _stamped(self, event: Event) -> Event:
        """Lanes stamp for themselves: news that overtook an earlier one is put right."""
        self._now_s = max(self._now_s, event.at_s)
        return event if event.at_s == self._now_s else event._replace(at_s=self._now_s)

    def _broken(self, lane: str, broken: Broken) -> list[Event]:
        if broken.command is None:
            raise EngineError(f"lane {lane} broke down: {broken.why}")
        return [Failed(self._now_s, lane, broken.command, broken.rollouts, broken.why)]

    # scores and updates, which share lanes and devices

    def _start_waiting(self) -> None:
        for command in [*self._waiting]:
            before = self._waiting[: self._waiting.index(command)]
            if any(self._goes_first(other, command) for other in (*self._working, *before)):
                continue
            self._waiting.remove(command)
            self._working.append(command)
            if isinstance(command, Score):
                chunks = tuple([self.store.chunk(chunk) for chunk in command.chunks])
                self._host.give(command.lane, Read(command, chunks))
            else:
                batch = self.store.batch(command.rollouts)
                self._host.give(command.lanes[0], Learn(command, batch))

    def _goes_first(self, earlier: Score | Train, later: Score | Train) -> bool:
        if isinstance(earlier, Score) and isinstance(later, Score):
            return earlier.lane == later.lane
        return not self._devices(earlier).isdisjoint(self._devices(later))

    def _devices(self, command: Score | Train) -> set[str]:
        names = (command.lane,) if isinstance(command, Score) else command.lanes
        return {device for name in names for device in self._lanes[name].devices}

    def _forget(self, rollouts: Sequence[int]) -> None:
        self.store.forget(rollouts)
        for lane in (*self._actors, *self._scorers):
            self._host.give(lane, Drop(tuple(rollouts)))


class _Syncing:
    """A Sync on its way."""

    def __init__(self, command: Sync, lanes: set[str]) -> None:
        self.command = command
        self.stopping = self.swapping = len(lanes)
        self.start_s = 0.0
        self.counts: Counts = ()
        self.kv_peak_tokens = self.reprefilled_tokens = 0

"""What devices do with their time, and how much of it counts as utilisation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from oppo_sim.engine import Lane
from oppo_sim.engine.contract import (
    Done,
    Entry,
    Finished,
    Generate,
    Paused,
    Plan,
    Score,
    Take,
    Train,
)


class Spent(NamedTuple):
    """Shares of all devices' time. What is missing to 1 is idle."""

    decode: float  # an actor with at least one rollout
    wait: float  # an actor with none left, before the batch is complete
    score: float
    train: float

    def counted(self, decode: float, wait: float) -> float:
        """The utilisation, if decoding and waiting count so much; scoring and training count 1."""
        return decode * self.decode + wait * self.wait + self.score + self.train


class Spending:
    """A listener of a run in which no two lanes work on a device at once (see `is_known`)."""

    def __init__(self, lanes: Iterable[Lane]) -> None:
        lanes = tuple(lanes)
        self._devices = {lane.name: lane.devices for lane in lanes}
        self._running = {lane.name: 0 for lane in lanes if lane.kind == "actor"}
        self._since_s = dict.fromkeys(self._running, 0.0)
        self._seconds = dict.fromkeys(Spent._fields, 0.0)
        self._now_s = 0.0
        self._is_open = False  # a step has begun whose batch is not complete

    @staticmethod
    def is_known(lanes: Iterable[Lane]) -> bool:
        """Whether actors and scorers have devices of their own; training waits for both."""
        devices = [d for lane in lanes if lane.kind != "trainer" for d in lane.devices]
        return len(devices) == len(set(devices))

    def spent(self, end_s: float) -> Spent:
        """Of the time until the end of the run."""
        self._now_s = end_s
        self._settle_all()
        whole_s = end_s * len({d for devices in self._devices.values() for d in devices})
        return Spent(**{name: s / whole_s if whole_s else 0.0 for name, s in self._seconds.items()})

    def __call__(self, entry: Entry) -> None:
        match entry:
            case Finished():
                self._now_s = entry.at_s
                self._change(entry.lane, -1)
            case Generate():
                self._change(entry.lane, len(entry.starts))
            case Paused():
                self._now_s = entry.at_s
                self._change(entry.lane, -len(entry.counts))
            case Done():
                self._now_s = entry.at_s
                self._add(entry)
            case Plan():
                self._settle_all()
                self._is_open = True
            case Take():
                self._settle_all()
                self._is_open = False

    def _add(self, done: Done) -> None:
        named: tuple[str, ...]
        match done.command:
            case Score():
                task, named = "score", (done.lane,)
            case Train(lanes=named):
                task = "train"
            case _:
                return
        devices = {device for lane in named for device in self._devices[lane]}
        self._seconds[task] += (done.at_s - done.start_s) * len(devices)

    def _change(self, lane: str, by: int) -> None:
        self._settle(lane)
        self._running[lane] += by

    def _settle_all(self) -> None:
        for lane in self._running:
            self._settle(lane)

    def _settle(self, lane: str) -> None:
        """Count what has passed since the lane changed last."""
        passed_s = (self._now_s - self._since_s[lane]) * len(self._devices[lane])
        if self._running[lane]:
            self._seconds["decode"] += passed_s
        elif self._is_open:
            self._seconds["wait"] += passed_s
        self._since_s[lane] = self._now_s

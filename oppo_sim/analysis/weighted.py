"""Busy seconds that count a decoding device by how many of its rollouts still run."""

from __future__ import annotations

from collections.abc import Iterable

from oppo_sim.engine import Lane
from oppo_sim.engine.contract import Done, Entry, Finished, Generate, Paused, Plan, Score, Train


class Weighted:
    """A listener of a run in which no two lanes work on a device at once (see `is_known`).

    While an actor decodes, its devices count by rollouts running / most that ran in the same step.
    Scoring and training count in full.
    """

    def __init__(self, lanes: Iterable[Lane]) -> None:
        lanes = tuple(lanes)
        self.busy_s = {device: 0.0 for lane in lanes for device in lane.devices}
        self._devices = {lane.name: lane.devices for lane in lanes}
        self._running = {lane.name: 0 for lane in lanes if lane.kind == "actor"}
        self._most = dict(self._running)
        self._since_s = dict.fromkeys(self._running, 0.0)
        self._now_s = 0.0

    @staticmethod
    def is_known(lanes: Iterable[Lane]) -> bool:
        """Whether actors and scorers have devices of their own; training waits for both."""
        devices = [d for lane in lanes if lane.kind != "trainer" for d in lane.devices]
        return len(devices) == len(set(devices))

    def share(self, end_s: float) -> float:
        """Of the devices' time until the end of the run."""
        self._now_s = end_s
        for lane in self._running:
            self._settle(lane)
        return sum(self.busy_s.values()) / (end_s * len(self.busy_s)) if end_s else 0.0

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
            case Done(command=Score() | Train()):
                self._now_s = entry.at_s
                named = entry.command.lanes if isinstance(entry.command, Train) else (entry.lane,)
                for device in dict.fromkeys(d for lane in named for d in self._devices[lane]):
                    self.busy_s[device] += entry.at_s - entry.start_s
            case Done():
                self._now_s = entry.at_s
            case Plan():
                for lane, running in self._running.items():
                    self._settle(lane)
                    self._most[lane] = running

    def _change(self, lane: str, by: int) -> None:
        self._settle(lane)
        running = self._running[lane] = self._running[lane] + by
        if running > self._most[lane]:
            self._most[lane] = running

    def _settle(self, lane: str) -> None:
        """Count what has passed since the lane's number changed last."""
        running, now_s = self._running[lane], self._now_s
        if running:
            weighted_s = (now_s - self._since_s[lane]) * running / self._most[lane]
            for device in self._devices[lane]:
                self.busy_s[device] += weighted_s
        self._since_s[lane] = now_s

"""A listener that counts a decoding device by how many of its rollouts still run."""

from __future__ import annotations

from collections.abc import Iterable

from oppo_sim.engine import Lane
from oppo_sim.engine.contract import Done, Entry, Finished, Generate, Paused, Plan, Score, Train


class Weighted:
    """Weighted busy seconds by device, for a run whose actors and scorers share no device.

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

    def __call__(self, entry: Entry) -> None:
        match entry:
            case Plan():
                for lane, running in self._running.items():
                    self._settle(lane)
                    self._most[lane] = running
            case Generate():
                self._change(entry.lane, len(entry.starts))
            case Finished():
                self._now_s = entry.at_s
                self._change(entry.lane, -1)
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

    def _change(self, lane: str, by: int) -> None:
        self._settle(lane)
        self._running[lane] += by
        self._most[lane] = max(self._most[lane], self._running[lane])

    def _settle(self, lane: str) -> None:
        """Count what has passed since the lane's number changed last."""
        seconds, self._since_s[lane] = self._now_s - self._since_s[lane], self._now_s
        if self._running[lane]:
            for device in self._devices[lane]:
                self.busy_s[device] += seconds * self._running[lane] / self._most[lane]

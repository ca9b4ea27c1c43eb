"""Busy seconds per device, from what the engine hears of its lanes."""

from __future__ import annotations

from collections.abc import Iterable

from oppo_sim.engine.contract import Lane


class Occupancy:
    """The union of the tasks on each device, settled once per step.

    Actor lanes are busy from the first rollout placed to the last one gone. A score or a training
    counts from its own start, which is known when it is done: what happened on its devices since it
    was claimed is settled then.
    """

    def __init__(self, lanes: Iterable[Lane]) -> None:
        self._devices = {lane.name: lane.devices for lane in lanes}
        names = dict.fromkeys(device for devices in self._devices.values() for device in devices)
        self._tasks: dict[str, list[tuple[float, float]]] = {device: [] for device in names}
        self._since: dict[str, float] = {}  # decoding lanes
        self._claims: dict[str, float] = {}  # lanes with a score or a training in flight

    def begin(self, lane: str, at_s: float) -> None:
        self._since[lane] = at_s

    def end(self, lane: str, at_s: float) -> None:
        self._add(lane, self._since.pop(lane), at_s)

    def claim(self, lane: str, at_s: float) -> None:
        self._claims[lane] = at_s

    def release(self, lane: str, start_s: float, end_s: float) -> None:
        del self._claims[lane]
        self._add(lane, start_s, end_s)

    def settle(self, now_s: float) -> dict[str, float]:
        """Busy seconds of each device since the last settlement, as far as they are known."""
        for lane, since_s in self._since.items():
            self._add(lane, since_s, now_s)
            self._since[lane] = now_s
        horizon = dict.fromkeys(self._tasks, now_s)
        for lane, claimed_s in self._claims.items():
            for device in self._devices[lane]:
                horizon[device] = min(horizon[device], claimed_s)
        return {device: self._settle(device, until_s) for device, until_s in horizon.items()}

    def _add(self, lane: str, start_s: float, end_s: float) -> None:
        for device in self._devices[lane]:
            self._tasks[device].append((start_s, end_s))

    def _settle(self, device: str, until_s: float) -> float:
        busy_s, reached_s, later = 0.0, 0.0, []
        for start_s, end_s in sorted(self._tasks[device]):
            if end_s > until_s:
                later.append((max(start_s, until_s), end_s))
                end_s = until_s
            start_s = max(start_s, reached_s)
            if end_s > start_s:
                busy_s += end_s - start_s
                reached_s = end_s
        self._tasks[device] = later
        return busy_s

"""What runs on scorers and trainers: one task at a time per device, decoding apart."""

from __future__ import annotations

from collections.abc import Callable

from oppo_sim.simulator.clock import Clock


class Task:
    """Work on some devices. Its pace may change while it runs; what is left takes the new one."""

    __slots__ = (
        "_epoch",
        "_left_s",
        "_pace",
        "_since_s",
        "devices",
        "done",
        "lane",
        "seconds",
        "start",
        "start_s",
        "tokens",
    )

    def __init__(
        self,
        lane: str,
        devices: tuple[str, ...],
        start: Callable[[], float],
        done: Callable[[float, float], None],
        tokens: int = 0,
    ) -> None:
        self.tokens = tokens  # of the call: how much other work slows it may depend on that
        self.lane = lane
        self.devices = devices
        self.start = start  # called when the devices are free; returns the seconds of work
        self.done = done  # called with start and end
        self.start_s = self._since_s = self._left_s = 0.0
        self._pace = 1.0  # wall seconds per second of work
        self._epoch = 0

    def begin(
        self, clock: Clock, now_s: float, pace: float, end: Callable[[Task, float], None]
    ) -> None:
        self.start_s = self._since_s = now_s
        self._left_s = self.start()
        self._pace = pace
        self._set_end(clock, now_s, end)

    def set_pace(
        self, clock: Clock, now_s: float, pace: float, end: Callable[[Task, float], None]
    ) -> None:
        if pace == self._pace:
            return
        self._left_s -= (now_s - self._since_s) / self._pace
        self._since_s, self._pace = now_s, pace
        self._set_end(clock, now_s, end)

    def _set_end(self, clock: Clock, now_s: float, end: Callable[[Task, float], None]) -> None:
        self._epoch += 1
        epoch, end_s = self._epoch, now_s + self._left_s * self._pace
        clock.at(end_s, Clock.TASK, lambda: end(self, end_s) if epoch == self._epoch else None)


class Tasks:
    """The running tasks and those that wait for their devices, first come, first served."""

    def __init__(
        self,
        clock: Clock,
        pace: Callable[[Task], float],
        changed: Callable[[float], None],
    ) -> None:
        self._clock = clock
        self._changed = changed  # called when other tasks run than before
        self._pace_of = pace  # wall seconds per second of its work now
        self.running: list[Task] = []
        self._waiting: list[Task] = []

    def submit(self, task: Task, now_s: float) -> None:
        self._waiting.append(task)
        self._start(now_s)

    def pace_changed(self, now_s: float) -> None:
        """What runs beside the tasks has changed."""
        for task in self.running:
            task.set_pace(self._clock, now_s, self._pace_of(task), self._end)

    def _end(self, task: Task, now_s: float) -> None:
        self.running.remove(task)
        task.done(task.start_s, now_s)
        self._start(now_s)

    def _start(self, now_s: float) -> None:
        claimed = {device for task in self.running for device in task.devices}
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            if claimed.isdisjoint(task.devices):
                self.running.append(task)
                task.begin(self._clock, now_s, self._pace_of(task), self._end)
            else:
                self._waiting.append(task)
            claimed.update(task.devices)
        self._changed(now_s)

"""SimPy's event queue, addressed by absolute time."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush

import simpy


class Clock(simpy.Environment):
    """An environment whose callbacks are set for an instant rather than after a delay.

    Stamps come from closed forms (`anchor + n * token_s`); going through `now + (stamp - now)`
    would lose their last bits, and with them the ties between lanes. What is overtaken by events
    stays queued: its owner ignores it.
    """

    TOKEN, BOUNDARY, TASK = (
        0,
        1,
        2,
    )  # at one instant: ends of rounds, then what waited for a boundary, then tasks

    def at(self, at_s: float, order: int, callback: Callable[[], None]) -> None:
        event = simpy.Event(self)
        event._ok, event._value = True, None
        event.callbacks = [lambda _: callback()]
        heappush(self._queue, (at_s, order, next(self._eid), event))  # type: ignore[misc]

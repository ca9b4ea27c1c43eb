"""Repeat a measurement until its median is known well enough, or its time is up."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import sqrt
from statistics import median, quantiles
from typing import NamedTuple

WITHIN = 0.02  # of the median: as well as a point is asked to be known
LEAST, MOST = 3, 60  # repetitions


class Timing(NamedTuple):
    """Seconds of one call: the median, and how well it is known."""

    seconds: float
    error: float  # a standard error, as a share of the median
    repeats: int


class Budget:
    """Seconds that a profile may take, shared out as it goes on."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end_s = clock() + seconds

    @property
    def left_s(self) -> float:
        return max(0.0, self._end_s - self._clock())

    def share(self, points: int, most_s: float = 6.0) -> float:
        """For one of so many points that are still to come."""
        return min(most_s, self.left_s / max(1, points))


def timing(seconds: Sequence[float]) -> Timing:
    """Of repeated calls. The median's standard error is 1.25 sigma / sqrt(n), as of a normal law,
    and sigma the distance of the quartiles / 1.35: a single stall does not count."""
    middle = median(seconds)
    low, _, high = quantiles(seconds, n=4, method="inclusive") if len(seconds) > 1 else [middle] * 3
    sigma = (high - low) / 1.349
    return Timing(middle, 1.2533 * sigma / sqrt(len(seconds)) / middle, len(seconds))


def steady(
    once: Callable[[], float],
    budget_s: float,
    *,
    warm_up: int = 1,
    least: int = LEAST,
    most: int = MOST,
    clock: Callable[[], float] = time.monotonic,
) -> Timing:
    """`once()` does the work and says how many seconds it took; the first ones do not count."""
    for _ in range(warm_up):
        once()
    end_s = clock() + budget_s
    seconds: list[float] = []
    while True:
        seconds.append(once())
        if len(seconds) < least:
            continue
        found = timing(seconds)
        if found.error <= WITHIN or len(seconds) >= most or clock() >= end_s:
            return found

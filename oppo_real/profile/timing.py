"""Times of one thing that is done again and again, and how long to go on with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from math import sqrt
from statistics import fmean, median, quantiles
from typing import NamedTuple

from oppo_sim.costs.measurements import Row

WITHIN = 0.01  # of the mean: as well as a point is asked to be known
STALL = 1.5  # medians: no time counts for more
MOST = 200  # times of one thing

Clock = Callable[[], float]


class Timing(NamedTuple):
    """Seconds of one call: the mean, and how well it is known."""

    seconds: float
    error: float  # a standard error, as a share of the mean
    repeats: int


def timing(seconds: Sequence[float]) -> Timing:
    """Of repeated calls.

    A run takes the sum of its calls, so it is the mean that counts, and calls are skewed; but one
    long stall must not, so none counts for more than STALL medians. The standard error takes the
    distance of the quartiles / 1.349 for sigma, as of a normal law.
    """
    most = STALL * median(seconds)
    mean = fmean([min(time_s, most) for time_s in seconds])
    low, _, high = quantiles(seconds, n=4, method="inclusive") if len(seconds) > 1 else (mean,) * 3
    return Timing(mean, (high - low) / 1.349 / sqrt(len(seconds)) / mean, len(seconds))


class Series:
    """All times of one thing, over all passes; `row` makes a table's row of its mean."""

    def __init__(self, row: Callable[[float], Row] | None = None) -> None:
        self._row = row
        self.seconds: list[float] = []

    def __bool__(self) -> bool:
        return bool(self.seconds)

    @property
    def timing(self) -> Timing:
        return timing(self.seconds)

    def add(self, seconds: float | Iterable[float]) -> None:
        self.seconds += [seconds] if isinstance(seconds, float) else seconds

    def repeat(
        self,
        once: Callable[[], float],
        share_s: float,
        *,
        least: int = 1,
        clock: Clock = time.monotonic,
    ) -> None:
        """`once()` does the work and says how many seconds it took: for that long, or until all
        times together are known well, but `least` times."""
        end_s = clock() + share_s
        done = 0
        while True:
            self.seconds.append(once())
            done += 1
            if done < least:
                continue
            is_known = len(self.seconds) > 2 and self.timing.error <= WITHIN
            if is_known or len(self.seconds) >= MOST or clock() >= end_s:
                return

    def row(self) -> tuple[Row, Timing]:
        assert self._row is not None
        return self._row(self.timing.seconds), self.timing

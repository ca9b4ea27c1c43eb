"""Means with 95 % intervals (or others): of independent values, of ratios, of a series."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log, sqrt
from typing import NamedTuple

from scipy.special import stdtrit

CONFIDENCE = 0.95
MOST_BATCHES = 20
LEAST_BATCHES = 4
LEAST_BATCH = 10


class Mean(NamedTuple):
    """A mean and its interval; low and high are None where there are too few values for one."""

    mean: float
    low: float | None
    high: float | None

    def includes(self, value: float) -> bool:
        """Whether the interval does; where there is none, nothing is known to be in it."""
        return self.low is not None and self.high is not None and self.low <= value <= self.high


def of_independent(values: Sequence[float], confidence: float = CONFIDENCE) -> Mean:
    """Student's t over independent values, such as one per seed; no interval for a single one."""
    mean = sum(values) / len(values)
    half = _half_width(values, confidence)
    return Mean(mean, None, None) if half is None else Mean(mean, mean - half, mean + half)


def of_ratios(ratios: Sequence[float], confidence: float = CONFIDENCE) -> Mean:
    """The geometric mean of independent ratios, such as one per seed.

    Student's t on their logarithms: neither bound can be negative, and the inverse ratios have the
    inverse mean and interval.
    """
    mean, low, high = of_independent([log(ratio) for ratio in ratios], confidence)
    return Mean(exp(mean), None if low is None else exp(low), None if high is None else exp(high))


def of_series(values: Sequence[float]) -> Mean:
    """The mean of an autocorrelated series, with an interval by batch means.

    Successive steps share rollouts, so they are not independent. The series is cut into up to 20
    stretches of equal length, at least 10 values each, whose means nearly are; Student's t over
    those gives the half-width around the mean of all values. The first len % stretches values do
    not enter the width. No interval for fewer than 4 stretches, that is 40 values.
    """
    mean = sum(values) / len(values)
    batches = min(MOST_BATCHES, len(values) // LEAST_BATCH)
    if batches < LEAST_BATCHES:
        return Mean(mean, None, None)
    size = len(values) // batches
    first = len(values) - size * batches
    starts = range(first, len(values), size)
    half = _half_width([sum(values[start : start + size]) / size for start in starts])
    assert half is not None
    return Mean(mean, mean - half, mean + half)


def _half_width(values: Sequence[float], confidence: float = CONFIDENCE) -> float | None:
    count = len(values)
    if count < 2:
        return None
    mean = sum(values) / count
    variance = sum((value - mean) ** 2 for value in values) / (count - 1)
    return float(stdtrit(count - 1, 0.5 + confidence / 2)) * sqrt(variance / count)

"""A grade for a simulator's error, with its thresholds."""

from __future__ import annotations

from typing import NamedTuple


class Bar(NamedTuple):
    """What a grade asks for, as fractions; `tau` at least."""

    grade: str
    median: float  # of the absolute error of a step; no less than the repeat spread
    worst: float  # the same of the worst schedule
    speedup: float
    tau: float


BARS = (
    Bar("A", 0.05, 0.10, 0.04, 1.0),
    Bar("B", 0.08, 0.15, 0.06, 0.9),
    Bar("C", 0.12, 0.20, 0.10, 0.8),
    Bar("D", 0.20, 0.30, 0.15, 0.6),
    Bar("E", 0.35, 0.50, 0.25, 0.3),
)
NOISY = 0.10  # a repeat spread above it: the runs cannot tell


def grade(
    *,
    median_abs_error: float,
    worst_abs_error: float,
    speedup_error: float | None,
    repeat_spread: float | None,
    tau: float | None,
) -> str:
    """A to F by the first bar that all is under; what is not known (None) fails none.

    A step's error need not be below what the machine differs from itself, unless that is above
    NOISY.
    """
    spread = repeat_spread or 0.0
    noise = spread if spread <= NOISY else 0.0
    for bar in BARS:
        if (
            median_abs_error <= max(bar.median, noise)
            and worst_abs_error <= bar.worst
            and (speedup_error is None or speedup_error <= bar.speedup)
            and (tau is None or tau >= bar.tau)
        ):
            return bar.grade
    return "F"

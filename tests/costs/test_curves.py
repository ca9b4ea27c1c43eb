"""Curves through measured points, against convex functions and what is known of noise."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oppo_sim.costs.curves import Curve, Point, rising

LINES = st.lists(st.tuples(st.floats(-5, 5), st.floats(0, 2)), min_size=1, max_size=4)
SOME = st.lists(st.integers(1, 1000), min_size=3, max_size=8, unique=True)


@given(LINES, SOME, st.floats(0, 1))
def test_a_convex_function_is_met_to_half_of_what_is_open(
    lines: list[tuple[float, float]], known: list[int], share: float
) -> None:
    """Between the chord and the lines of the neighbours' chords, whatever the function does.

    Not beyond the last point but one: what follows is not known, and the chord is taken.
    """

    def true(n: float) -> float:
        return max([10.0, *(10 + offset + slope * n for offset, slope in lines)])

    def chord(a: float, b: float, n: float) -> float:
        return true(a) + (true(b) - true(a)) * (n - a) / (b - a)

    known.sort()
    curve = rising(Point(n, true(n), 0.0) for n in known).bent()
    low, high = known[0], known[-2]
    at = low + share * (high - low)
    gap = next(k for k in range(1, len(known)) if at <= known[k])
    start, end = known[gap - 1 : gap + 1]
    upper = chord(start, end, at)
    before = chord(known[gap - 2], start, at) if gap > 1 else true(start)
    after = chord(end, known[gap + 1], at)
    lower = min(max(before, after), upper)
    assert lower - 1e-6 <= true(at) <= upper + 1e-6
    assert abs(curve.at(at)[1] - true(at)) <= (upper - lower) / 2 + 1e-6
    for n in known:
        assert curve.at(n)[1] == pytest.approx(true(n))


@given(st.dictionaries(st.integers(1, 10**5), st.floats(1e-4, 1e3), min_size=1))
def test_a_curve_never_falls_whatever_was_measured(points: dict[int, float]) -> None:
    curve = rising(Point(n, seconds, 0.0) for n, seconds in points.items()).bent()
    found = [curve.at(n)[1] for n in sorted({*points, *range(0, 2 * 10**5, 997)})]
    assert all(b >= a * (1 - 1e-12) for a, b in pairwise(found))
    assert min(found) >= min(points.values()) * (1 - 1e-12)


def test_noise_is_levelled_to_its_mean() -> None:
    """The fifth takes less time than the third and fourth; their repetitions count each."""
    seconds = [(1, 1.0), (2, 5.0), (3, 3.0), (3, 3.0), (4, 4.0), (5, 9.0)]
    curve = rising(Point(n, s, n / 2) for n, s in seconds)
    assert curve.tokens == (1, 2, 3, 4, 5)
    assert curve.seconds == pytest.approx((1.0, 11 / 3, 11 / 3, 4.0, 9.0))
    assert curve.positions == (0.5, 1.0, 1.5, 2.0, 2.5)


def test_a_concave_gap_is_its_chord() -> None:
    curve = Curve((1.0, 2.0, 4.0), (1.0, 3.0, 4.0), (0.0, 0.0, 0.0))
    assert curve.bent() == curve


def test_what_is_filled_in_stays_between_its_neighbours() -> None:
    curve = Curve((2.0, 4.0, 8.0), (1.0, 2.0, 6.0), (1.0, 2.0, 4.0))
    filled = curve.filled({16: 5.0, 1: 0.5, 3: 2.5, 5: 0.1, 6: 3.0, 8: 7.0, 32: 9.0})
    assert filled.points() == [
        (2, 1.0, 1.0),
        (3, 2.0, 1.5),
        (4, 2.0, 2.0),
        (5, 2.0, 2.5),
        (6, 3.0, 3.0),
        (8, 6.0, 4.0),
        (16, 6.0, 4.0),
        (32, 9.0, 4.0),
    ]

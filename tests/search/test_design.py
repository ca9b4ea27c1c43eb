"""Which points there are: all of a grid, and as many as asked for, spread as the method says."""

import math
from collections import Counter

import pytest

from oppo_sim.search.axes import Axis, Range
from oppo_sim.search.design import Design

WHOLE = Axis(path="a", choices=Range(low=1, high=8))
LOG = Axis(path="b", choices=Range(low=1.0, high=1000.0, log=True))
LIST = Axis(path="c", choices=("x", "y"))


def test_a_grid_has_every_combination_and_its_last_axis_runs_fastest() -> None:
    design = Design([LIST, Axis(path="d", choices=(1, 2, 3))], "grid")
    values = [tuple(design[place].values.values()) for place in range(len(design))]
    assert values == [(c, d) for c in ("x", "y") for d in (1, 2, 3)]
    assert [design[place].id for place in range(len(design))] == list(range(6))


def test_a_range_in_a_grid_has_equal_steps_or_ratios() -> None:
    assert Range(low=0, high=10, count=5).grid() == [0, 2, 5, 8, 10]  # 2.5 and 7.5: to even
    assert Range(low=1, high=2, count=9).grid() == [1, 2]
    assert Range(low=16, high=1024, log=True, count=4).grid() == [16, 64, 256, 1024]
    values = Range(low=0.5, high=4.0, log=True, count=4).grid()
    assert values == pytest.approx([0.5, 1.0, 2.0, 4.0])
    assert (min(values), max(values)) == (0.5, 4.0)


@pytest.mark.parametrize("method", ["random", "latin"])
def test_drawn_points_stay_within_their_ranges_and_are_the_same_again(method: str) -> None:
    design, again = (Design([WHOLE, LOG, LIST], method, 200, 7) for _ in range(2))
    other = Design([WHOLE, LOG, LIST], method, 200, 8)
    values = [design[place].values for place in range(200)]
    assert values == [again[place].values for place in range(200)]
    assert values != [other[place].values for place in range(200)]
    assert {one["a"] for one in values} == set(range(1, 9))
    assert {type(one["a"]) for one in values} == {int}
    assert all(1.0 <= one["b"] <= 1000.0 for one in values)


def test_a_latin_hypercube_has_each_part_of_each_axis_once() -> None:
    """Of 240 parts, the 8 whole numbers have 30 each, and the two texts 120."""
    design = Design([WHOLE, LOG, LIST], "latin", 240, 3)
    values = [design[place].values for place in range(240)]
    assert Counter(one["a"] for one in values) == dict.fromkeys(range(1, 9), 30)
    assert Counter(one["c"] for one in values) == {"x": 120, "y": 120}
    parts = sorted(math.floor(80 * math.log10(one["b"])) for one in values)  # three decades
    assert parts == list(range(240))


def test_whole_numbers_on_a_log_scale_are_as_likely_as_their_share_of_it() -> None:
    """From 1 to 3: log(2), log(3/2) and log(4/3) of log(4)."""
    axis = Axis(path="a", choices=Range(low=1, high=3, log=True))
    found = Counter(axis.at((place + 0.5) / 10_000) for place in range(10_000))
    for value in (1, 2, 3):
        share = math.log((value + 1) / value) / math.log(4)
        assert found[value] / 10_000 == pytest.approx(share, abs=1e-3)

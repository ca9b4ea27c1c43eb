"""Quantile tables: interpolation, the mass at a source's cap, and tables of a sample."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oppo_sim.workload import QuantileTable


def ppf(table: QuantileTable, *u: float) -> list[int]:
    lengths: list[int] = table.ppf(np.array(u)).tolist()
    return lengths


def test_between_two_quantiles_a_table_is_linear() -> None:
    table = QuantileTable("t", (0, 0.5, 1), (10, 20, 120))
    assert ppf(table, 0, 0.25, 0.5, 0.75) == [10, 15, 20, 70]
    assert table.known_tokens is None


def test_where_a_table_is_flat_at_the_cap_the_mass_stays_a_mass() -> None:
    """No share stated: the mass begins at the first quantile that reaches the cap."""
    table = QuantileTable("t", (0, 0.5, 0.9, 0.95, 1), (10, 50, 90, 101, 101), cap_tokens=100)
    assert table.share_cut == pytest.approx(0.05)
    assert ppf(table, 0.9, 0.94, 0.95, 0.99) == [90, 90, 101, 101]


def test_a_stated_share_and_a_longest_length_below_shape_the_edge() -> None:
    table = QuantileTable(
        "t", (0, 0.9, 1), (10, 90, 101), cap_tokens=100, cap_share=0.06, max_below_cap=94
    )
    assert ppf(table, 0.9, 0.92, 0.9399, 0.9401) == [90, 92, 94, 101]
    assert table.known_tokens == 100


def test_a_cap_that_nothing_reached_hides_nothing() -> None:
    table = QuantileTable("t", (0, 1), (10, 90), cap_tokens=100)
    assert table.known_tokens is None
    assert ppf(table, 0, 0.999) == [10, 90]


def test_a_table_of_a_sample_keeps_its_mass_and_its_quantiles() -> None:
    sample = [*range(1, 91), *[1001] * 8, 1000, 1003]
    table = QuantileTable.from_samples("s", sample, prompt_tokens=[3] * 100, cap_tokens=1000)
    assert table.share_cut == pytest.approx(0.1)
    assert table.max_below_cap == 90
    assert ppf(table, 0.89999, 0.90001) == [90, 1001]
    assert table.response_tokens[100] == np.median(sample)
    assert table.prompts is not None
    assert ppf(table.prompts, 0.7) == [3]


@settings(deadline=None)
@given(st.lists(st.integers(1, 5000), min_size=2, max_size=60), st.integers(2, 5001))
def test_a_table_of_any_sample_cuts_what_the_sample_cut(sample: list[int], cap: int) -> None:
    sample = [1, *sample]
    table = QuantileTable.from_samples("s", sample, cap_tokens=cap)
    lengths = table.ppf((np.arange(10_000) + 0.5) / 10_000)
    cut = sum(tokens >= cap for tokens in sample)
    assert np.mean(lengths > cap) == pytest.approx(cut / len(sample), abs=2e-4)
    assert np.all(np.diff(lengths) >= 0)
    assert lengths[0] >= 1
    assert not np.any(lengths == cap) or not cut


@pytest.mark.parametrize(
    ("q", "tokens", "message"),
    [
        ((), (), "q must rise from 0 to 1"),
        ((0.1, 1), (1, 2), "q must rise from 0 to 1"),
        ((0, 0.5, 0.5, 1), (1, 2, 3, 4), "q must rise from 0 to 1"),
        ((0, math.nan, 1), (1, 2, 3), "q must rise from 0 to 1"),
        ((0, 1), (1, 2, 3), "response_tokens has 3 rows, q has 2"),
        ((0, 1), (0, 2), r"response_tokens\[0\] must be a finite number >= 1, not 0"),
        ((0, 1), (1, math.nan), r"response_tokens\[1\] must be a finite number >= 1, not nan"),
        ((0, 1), (1, "2"), r"response_tokens\[1\] must be a finite number >= 1, not '2'"),
        ((0, 1), (5, 2), r"response_tokens\[1\] = 2 is below the row before"),
    ],
)
def test_a_table_refuses_bad_rows(q: tuple[float], tokens: tuple[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        QuantileTable("t", q, tokens)


@pytest.mark.parametrize(
    ("cap", "share", "below", "message"),
    [
        (0, None, None, "cap_tokens must be a whole number >= 1, not 0"),
        (5, None, None, "cap_tokens = 5 must be above the lengths that were not cut, one is 10"),
        (100, 1.0, None, "cap_share must be >= 0 and < 1, not 1.0"),
        (100, math.nan, None, "cap_share must be >= 0 and < 1, not nan"),
        (100, 0.1, 100, "cap_tokens = 100 must be above the lengths that were not cut"),
        (None, 0.1, None, "need cap_tokens, not None"),
    ],
)
def test_a_table_refuses_a_bad_cap(
    cap: int | None, share: float | None, below: float | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        QuantileTable("t", (0, 1), (10, 101), None, cap, share, below)


@pytest.mark.parametrize(
    ("sample", "prompts", "cap", "message"),
    [
        ([5], None, None, "response_tokens: a table needs >= 2 lengths, not 1"),
        ([5, 6], [], None, "prompt_tokens: a table needs >= 2 lengths, not 0"),
        ([5, 0], None, None, r"response_tokens\[1\] must be a whole number >= 1, not 0"),
        ([5, "6"], None, None, r"response_tokens\[1\] must be a whole number >= 1, not '6'"),
        ([5, math.nan], None, None, r"response_tokens\[1\] must be a whole number >= 1, not nan"),
        ([5, 6], None, 5, "cap_tokens = 5 must be above the lengths that were not cut, one is 5"),
    ],
)
def test_a_table_refuses_a_bad_sample(
    sample: list[int], prompts: list[int] | None, cap: int | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        QuantileTable.from_samples("s", sample, prompts, cap)

"""Padded forwards by hand: what their law recovers, and what it makes of noise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oppo_sim.costs import Measured, Measurements, Row
from oppo_sim.costs.padded import padded

PAIR_S, GATHERED_S = 2e-7, 3e-6
GRID = [
    (rows, width, held)
    for held in (40, 160, 500)
    for rows, width in ((1, 32), (4, 8), (16, 2), (1, 128), (4, 32), (16, 8), (16, 128))
]


def true_s(rows: int, width: int, held: int) -> float:
    """10 ms, 0.2 ms for a token, and a price of every pair and every gathered token."""
    tokens = rows * width
    pairs = tokens * (held + 0.5 * width)
    return 0.01 + 2e-4 * tokens + PAIR_S * pairs + GATHERED_S * rows * (held + width)


def row(rows: int, width: int, held: int) -> Row:
    return Row("score", rows, rows * held, rows * width, true_s(rows, width, held))


@given(st.sampled_from([1, 2, 5, 16]), st.integers(2, 128), st.integers(1, 600))
def test_prices_of_pairs_and_of_gathered_tokens_are_told_apart(
    rows: int, width: int, held: int
) -> None:
    law = padded("mine", "score", [row(*at) for at in GRID])
    tokens = min(2048, max(32, rows * width))
    seconds = law.seconds(tokens, tokens * (held + 0.5 * width), rows * (held + width))
    bare_s = 0.01 + 2e-4 * tokens
    price_s = PAIR_S * tokens * (held + 0.5 * width) + GATHERED_S * rows * (held + width)
    assert seconds == pytest.approx(bare_s + price_s, rel=1e-6)


def test_rows_that_open_gather_nothing() -> None:
    """20 ms each, but for 1 us for every pair: 8 pairs of tokens 1 to 4, and 2 + 2 of two rows."""
    rows = [Row("score", 1, 0, 4, 0.02 + 8e-6), Row("score", 2, 0, 4, 0.02 + 4e-6)]
    law = padded("mine", "score", rows)
    assert law.gathered_s == 0
    assert law.pair_s == pytest.approx(1e-6)
    assert law.seconds(4, 0.0) == pytest.approx(0.02)


def test_what_falls_with_more_tokens_is_levelled_and_the_last_rise_goes_on() -> None:
    rows = [Row("score", 1, 0, n, s) for n, s in ((10, 1.0), (20, 3.0), (30, 2.0), (40, 4.0))]
    law = padded("mine", "score", rows)
    assert [law.seconds(n, 0.0) for n in (10, 20, 25, 30)] == pytest.approx([1.0, 2.5, 2.5, 2.5])
    with pytest.warns(UserWarning, match="mine: score: tokens of a call: measured 10 to 40"):
        assert law.seconds(50, 0.0) == pytest.approx(5.5)
    assert law.scaled(0.5).seconds(20, 0.0) == pytest.approx(1.25)


def test_long_chunks_on_short_contexts_are_met() -> None:
    """Rows of 128 tokens on 160 cached ones, among short chunks on any context."""
    short = [
        (rows, width, held) for rows in (1, 4, 16) for width in (2, 8, 32) for held in (46, 500)
    ]
    long = [(rows, 128, 160) for rows in (1, 4, 16)]
    rows = [row(*at) for at in (*short, *long)]
    opening = [
        Row("score", 1, 0, 32, 0.02),
        Row("train", 2, 0, 100, 1.0),
        Row("decode", 1, 9, 1, 0.1),
    ]
    table = Measurements("mine", (*rows, *opening), {"grouped": "yes"})
    by_row = Measured(measurements=table).by_row
    assert by_row is not None
    for n, width, held in long:
        known = true_s(n, width, held)
        assert by_row.score_s([(held, held + width)] * n) == pytest.approx(known, rel=1e-6)

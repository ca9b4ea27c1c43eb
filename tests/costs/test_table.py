"""Costs from measured times, by hand: on the points, between them and beyond."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oppo_sim.costs import (
    ExtrapolationWarning,
    Linear,
    Measured,
    Measurements,
    Row,
)
from oppo_sim.costs.surface import DecodeSurface


def table(*rows: Row) -> Measurements:
    return Measurements("mine", rows)


GRID = [
    Row("decode", b, b * x, b, t)
    for b, times in ((1, (0.1, 0.1, 0.3)), (5, (0.2, 0.3, 0.8)))
    for x, t in zip((0, 100, 200), times, strict=True)
]


def test_decode_is_linear_between_batches_and_contexts() -> None:
    law = Measured(measurements=table(*GRID)).decode
    assert law.token_s(1, 50) == pytest.approx(0.1)
    assert law.token_s(1, 150) == pytest.approx(0.2)
    assert law.token_s(5, 5 * 50) == pytest.approx(0.25)
    assert law.token_s(3, 3 * 150) == pytest.approx((0.2 + 0.55) / 2)
    assert law.token_s(2, 2 * 200) == pytest.approx(0.3 + 0.25 * 0.5)


@given(st.integers(1, 9), st.integers(0, 1500), st.integers(0, 300))
def test_a_span_of_a_surface_is_the_sum_of_its_tokens(batch: int, context: int, n: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        law = Measured(measurements=table(*GRID)).decode
        closed = law.span_s(batch, context, n)
        plain = math.fsum(law.token_s(batch, context + i * batch) for i in range(n))
        assert closed == pytest.approx(plain, rel=1e-12)
        assert law.span_s(batch, context, n + 1) >= closed
        done = law.tokens_within(batch, context, closed, 1000)
        assert done >= n
        assert law.span_s(batch, context, done) == closed
        flat = law.flat_s(batch, context, n + 1)
        if flat is not None:
            assert {law.token_s(batch, context + i * batch) for i in range(n + 1)} == {flat}
            if flat == law.token_s(1, 0.0):  # then so it is however the contexts are spread
                last = context + n * batch
                assert {law.token_s(b, last) for b in range(1, batch + 1)} == {flat}


@given(st.lists(st.tuples(st.integers(1, 64), st.integers(0, 5000), st.floats(1e-4, 1))))
def test_a_surface_never_falls_whatever_was_measured(points: list[tuple[int, int, float]]) -> None:
    rows = [Row("decode", b, b * x, b, t) for b, x, t in {(1, 0, 0.5), *points}]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        law = Measured(measurements=table(*rows)).decode
    assert isinstance(law, DecodeSurface)
    for x in (0, 100, 4000):
        times = [law.token_s(b, b * x) for b in (1, 2, 7, 31, 64, 80)]
        assert all(b >= a * (1 - 1e-9) for a, b in pairwise(times))
    assert law.token_s(9, 900) <= law.token_s(9, 9000) * (1 + 1e-9)


def test_a_batch_that_suits_the_kernels_less_makes_no_other_dearer_than_their_mean() -> None:
    times = {1: 1.0, 2: 3.0, 3: 2.0, 4: 4.0}
    rows = [Row("decode", b, b * x, b, t) for b, t in times.items() for x in (0, 100)]
    law = Measured(measurements=table(*rows)).decode
    assert [law.token_s(b, b * 50) for b in times] == pytest.approx([1.0, 2.5, 2.5, 4.0])


def test_contexts_that_are_next_to_the_same_tell_no_slope() -> None:
    """Batch 2 takes 3 s at 150.5 tokens of each rollout, and as much for a KV token as batch 1."""
    rows = [Row("decode", 1, 100, 1, 1.0), Row("decode", 1, 200, 1, 1.5)]
    rows += [Row("decode", 2, 300, 2, 2.0), Row("decode", 2, 302, 2, 4.0)]
    law = Measured(measurements=table(*rows)).decode
    assert law.token_s(2, 301) == pytest.approx(3.0)
    with pytest.warns(ExtrapolationWarning, match="context"):
        assert law.span_s(2, 401, 1) == pytest.approx(3.5)


def test_prefill_is_linear_in_the_position_and_bends_with_the_tokens() -> None:
    """One row takes 1, 3, 9 s: from 100 to 200 tokens it is convex, between 1 s and 3 s - 0.03 s
    for each token less, which meet at 133 1/3; the chord there is at 5/3 s."""
    rows = [Row("prefill", 1, 0, n, t) for n, t in ((100, 1.0), (200, 3.0), (400, 9.0))]
    rows += [Row("prefill", n // 100, 0, n, t) for n, t in ((200, 2.0), (400, 4.0))]
    costs = Measured(measurements=table(GRID[0], *rows))
    assert costs.prefill_s(400, 400 * 200.0) == 9.0
    assert costs.prefill_s(150, 150 * 75.0) == pytest.approx((2.0 + 1.5) / 2)  # one row
    assert costs.prefill_s(400 / 3, 400 / 3 * 66.0) == pytest.approx((5 / 3 + 1.0) / 2)
    assert costs.prefill_s(300, 300 * 150.0) == pytest.approx(6.0)
    assert costs.prefill_s(300, 300 * 50.0) == pytest.approx(3.0)  # three of 100
    assert costs.prefill_s(300, 300 * 100.0) == pytest.approx(4.5)  # between the two


def test_chunks_are_met_at_every_context() -> None:
    """Of rows of one batch the context tells apart; so it does where there is one chunk size."""
    seconds = {(n, x): n * (1 + x / 1000) / 100 for n in (128, 256, 512) for x in (0, 1000, 4000)}
    for sizes in ((128, 256, 512), (256,)):
        rows = [Row("score", 1, x, n, s) for (n, x), s in seconds.items() if n in sizes]
        costs = Measured(measurements=table(GRID[0], *rows))
        for row in rows:
            assert costs.score_s(1, row.tokens, row.attention, 0) == pytest.approx(row.seconds)
        between = Row("score", 1, 2500, 256, 0.0)
        assert costs.score_s(1, 256, between.attention, 0) == pytest.approx(2.56 * 3.5)


def test_a_call_is_met_where_a_curve_of_other_rows_comes_to_the_same_position() -> None:
    """Milliseconds of a profile. The curve of single rows has the shape of its neighbours from 128
    tokens on, and comes to 512 at position 224, where 4 rows of 128 were measured: it gave 0.72."""
    measured = [
        (1, 66, 1, 9.4), (1, 163, 1, 10.3), (1, 144, 32, 17.8), (1, 160, 32, 25.3),
        (1, 160, 128, 43.2), (4, 896, 128, 41.7), (16, 1216, 128, 60.6),
        (16, 3072, 512, 135.1), (4, 640, 512, 133.2),
    ]  # fmt: skip
    rows = [Row("score", b, held, n, ms / 1e3) for b, held, n, ms in measured]
    costs = Measured(measurements=table(GRID[0], *rows))
    long = rows[-1]
    assert costs.score_s(4, 512, long.attention, 0) == pytest.approx(long.seconds)


def test_repeated_rows_count_by_their_mean() -> None:
    rows = [Row("prefill", 1, 0, 100, 1.0), Row("prefill", 1, 0, 100, 2.0)]
    assert Measured(measurements=table(GRID[0], *rows)).prefill_s(100, 5000.0) == 1.5


def test_tasks_that_were_not_measured_cost_what_is_said() -> None:
    rest = Linear(score_token_s=0.5, train_call_s=7.0, sync_call_s=2.0)
    costs = Measured(measurements=table(*GRID), rest=rest)
    assert costs.score_s(1, 4, 8.0, 1) == 2.0
    assert costs.train_s(3, 30, 10) == 7.0
    assert costs.sync_s() == 2.0
    assert costs.scaled(0.5).score_s(1, 4, 8.0, 1) == 1.0


def test_padded_training_is_as_long_as_the_longest() -> None:
    rows = [Row("train", 1, 0, n, n / 10) for n in (10, 1000)]
    costs = Measured(measurements=table(GRID[0], *rows))
    assert costs.train_s(4, 50, 30) == pytest.approx(5.0)
    assert replace(costs, padded=True).train_s(4, 50, 30) == pytest.approx(12.0)


def test_beyond_what_was_measured_is_warned_of_once() -> None:
    rows = [Row("train", 1, 0, n, n / 10) for n in (10, 1000)]
    costs = Measured(measurements=table(*GRID, *rows))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        costs.train_s(1, 1000, 1000)
        costs.decode.span_s(5, 0, 200)
    with pytest.warns(ExtrapolationWarning, match=r"mine: train: tokens .* 10 to 1,000"):
        assert costs.train_s(1, 2000, 2000) == pytest.approx(200.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert costs.train_s(1, 3000, 3000) == pytest.approx(300.0)
    with pytest.warns(ExtrapolationWarning, match=r"mine: decode: batch: measured 1 to 5"):
        assert costs.decode.span_s(9, 0, 1) == pytest.approx(0.3)
    with pytest.warns(ExtrapolationWarning, match="decode: context .* measured 0 to 200"):
        costs.decode.span_s(5, 1000, 2)

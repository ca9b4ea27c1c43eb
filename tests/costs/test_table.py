"""Costs from measured times: what was measured is met, and what was held out nearly."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oppo_sim.costs import (
    ExtrapolationWarning,
    Linear,
    Measured,
    Measurements,
    Row,
    measurement_names,
    measurements,
)
from oppo_sim.costs.decode import DecodeSurface
from oppo_sim.costs.splitwise import convert


@pytest.fixture
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)
        yield


def seconds(costs: Measured, row: Row) -> float:
    if row.task == "decode":
        return costs.decode.token_s(row.batch, row.context_tokens)
    return costs.prefill_s(row.tokens, row.attention)


def is_inside(row: Row, rest: list[Row]) -> bool:
    """Whether the range of what is left holds it: of batch and context, or of tokens and length."""

    def axes(one: Row) -> tuple[float, float]:
        if one.task == "decode":
            return one.batch, one.context_tokens / one.batch
        return one.tokens, one.tokens / one.batch

    known = zip(*map(axes, rest), strict=True)
    return all(min(axis) <= at <= max(axis) for at, axis in zip(axes(row), known, strict=True))


def held_out(name: str, task: str) -> list[tuple[Row, bool, float]]:
    """Every third row of the task left out, three times: row, whether inside, relative error."""
    table = measurements(name)
    rows = table.of(task)
    found = []
    for fold in range(3):
        held = rows[fold::3]
        kept = tuple(row for row in table.rows if row not in held)
        costs = Measured(measurements=replace(table, rows=kept))
        rest = [row for row in kept if row.task == task]
        for row in held:
            error = seconds(costs, row) / row.seconds - 1
            found.append((row, is_inside(row, rest), error))
    return found


@pytest.mark.usefixtures("_quiet")
@pytest.mark.parametrize("name", measurement_names())
def test_what_was_measured_is_met(name: str) -> None:
    """Prefill exactly. Decode but for noise: its curve never falls in the context, as some do.

    At 2 A100s two series of the same contexts differ by a tenth: no curve meets both.
    """
    table = measurements(name)
    costs = Measured(measurements=table)
    for row in table.of("prefill"):
        assert seconds(costs, row) == pytest.approx(row.seconds, rel=1e-9)
    worst = max(abs(seconds(costs, row) / row.seconds - 1) for row in table.of("decode"))
    assert worst < 0.07


@pytest.mark.usefixtures("_quiet")
def test_held_out_token_times_are_met_within_a_tenth() -> None:
    """All 126 inside of the range; batch 64 and the shortest and longest prompt are its edges."""
    found = [row for name in measurement_names() for row in held_out(name, "decode")]
    errors = [abs(error) for _, inside, error in found if inside]
    assert len(errors) == 126
    assert median(errors) < 0.015
    assert max(errors) < 0.09
    assert {
        (row.batch, row.context_tokens) for row, inside, error in found if abs(error) > 0.1
    } <= {(64, 64 * 576), (32, 32 * 576), (1, 8256)}


@pytest.mark.usefixtures("_quiet")
def test_held_out_prompt_times_are_met_within_a_tenth_but_for_what_is_named() -> None:
    """The median is 3 %. Beyond a tenth are

    - prompts of 256 and 512 tokens, where the time leaves its floor within the gap;
    - llama2-70b on A100s, whose times are rough: 16 prompts take 2.35 times as long as 8, and 32
      take 1.77 times as long as 16 (4 devices).
    """
    rough = {f"splitwise-llama2-70b-a100-tp{n}" for n in (2, 4, 8)}
    found = [(name, *row) for name in measurement_names() for row in held_out(name, "prefill")]
    inside = [(name, row, abs(error)) for name, row, is_in, error in found if is_in]
    assert median(error for *_, error in inside) < 0.03
    smooth = [e for name, row, e in inside if name not in rough and row.tokens > 512]
    assert len(smooth) == 39
    assert max(smooth) < 0.1
    assert max(error for _, row, error in inside if row.tokens <= 512) < 0.17
    assert max(error for *_, error in inside) < 0.28
    assert sum(error < 0.1 for *_, error in inside) / len(inside) > 0.8


def test_a_table_of_splitwise_is_converted() -> None:
    """Medians in seconds; a batch that ran in waves, end to end 16 times its sum, is left out."""
    lines = [
        "model,hardware,prompt_size,batch_size,token_size,peak_power,average_power,prompt_time,"
        "token_time,e2e_time,tensor_parallel",
        *(f"m,h,512,4,128,0,0,{ms},50,{ms + 6400},2" for ms in (300, 400, 900)),
        "m,h,512,64,128,0,0,800,67,160000,2",
        "m,h,512,64,128,0,0,700,60,8500,4",
    ]
    text = convert(lines, "m", "h", 2)
    assert text.splitlines()[-3:] == [
        "task,batch,context_tokens,tokens,seconds",
        "decode,4,2304,,0.05",
        "prefill,4,0,2048,0.4",
    ]
    with pytest.raises(ValueError, match="no row of m on h, tensor parallel 8"):
        convert(lines, "m", "h", 8)


# between measurements, by hand


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


def test_prefill_is_linear_in_tokens_and_in_the_position() -> None:
    rows = [Row("prefill", 1, 0, n, t) for n, t in ((100, 1.0), (200, 3.0), (400, 9.0))]
    rows += [Row("prefill", n // 100, 0, n, t) for n, t in ((200, 2.0), (400, 4.0))]
    costs = Measured(measurements=table(GRID[0], *rows))
    assert costs.prefill_s(150, 150 * 75.0) == pytest.approx(2.0)  # one row
    assert costs.prefill_s(300, 300 * 150.0) == pytest.approx(6.0)
    assert costs.prefill_s(300, 300 * 50.0) == pytest.approx(3.0)  # three of 100
    assert costs.prefill_s(300, 300 * 100.0) == pytest.approx(4.5)  # between the two


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

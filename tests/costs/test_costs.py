"""What holds for every cost model, and the two simple ones."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oppo_sim.costs import Constant, Costs, Linear, attention_pairs

counts = st.integers(0, 5000)

# drawn beyond what was measured, which is warned of; the warning has its own tests
beyond_what_was_measured = pytest.mark.filterwarnings("ignore::oppo_sim.costs.ExtrapolationWarning")


def all_costs(costs: Costs, sequences: int, tokens: int, lasts: int) -> list[float]:
    attention = attention_pairs(17, 17 + tokens)
    return [
        costs.decode.token_s(sequences + 1, tokens),
        costs.decode.span_s(sequences + 1, tokens, 300),
        costs.prefill_s(tokens, attention),
        costs.score_s(sequences + 1, tokens, attention, lasts),
        costs.train_s(sequences, tokens, tokens),
        costs.sync_s(),
        costs.handoff_s(tokens),
    ]


@beyond_what_was_measured
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sequences=st.integers(0, 200), tokens=counts, lasts=st.integers(0, 200))
def test_halving_every_cost_is_exact(costs: Costs, sequences: int, tokens: int, lasts: int) -> None:
    whole = all_costs(costs, sequences, tokens, lasts)
    assert all(math.isfinite(seconds) and seconds >= 0 for seconds in whole)
    for factor in (0.5, 2.0):
        scaled = all_costs(costs.scaled(factor), sequences, tokens, lasts)
        assert scaled == [seconds * factor for seconds in whole]
    assert costs.scaled(0.5).scaled(2.0) == costs


@beyond_what_was_measured
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tokens=counts, more=counts)
def test_more_work_never_takes_less_time(costs: Costs, tokens: int, more: int) -> None:
    less = all_costs(costs, 9, tokens, 3)
    assert all(a <= b for a, b in zip(less, all_costs(costs, 9, tokens + more, 3), strict=True))


def test_nothing_to_prefill_costs_nothing(costs: Costs) -> None:
    assert costs.prefill_s(0, 0.0) == 0.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1e-12, "3", None, True])
@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, f.name) for kind in (Constant, Linear) for f in fields(kind) if f.init],
)
def test_simple_costs_refuse_impossible_times(kind: type, name: str, bad: Any) -> None:
    with pytest.raises(ValueError, match=rf"{kind.__name__}.{name} is {bad!r}; .*at least 0"):
        kind(**{name: bad})


def test_a_factor_must_be_a_positive_number(costs: Costs) -> None:
    for bad in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=r"scaled.factor is .* above 0"):
            costs.scaled(bad)


def test_constant_costs_are_free_unless_given() -> None:
    free = Constant()
    assert all_costs(free, 3, 100, 1) == [0.0] * 7
    flat = Constant(decode_token_s=0.25, score_token_s=0.5, score_call_s=1.0)
    assert flat.decode.flat_s(112, 10**6, 4096) == 0.25
    assert flat.decode.span_s(112, 10**6, 4096) == 1024.0
    assert flat.score_s(2, 8, 0.0, 2) == 5.0


def test_linear_costs_add_up() -> None:
    costs = Linear(
        decode_token_s=1.0,
        decode_rollout_s=0.5,
        decode_context_s=0.25,
        prefill_call_s=2.0,
        prefill_token_s=0.5,
        score_call_s=3.0,
        score_token_s=0.25,
        score_response_s=10.0,
        train_call_s=4.0,
        train_token_s=0.5,
        train_sequence_s=8.0,
        sync_call_s=5.0,
        handoff_call_s=6.0,
        handoff_token_s=0.125,
    )
    assert costs.decode.token_s(4, 8) == 1.0 + 0.5 * 4 + 0.25 * 8
    assert costs.prefill_s(10, 50.0) == 2.0 + 0.5 * 10
    assert costs.score_s(3, 20, 0.0, 2) == 3.0 + 0.25 * 20 + 10.0 * 2
    assert costs.train_s(2, 20, 15) == 4.0 + 0.5 * 20 + 8.0 * 2
    assert costs.sync_s() == 5.0
    assert costs.handoff_s(16) == 6.0 + 0.125 * 16
    assert costs.handoff_s(0) == costs.train_s(0, 0, 0) == 0.0


@pytest.mark.parametrize("chunk", [1, 100, 699, 700])
def test_streaming_costs_a_row_what_scoring_it_whole_does_but_for_the_calls(chunk: int) -> None:
    costs = Linear(score_call_s=0.5, score_token_s=1e-3, score_response_s=2.0)
    starts = range(0, 700, chunk)
    streamed = sum(
        costs.score_s(1, end - start, attention_pairs(start, end), int(end == 700))
        for start in starts
        for end in [min(start + chunk, 700)]
    )
    whole = costs.score_s(1, 700, attention_pairs(0, 700), 1)
    assert streamed == pytest.approx(whole + 0.5 * (len(starts) - 1), rel=1e-12)

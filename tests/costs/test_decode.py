"""The decode law: closed forms against plain loops, and inverses."""

from __future__ import annotations

import math
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oppo_sim.costs import HF, DecodeLaw, Line, card, model
from oppo_sim.costs.passes import decode_law

# Numbers far above the subnormal range, or zero: halving them is exact.
seconds = st.just(0.0) | st.floats(1e-9, 0.1)
slopes = st.just(0.0) | st.floats(1e-12, 1e-4)
laws = st.lists(st.builds(Line, seconds, slopes, slopes), min_size=1, max_size=4).map(
    lambda lines: DecodeLaw(tuple(lines))
)
batches = st.integers(1, 200)
contexts = st.integers(0, 500_000)
spans = st.integers(0, 300)

# Launch, memory and compute, each the largest for a while: at batch 1 from context 0 the second
# line takes over after token 100, the third after token 200.
CROSSING = DecodeLaw((Line(0.1), Line(0.05, 0.0, 5e-4), Line(0.0, 0.0, 7.5e-4)))


def plain_sum(law: DecodeLaw, batch: int, context_tokens: int, tokens: int) -> float:
    return math.fsum(law.token_s(batch, context_tokens + i * batch) for i in range(tokens))


@given(laws, batches, contexts, spans)
@example(CROSSING, 1, 0, 300)
@example(CROSSING, 1, 99, 3)
def test_a_span_is_the_sum_of_its_tokens(
    law: DecodeLaw, batch: int, context_tokens: int, tokens: int
) -> None:
    closed = law.span_s(batch, context_tokens, tokens)
    assert closed == pytest.approx(plain_sum(law, batch, context_tokens, tokens), rel=1e-12)


def test_a_law_that_crosses_twice() -> None:
    flat = 101 * 0.1  # tokens 0..100: at 100 launch and memory are equal
    memory = sum(0.05 + 5e-4 * i for i in range(101, 201))  # at 200 memory and compute are equal
    compute = sum(7.5e-4 * i for i in range(201, 300))
    assert CROSSING.span_s(1, 0, 300) == pytest.approx(flat + memory + compute, rel=1e-13)


@given(laws, batches, contexts, spans)
def test_spans_grow_and_split(law: DecodeLaw, batch: int, context_tokens: int, tokens: int) -> None:
    whole = law.span_s(batch, context_tokens, tokens)
    assert whole <= law.span_s(batch, context_tokens, tokens + 1)
    head = tokens // 3
    tail = law.span_s(batch, context_tokens + head * batch, tokens - head)
    assert law.span_s(batch, context_tokens, head) + tail == pytest.approx(whole, rel=1e-12)


@given(laws, batches, contexts, st.integers(1, 300))
def test_a_flat_span_costs_one_token_time_each(
    law: DecodeLaw, batch: int, context_tokens: int, tokens: int
) -> None:
    flat = law.flat_s(batch, context_tokens, tokens)
    if flat is not None:
        times = {law.token_s(batch, context_tokens + i * batch) for i in range(tokens)}
        assert times == {flat}
        assert law.span_s(batch, context_tokens, tokens) == flat * tokens


def test_launch_bound_decode_is_flat_and_memory_bound_decode_is_not() -> None:
    law = decode_law(card("A100-80"), model("Qwen2.5-7B"), HF)
    assert law.flat_s(16, 16 * 1000, 512) == pytest.approx(28 * 0.894e-3)
    # the KV cache makes memory bind: (0.025 * 0.8 * 2.039e12 - 14.1e9) / 57344 is 0.47 M tokens
    assert law.flat_s(16, 460_000, 1) is not None
    assert law.flat_s(16, 470_000, 1) is None
    assert law.flat_s(16, 460_000, 1000) is None


@given(laws, batches, contexts, st.floats(0, 100), st.integers(0, 2000))
@example(CROSSING, 1, 0, CROSSING.span_s(1, 0, 150), 300)
def test_tokens_within_inverts_the_span(
    law: DecodeLaw, batch: int, context_tokens: int, within_s: float, most: int
) -> None:
    tokens = law.tokens_within(batch, context_tokens, within_s, most)
    assert 0 <= tokens <= most
    assert law.span_s(batch, context_tokens, tokens) <= within_s
    if tokens < most:
        assert law.span_s(batch, context_tokens, tokens + 1) > within_s


@given(laws, batches, contexts, st.floats(0, 1e6), spans)
def test_tokens_by_a_stamped_end_are_those_of_the_span(
    law: DecodeLaw, batch: int, context_tokens: int, start_s: float, tokens: int
) -> None:
    """At the instant that the simulator stamps on token n, n tokens are done and not n - 1."""
    end_s = start_s + law.span_s(batch, context_tokens, tokens)
    done = law.tokens_by(batch, context_tokens, start_s, end_s, most=1000)
    assert done >= tokens
    assert start_s + law.span_s(batch, context_tokens, done) == end_s


def test_tokens_within_at_the_edges() -> None:
    free = DecodeLaw.of((0.0, 0.0, 0.0))
    assert free.tokens_within(1, 0, 0.0, most=7) == 7
    assert free.tokens_within(1, 0, 1.0) == sys.maxsize
    assert free.tokens_within(1, 0, -1.0, most=7) == 0
    assert CROSSING.tokens_within(1, 0, math.inf, most=7) == 7
    assert CROSSING.tokens_within(1, 0, math.nan, most=7) == 0
    assert CROSSING.tokens_within(1, 0, 0.1) == 1
    assert CROSSING.tokens_within(1, 0, math.nextafter(0.1, 0.0)) == 0


@given(laws, batches, contexts, spans, st.floats(1e-6, 100), st.sampled_from([0.5, 2.0, 0.25]))
def test_scaling_by_a_power_of_two_is_exact(
    law: DecodeLaw, batch: int, context_tokens: int, tokens: int, within_s: float, factor: float
) -> None:
    scaled = law.scaled(factor)
    whole = law.span_s(batch, context_tokens, tokens)
    assert scaled.span_s(batch, context_tokens, tokens) == whole * factor
    assert scaled.token_s(batch, context_tokens) == law.token_s(batch, context_tokens) * factor
    done = law.tokens_within(batch, context_tokens, within_s, 5000)
    assert scaled.tokens_within(batch, context_tokens, within_s * factor, 5000) == done


def test_what_is_added_is_added_to_every_line() -> None:
    law = DecodeLaw.of((0.1, 0.0, 0.0), (0.0, 0.0, 1e-3), per_rollout_s=0.01, fixed_s=0.5)
    assert law.token_s(2, 50) == pytest.approx(0.1 + 2 * 0.01 + 0.5)
    assert law.token_s(2, 200) == pytest.approx(0.2 + 2 * 0.01 + 0.5)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1e-9])
def test_a_law_refuses_impossible_times(bad: float) -> None:
    with pytest.raises(ValueError, match=r"DecodeLaw.lines\[1\].per_context_s is .*at least 0"):
        DecodeLaw((Line(0.1), Line(0.1, 0.0, bad)))
    with pytest.raises(ValueError, match=r"DecodeLaw.scaled.factor is "):
        CROSSING.scaled(bad)


def test_a_law_needs_a_line() -> None:
    with pytest.raises(ValueError, match=r"DecodeLaw.lines is empty"):
        DecodeLaw(())

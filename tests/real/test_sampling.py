"""Sampling: splitmix64 by its published outputs, and the distribution that is inverted."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oppo_real.networks.sampling import GOLDEN, mix, sample, uniforms

INT64 = st.integers(-(2**63), 2**63 - 1)
# the first outputs of the generator seeded with 1234567, as Rosetta Code publishes them
PUBLISHED = (
    6457827717110365317,
    3203168211198807973,
    9817491932198370423,
    4593380528125082431,
    16408922859458223821,
)


def signed(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


def test_the_mixer_is_splitmix64() -> None:
    states = [signed(1234567 + GOLDEN * (n + 1)) for n in range(len(PUBLISHED))]
    assert [out % 2**64 for out in mix(torch.tensor(states)).tolist()] == list(PUBLISHED)


@given(st.integers(0, 2**40), st.integers(0, 2**31), st.integers(0, 2**20))
def test_a_uniform_is_its_places_alone(seed: int, rollout: int, index: int) -> None:
    alone = uniforms(seed, torch.tensor([rollout]), torch.tensor([index]))
    company = torch.tensor([3, rollout, rollout, rollout + 1])
    among = uniforms(seed, company, torch.tensor([0, index, index + 1, index]))
    assert 0 <= alone.item() < 1
    assert among[1] == alone
    assert len(set(among.tolist())) == 4


def test_uniforms_are_uniform_along_each_axis() -> None:
    """Kolmogorov and Smirnov's distance of 20,000 draws passes 0.0138 one time in a thousand."""
    count = torch.arange(20_000)
    zeros = torch.zeros_like(count)
    grid = (count + 0.5) / len(count)
    for rollouts, indices in ((count, zeros), (zeros, count), (count // 200, count % 200)):
        drawn = uniforms(7, rollouts, indices).sort().values
        assert (drawn - grid).abs().max() < 0.0138
        pairs = torch.corrcoef(torch.stack([drawn[:-1], drawn[1:]]))
        assert drawn.dtype == torch.float64
        assert pairs.isfinite().all()
    a, b = uniforms(7, zeros, count), uniforms(8, zeros, count)
    assert torch.corrcoef(torch.stack([a[:-1], a[1:], b[1:]]))[0, 1:].abs().max() < 0.03


@pytest.mark.parametrize("vocab", [1, 5, 128, 129, 1000])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
def test_it_inverts_the_cumulative_distribution(vocab: int, temperature: float) -> None:
    """Against a plain loop in double precision; the ends of every token's interval are avoided."""
    torch.manual_seed(vocab)
    logits = torch.randn(64, vocab, dtype=torch.float64) * 3
    u = torch.rand(64, dtype=torch.float64)
    tokens, logprobs = sample(logits, u, temperature)
    for row, at, token, logprob in zip(
        logits.tolist(), u.tolist(), tokens.tolist(), logprobs.tolist(), strict=True
    ):
        weights = [math.exp(logit / (temperature + 1e-7)) for logit in row]
        total, below, expected = sum(weights), 0.0, 0
        while below + weights[expected] <= at * total:
            below += weights[expected]
            expected += 1
        assert token == expected
        assert logprob == pytest.approx(math.log(weights[expected] / total), abs=1e-9)


@given(st.lists(st.integers(0, 299), min_size=1, max_size=5, unique=True), st.booleans())
def test_a_token_without_probability_is_never_drawn(allowed: list[int], at_end: bool) -> None:
    logits = torch.full((1, 300), -torch.inf)
    logits[0, allowed] = torch.randn(len(allowed))
    u = torch.tensor([1 - 2.0**-52 if at_end else 0.0], dtype=torch.float64)
    tokens, logprobs = sample(logits, u, 1.0)
    assert tokens.item() == (max if at_end else min)(allowed)
    assert logprobs.isfinite().all()


def test_frequencies_follow_the_probabilities() -> None:
    probabilities = torch.tensor([0.5, 0.25, 0.0, 0.2, 0.05])
    n = 50_000
    u = uniforms(1, torch.arange(n), torch.zeros(n, dtype=torch.long))
    tokens, _ = sample(probabilities.log().expand(n, -1), u, 1.0)
    shares = torch.bincount(tokens, minlength=5) / n
    assert (shares - probabilities).abs().max() < 4 * math.sqrt(0.25 / n)


def test_half_precision_logits_get_float32_log_probabilities() -> None:
    logits = torch.randn(3, 40).bfloat16()
    tokens, logprobs = sample(logits, torch.rand(3, dtype=torch.float64), 1.0)
    exact = torch.log_softmax(logits.double(), -1).gather(1, tokens[:, None])[:, 0]
    assert logprobs.dtype == torch.float32
    assert (logprobs - exact).abs().max() < 2e-6

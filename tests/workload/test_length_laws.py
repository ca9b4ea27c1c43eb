"""Constant, exponential and replayed lengths."""

import math

import numpy as np
import pytest

from oppo_sim.workload import Constant, Exponential, Replay

GRID = (np.arange(200_000) + 0.5) / 200_000


def harmonic(n: int) -> float:
    return math.fsum(1 / k for k in range(1, n + 1))


def test_a_constant_is_constant() -> None:
    assert Constant(7).ppf(GRID[:3]).tolist() == [7, 7, 7]


@pytest.mark.parametrize("mean", [1, 1.5, 20, 500])
def test_the_exponential_has_the_mean_it_was_given(mean: float) -> None:
    lengths = Exponential(mean).ppf(GRID)
    assert lengths.min() >= 1
    assert lengths.mean() == pytest.approx(mean, rel=1e-3)


def test_the_exponential_has_no_memory() -> None:
    """P(X > a + b) = P(X > a) P(X > b): a carried rollout is as good as a fresh one."""
    lengths = Exponential(50).ppf(GRID)

    def beyond(tokens: int) -> float:
        return float((lengths > tokens).mean())

    assert beyond(90) == pytest.approx(beyond(30) * beyond(60), rel=1e-3)


def test_the_longest_of_a_batch_follows_the_harmonic_numbers() -> None:
    """E[max of B] = H(B) / rate, and half a token more for rounding up."""
    law = Exponential(500)
    longest_of_112 = law.ppf(GRID ** (1 / 112)).mean()
    assert longest_of_112 == pytest.approx(harmonic(112) / law.rate_per_token + 0.5, rel=1e-4)


@pytest.mark.parametrize("tokens", [0, -1, 2.5, True, math.nan, "7"])
def test_a_constant_refuses_what_is_no_length(tokens: object) -> None:
    with pytest.raises(ValueError, match="tokens must be a whole number >= 1, not"):
        Constant(tokens)  # type: ignore[arg-type]


@pytest.mark.parametrize("mean", [0.5, -1, math.nan, math.inf, "500"])
def test_an_exponential_refuses_what_is_no_mean(mean: object) -> None:
    with pytest.raises(ValueError, match="mean_tokens must be a finite number >= 1, not"):
        Exponential(mean)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [0, -3, 1.5, math.nan, "12", None])
def test_a_replay_refuses_what_is_no_length(bad: object) -> None:
    with pytest.raises(ValueError, match=r"response_tokens\[1\] must be a whole number >= 1"):
        Replay((5, bad))  # type: ignore[arg-type]


def test_a_replay_refuses_an_empty_list() -> None:
    with pytest.raises(ValueError, match="response_tokens is empty"):
        Replay(())


def test_a_replay_refuses_prompts_that_do_not_match() -> None:
    with pytest.raises(ValueError, match="prompt_tokens has 1 entries, response_tokens 2"):
        Replay((5, 6), (3,))

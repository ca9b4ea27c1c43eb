"""PPO's arithmetic against plain loops written from the papers' equations, and against TRL's."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oppo_real.ppo import losses as ppo

LENGTHS = [5, 1, 3, 5, 2]
WIDTH = 5


def numbers(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def real_places(lengths: list[int] = LENGTHS) -> list[tuple[int, int]]:
    return [(row, t) for row, length in enumerate(lengths) for t in range(length)]


def mask() -> Tensor:
    return ppo.real(torch.tensor(LENGTHS), WIDTH)


def test_a_mask_is_true_at_real_tokens() -> None:
    assert [tuple(place) for place in mask().nonzero().tolist()] == real_places()


def test_both_kl_estimators_average_to_the_divergence() -> None:
    actor, reference = numbers(1, 7).log_softmax(0), numbers(2, 7).log_softmax(0)
    divergence = sum(a.exp() * (a - r) for a, r in zip(actor, reference, strict=True))
    for estimator in ("k1", "k3"):
        per_token = ppo.kl(actor, reference, estimator)
        assert (actor.exp() * per_token).sum() == pytest.approx(float(divergence), abs=1e-12)


@given(st.floats(-20, 0), st.floats(-20, 0))
def test_k1_may_be_negative_and_k3_is_not(actor: float, reference: float) -> None:
    pair = torch.tensor(actor, dtype=torch.float64), torch.tensor(reference, dtype=torch.float64)
    assert ppo.kl(*pair, "k1") == pytest.approx(actor - reference)
    ratio = math.exp(reference - actor)
    assert ppo.kl(*pair, "k3") == pytest.approx(ratio - 1 - (reference - actor), abs=1e-9 * ratio)
    assert ppo.kl(*pair, "k3") >= 0


def test_a_row_that_did_not_stop_loses_the_penalty() -> None:
    scores, stopped = torch.tensor([1.0, 2.0, -3.0]), torch.tensor([True, False, False])
    assert ppo.penalised(scores, stopped, 0.5).tolist() == [1.0, 1.5, -3.5]
    assert ppo.penalised(scores, stopped, None).tolist() == [1.0, 2.0, -3.0]


@pytest.mark.parametrize(
    ("score_at", "places"), [("eos", [4, 0, 2, 4, 1]), ("trl", [4, 1, 3, 4, 2])]
)
def test_the_score_lands_at_the_last_token_or_at_the_first_pad(
    score_at: ppo.ScoreAt, places: list[int]
) -> None:
    penalties, scores = torch.where(mask(), numbers(3, 5, WIDTH), 0), numbers(4, 5)
    rewards = ppo.token_rewards(penalties, scores, torch.tensor(LENGTHS), score_at)
    expected = penalties.tolist()
    for row, place in enumerate(places):
        expected[row][place] += scores[row].item()
    assert rewards.tolist() == expected


@given(st.floats(0, 1), st.floats(0, 1), st.integers(0, 999))
def test_gae_is_the_sum_of_discounted_errors(gamma: float, lam: float, seed: int) -> None:
    """Eq. 16 of Schulman et al. 2016, as the sum it abbreviates; nothing follows a row's end."""
    real = mask()
    rewards = torch.where(real, numbers(seed, 5, WIDTH), 0)
    values = torch.where(real, numbers(seed + 1, 5, WIDTH), 0)
    advantages = ppo.gae(rewards, values, gamma, lam)
    for row, length in enumerate(LENGTHS):
        r, v = rewards[row].tolist(), [*values[row, :length].tolist(), 0.0]
        delta = [r[t] + gamma * v[t + 1] - v[t] for t in range(length)]
        for t in range(length):
            ahead = sum((gamma * lam) ** k * delta[t + k] for k in range(length - t))
            assert advantages[row, t].item() == pytest.approx(ahead, abs=1e-12)
    assert not advantages[~real].any()


def test_with_lambda_one_a_return_is_the_rewards_to_come() -> None:
    real = mask()
    rewards, values = (torch.where(real, numbers(seed, 5, WIDTH), 0) for seed in (5, 6))
    returns = ppo.gae(rewards, values, 1.0, 1.0) + values
    for row, t in real_places():
        assert returns[row, t].item() == pytest.approx(rewards[row, t:].sum().item())


@pytest.mark.parametrize("shift_mean", [True, False])
def test_whitening_is_over_the_batchs_real_tokens(shift_mean: bool) -> None:
    values = torch.where(mask(), 3 + 2 * numbers(7, 5, WIDTH), 1e6)
    seen = [values[place].item() for place in real_places()]
    mean = sum(seen) / len(seen)
    variance = sum((value - mean) ** 2 for value in seen) / (len(seen) - 1)
    white = ppo.whiten(values, mask(), shift_mean=shift_mean)
    for place in real_places():
        expected = (values[place].item() - mean) / math.sqrt(variance + 1e-8)
        assert white[place].item() == pytest.approx(expected + (0 if shift_mean else mean))
    assert not white[~mask()].any()


def test_whitening_is_trls() -> None:
    from trl.experimental.ppo.ppo_trainer import masked_whiten

    values, real = numbers(8, 5, WIDTH), mask()
    for shift_mean in (True, False):
        theirs = torch.masked_fill(masked_whiten(values, real, shift_mean), ~real, 0)
        torch.testing.assert_close(ppo.whiten(values, real, shift_mean=shift_mean), theirs)


def test_a_single_token_is_whitened_to_nothing() -> None:
    white = ppo.whiten(torch.tensor([[4.0, 0.0]]), torch.tensor([[True, False]]))
    assert white.tolist() == [[0.0, 0.0]]


def policy_by_hand(new: float, old: float, advantage: float, clip: float) -> float:
    ratio = math.exp(new - old)
    return -min(ratio * advantage, min(max(ratio, 1 - clip), 1 + clip) * advantage)


def test_the_policy_loss_is_the_clipped_surrogate() -> None:
    """Eq. 7 of Schulman et al. 2017, token by token, and its slope by differences."""
    new, old, advantages = 0.3 * numbers(9, 40), 0.3 * numbers(10, 40), numbers(11, 40)
    loss = ppo.policy_loss(new.requires_grad_(), old, advantages, 0.2)
    loss.losses.sum().backward()
    for i in range(40):
        n, o, a = new[i].item(), old[i].item(), advantages[i].item()
        assert loss.losses[i].item() == pytest.approx(policy_by_hand(n, o, a, 0.2))
        ratio = math.exp(n - o)
        outside = (a > 0 and ratio > 1.2) or (a < 0 and ratio < 0.8)
        assert bool(loss.clipped[i]) is outside
        step = 1e-6
        slope = policy_by_hand(n + step, o, a, 0.2) - policy_by_hand(n - step, o, a, 0.2)
        assert new.grad is not None
        assert new.grad[i].item() == pytest.approx(slope / (2 * step), abs=1e-6)
    assert 0 < loss.clipped.sum() < 40


def test_the_decoupled_loss_weighs_by_the_proximal_over_the_behaviour_actor() -> None:
    """Eq. 5 of arXiv 2505.24298; the weight is constant, and at most the cap."""
    new, proximal, behaviour = (0.5 * numbers(seed, 30) for seed in (12, 13, 14))
    advantages = numbers(15, 30)
    new.requires_grad_()
    loss = ppo.policy_loss(new, proximal, advantages, 0.2, behaviour, 1.5)
    weights = [min(math.exp(p - b), 1.5) for p, b in zip(proximal, behaviour, strict=True)]
    for i, weight in enumerate(weights):
        plain = policy_by_hand(new[i].item(), proximal[i].item(), advantages[i].item(), 0.2)
        assert loss.losses[i].item() == pytest.approx(weight * plain)
    assert 0 < sum(weight == 1.5 for weight in weights) < 30
    alone = ppo.policy_loss(new, proximal, advantages, 0.2).losses
    (theirs,) = torch.autograd.grad(alone.sum(), new, retain_graph=True)
    (ours,) = torch.autograd.grad(loss.losses.sum(), new)
    torch.testing.assert_close(ours, torch.tensor(weights, dtype=torch.float64) * theirs)


def test_where_nothing_is_stale_all_three_ratios_agree() -> None:
    new, old, advantages = 0.3 * numbers(16, 20), 0.3 * numbers(17, 20), numbers(18, 20)
    plain = ppo.policy_loss(new, old, advantages, 0.2)
    decoupled = ppo.policy_loss(new, old, advantages, 0.2, behaviour=old, behaviour_cap=5.0)
    assert torch.equal(plain.losses, decoupled.losses)


def test_the_value_loss_takes_the_worse_of_plain_and_clipped() -> None:
    values, old, returns = numbers(19, 40), numbers(20, 40), numbers(21, 40)
    loss = ppo.value_loss(values, old, returns, 0.2)
    for i in range(40):
        v, o, r = values[i].item(), old[i].item(), returns[i].item()
        near = min(max(v, o - 0.2), o + 0.2)
        assert loss.losses[i].item() == pytest.approx(0.5 * max((v - r) ** 2, (near - r) ** 2))
        assert bool(loss.clipped[i]) is ((near - r) ** 2 > (v - r) ** 2)

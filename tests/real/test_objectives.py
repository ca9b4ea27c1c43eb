"""GRPO and online DPO against plain loops, and GRPO against TRL's own loss."""

import math
import sys
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from torch import Tensor

from oppo_real.ppo import losses as ppo
from oppo_real.ppo import objectives

LENGTHS = [4, 2, 3, 1]
MASK = ppo.real(torch.tensor(LENGTHS), 4)


def numbers(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def test_advantages_are_within_the_group() -> None:
    rewards = numbers(1, 6)
    advantages = objectives.group_advantages(rewards, 3)
    for start in (0, 3):
        group = rewards[start : start + 3].tolist()
        mean = sum(group) / 3
        deviation = math.sqrt(sum((reward - mean) ** 2 for reward in group) / 2)
        for i, reward in enumerate(group):
            expected = (reward - mean) / (deviation + 1e-4)
            assert advantages[start + i].item() == pytest.approx(expected)


def test_unscaled_advantages_keep_the_rewards_distances() -> None:
    rewards = torch.tensor([1.0, 3.0, 10.0, 20.0])
    advantages = objectives.group_advantages(rewards, 2, scale=False)
    assert advantages.tolist() == [-1.0, 1.0, -5.0, 5.0]


def test_a_group_of_equal_rewards_teaches_nothing() -> None:
    assert not objectives.group_advantages(torch.full((4,), 2.5), 4).any()


@pytest.mark.parametrize("group", [1, 4])
def test_groups_that_do_not_fit_are_refused(group: int) -> None:
    with pytest.raises(ValueError, match=f"group: {group}"):
        objectives.group_advantages(torch.zeros(6), group)


def test_grpo_is_a_mean_over_tokens() -> None:
    new, old, reference = (0.4 * numbers(seed, 4, 4) - 2 for seed in (2, 3, 4))
    advantages = numbers(5, 4)
    loss = objectives.grpo_loss(new, old, reference, advantages, MASK, cliprange=0.2, kl_coef=0.1)
    total = 0.0
    for row, length in enumerate(LENGTHS):
        for t in range(length):
            ratio = math.exp(new[row, t] - old[row, t])
            gain = advantages[row].item()
            clipped = min(max(ratio, 0.8), 1.2)
            away = (reference[row, t] - new[row, t]).item()
            total += -min(ratio * gain, clipped * gain) + 0.1 * (math.exp(away) - away - 1)
    assert loss.item() == pytest.approx(total / sum(LENGTHS))


@pytest.mark.slow
def test_grpo_and_its_gradient_are_trls() -> None:
    new, old, reference = (0.4 * numbers(seed, 4, 4) - 2 for seed in (6, 7, 8))
    advantages = numbers(9, 4)
    theirs, ours = new.clone().requires_grad_(), new.clone().requires_grad_()
    their_loss = trls_grpo_loss(theirs, old, reference, advantages, beta=0.1)
    our_loss = objectives.grpo_loss(ours, old, reference, advantages, MASK, kl_coef=0.1)
    their_loss.backward()
    our_loss.backward()
    torch.testing.assert_close(our_loss, their_loss, atol=1e-12, rtol=0)
    torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-12, rtol=0)


def trls_grpo_loss(
    new: Tensor, old: Tensor, reference: Tensor, advantages: Tensor, beta: float
) -> Tensor:
    """`GRPOTrainer._compute_loss` with `loss_type="bnpo"`, on log-probabilities as they are."""
    with pytest.MonkeyPatch.context() as patch:  # its client of vLLM wants a package more
        patch.setitem(sys.modules, "trl.generation.vllm_client", MagicMock())
        from trl import GRPOTrainer

    trainer: Any = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *_, **__: (new, torch.zeros_like(new), None),
        aux_loss_enabled=False,
        _entropy_bonus_enabled=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        importance_sampling_level="token",
        beta=beta,
        loss_type="bnpo",
        epsilon_low=0.2,
        epsilon_high=0.2,
        use_vllm=False,
        model=SimpleNamespace(training=True),
        current_gradient_accumulation_steps=1,
        args=SimpleNamespace(delta=None, use_bias_correction_kl=False),
        accelerator=MagicMock(**{"gather.return_value": torch.zeros(1)}),
        _metrics=MagicMock(),
    )
    ids = torch.zeros(4, 4, dtype=torch.long)
    inputs = {
        "prompt_ids": ids,
        "prompt_mask": ids,
        "completion_ids": ids,
        "completion_mask": MASK.double(),
        "advantages": advantages,
        "old_per_token_logps": old,
        "ref_per_token_logps": reference,
    }
    loss: Tensor = GRPOTrainer._compute_loss(trainer, None, inputs)
    return loss


def test_the_better_answer_is_preferred_and_ties_keep_their_order() -> None:
    chosen, rejected = objectives.prefer(torch.tensor([1.0, 5.0, 2.0, 3.0, 4.0, 2.0]))
    assert chosen.tolist() == [3, 1, 2]
    assert rejected.tolist() == [0, 4, 5]


def test_online_dpo_is_the_logistic_loss_of_the_margin() -> None:
    sums = [-10 + numbers(seed, 5) for seed in (10, 11, 12, 13)]
    losses = objectives.online_dpo_loss(*sums, beta=0.3)
    for i, (chosen, rejected, chosen_was, rejected_was) in enumerate(
        zip(*[s.tolist() for s in sums], strict=True)
    ):
        margin = (chosen - chosen_was) - (rejected - rejected_was)
        assert losses[i].item() == pytest.approx(math.log(1 + math.exp(-0.3 * margin)))


def test_online_dpo_holds_for_margins_that_overflow() -> None:
    losses = objectives.online_dpo_loss(
        torch.tensor([-1e4]), torch.tensor([0.0]), torch.tensor([0.0]), torch.tensor([0.0]), 1.0
    )
    assert losses.tolist() == [1e4]

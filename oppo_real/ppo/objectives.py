"""The losses of GRPO and of online DPO, pure as those of `ppo`.

Shapes: B responses, T tokens of the longest, P pairs of responses to the same prompt.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from oppo_real.ppo.losses import kl, masked_mean, policy_loss


def group_advantages(
    rewards: Tensor, group: int, *, scale: bool = True, epsilon: float = 1e-4
) -> Tensor:
    """Rewards against those of the same prompt; `[B] -> [B]`, a prompt's rows stand together.

    (r - mean) / (std + epsilon) with the unbiased deviation of the `group` rows (Shao et al. 2024,
    arXiv 2402.03300); without `scale` the mean is all that is taken off (Liu et al. 2025).
    """
    if group < 2 or len(rewards) % group:
        raise ValueError(f"group: {group} rows do not divide {len(rewards)} rewards, or are one")
    grouped = rewards.view(-1, group)
    centred = grouped - grouped.mean(1, keepdim=True)
    if scale:
        centred = centred / (grouped.std(1, keepdim=True) + epsilon)
    return centred.view(-1)


def grpo_loss(
    logprobs: Tensor,
    old: Tensor,
    reference: Tensor | None,
    advantages: Tensor,
    mask: Tensor,
    *,
    cliprange: float = 0.2,
    kl_coef: float = 0.0,
) -> Tensor:
    """The mean over all real tokens of the clipped loss plus `kl_coef` times k3; `-> []`.

    Log-probabilities and mask are `[B, T]`, advantages `[B]`. A mean over tokens, not over rows,
    lets every token weigh the same however long its row is (Yu et al. 2025, arXiv 2503.14476).
    """
    losses = policy_loss(logprobs, old, advantages[:, None], cliprange).losses
    if reference is not None and kl_coef:
        losses = losses + kl_coef * kl(logprobs, reference, "k3")
    return masked_mean(losses, mask)


def prefer(rewards: Tensor) -> tuple[Tensor, Tensor]:
    """Indices `[P]` of the better and the worse response of each pair; of equals the first wins.

    Rewards are `[2 P]`: responses i and P + i answer the same prompt.
    """
    pairs = len(rewards) // 2
    first = torch.arange(pairs, device=rewards.device)
    first_is_better = rewards[:pairs] >= rewards[pairs:]
    chosen = torch.where(first_is_better, first, first + pairs)
    return chosen, torch.where(first_is_better, first + pairs, first)


def online_dpo_loss(
    chosen: Tensor,
    rejected: Tensor,
    reference_chosen: Tensor,
    reference_rejected: Tensor,
    beta: float,
) -> Tensor:
    """-log sigmoid(beta margin) of each pair; `[P] -> [P]`, sums of log-probabilities over tokens.

    The margin is log(actor/reference) of the chosen response less that of the rejected one
    (Rafailov et al. 2023, arXiv 2305.18290, eq. 7; online: Guo et al. 2024, arXiv 2402.04792).
    """
    margin = (chosen - rejected) - (reference_chosen - reference_rejected)
    return -logsigmoid(beta * margin)

"""PPO's arithmetic as pure functions, in the conventions of TRL 1.12.

Shapes: B rows, T tokens of the longest response; rows are padded on the right and a mask `[B, T]`
is True at real tokens. `[...]` is any shape: losses come per token, so that the caller can take
their mean over whatever it sums up.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

ScoreAt = Literal["eos", "trl"]


class Loss(NamedTuple):
    """Per token; `clipped` is True where the clipped term is the larger one and counts."""

    losses: Tensor  # [...]
    clipped: Tensor  # [...] bool


def real(lengths: Tensor, width: int) -> Tensor:
    """The mask `[B, width]` of rows of these lengths `[B]`."""
    return torch.arange(width, device=lengths.device) < lengths[:, None]


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """The mean over the True places of a mask; `[...], [...] -> []`."""
    return torch.where(mask, values, 0).sum() / mask.sum()


def kl(logprobs: Tensor, reference: Tensor, estimator: Literal["k1", "k3"]) -> Tensor:
    """KL(actor || reference) estimated from one sampled token; `[...], [...] -> [...]`.

    Schulman, "Approximating KL divergence": with r = reference / actor, k1 is -log r and k3 is
    (r - 1) - log r, which is never negative. Both are unbiased.
    """
    log_ratio = reference - logprobs
    return -log_ratio if estimator == "k1" else torch.expm1(log_ratio) - log_ratio


def penalised(scores: Tensor, stopped: Tensor, penalty: float | None) -> Tensor:
    """Scores `[B]`, less the penalty where a row did not stop by itself (`stopped [B]`, bool)."""
    return scores if penalty is None else torch.where(stopped, scores, scores - penalty)


def value_lengths(lengths: Tensor, width: int, score_at: ScoreAt) -> Tensor:
    """How many values of each row take part; `[B] -> [B]`.

    Value t is the critic's at the token before response token t. "eos": one for each token. "trl":
    one more, read at the last token, where the batch is wide enough to have a place for it.
    """
    return lengths if score_at == "eos" else (lengths + 1).clamp(max=width)


def token_rewards(
    penalties: Tensor, scores: Tensor, lengths: Tensor, score_at: ScoreAt = "eos"
) -> Tensor:
    """Rewards `[B, T]`: per-token penalties `[B, T]` plus each row's score `[B]` at one place.

    "eos": the last real token. "trl": the first pad after it; where the row fills the batch's
    width, the last token. A row's rewards so depend on how long the other rows are.
    """
    rewards = penalties.clone()
    place = value_lengths(lengths, penalties.shape[1], score_at) - 1
    rewards[torch.arange(len(scores), device=scores.device), place] += scores
    return rewards


def whiten(values: Tensor, mask: Tensor, *, shift_mean: bool = True) -> Tensor:
    """To unit variance (unbiased) over the whole batch, and to mean 0; `[B, T] -> [B, T]`.

    Without `shift_mean` the mean stays. Places outside the mask become 0.
    """
    count = mask.sum()
    mean = masked_mean(values, mask)
    variance = masked_mean((values - mean).square(), mask) * count / (count - 1).clamp(min=1)
    whitened = (values - mean) * torch.rsqrt(variance + 1e-8)
    return torch.where(mask, whitened if shift_mean else whitened + mean, 0)


def gae(rewards: Tensor, values: Tensor, gamma: float, lam: float) -> Tensor:
    """Generalised advantages; `[B, T], [B, T] -> [B, T]`, both 0 beyond a row's end.

    A_t = delta_t + gamma lam A_(t+1), delta_t = r_t + gamma V_(t+1) - V_t (Schulman et al. 2016,
    eq. 16). Nothing follows a row's end, also where it was cut at the cap: no bootstrap, as in TRL.
    """
    advantages = torch.empty_like(values)
    following = values.new_zeros(len(values))
    next_values = following
    for t in reversed(range(values.shape[1])):
        delta = rewards[:, t] + gamma * next_values - values[:, t]
        following = delta + gamma * lam * following
        advantages[:, t] = following
        next_values = values[:, t]
    return advantages


def policy_loss(
    logprobs: Tensor,
    old: Tensor,
    advantages: Tensor,
    cliprange: float,
    behaviour: Tensor | None = None,
    behaviour_cap: float = float("inf"),
) -> Loss:
    """-min(r A, clip(r, 1 - c, 1 + c) A) with r = exp(logprobs - old); all `[...]`.

    With `behaviour`, the log-probabilities that tokens were sampled with, `old` are those of the
    proximal actor, and each token weighs exp(old - behaviour), at most the cap: AReaL's decoupled
    objective (Fu et al. 2025, arXiv 2505.24298, eq. 5), truncated as an importance weight is.
    """
    ratio = torch.exp(logprobs - old)
    plain = -advantages * ratio
    clipped = -advantages * ratio.clamp(1 - cliprange, 1 + cliprange)
    losses = torch.maximum(plain, clipped)
    if behaviour is not None:
        losses = losses * torch.exp(old - behaviour).clamp(max=behaviour_cap)
    return Loss(losses, clipped > plain)


def value_loss(values: Tensor, old: Tensor, returns: Tensor, cliprange: float) -> Loss:
    """max((V - R)^2, (clip(V, old - c, old + c) - R)^2) / 2; all `[...]`."""
    plain = (values - returns).square()
    near = torch.clamp(values, old - cliprange, old + cliprange)
    clipped = (near - returns).square()
    return Loss(0.5 * torch.maximum(plain, clipped), clipped > plain)

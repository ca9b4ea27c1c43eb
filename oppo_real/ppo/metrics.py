"""What an update says of itself, under the names and in the sense of TRL's PPO."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from oppo_real.ppo import losses as ppo
from oppo_real.ppo.batch import Rows
from oppo_real.ppo.prepare import Prepared

# means over the tokens of a mini-batch, one of each per optimiser step
STEP = (
    "loss/policy_avg",
    "policy/clipfrac_avg",
    "policy/approxkl_avg",
    "val/ratio",
    "policy/entropy_avg",
    "loss/value_avg",
    "val/clipfrac_avg",
)


def metrics(
    rows: Rows, prepared: Prepared, steps: Sequence[Tensor], kl_coef: float
) -> dict[str, float]:
    """`objective/...`: sums over a response, means over the batch. Else means over the steps."""
    mask = ppo.real(rows.lengths, rows.width)
    kl = prepared.kl.sum(1).mean()
    score = prepared.scores.mean()
    table = torch.stack(list(steps))
    ratios = table[:, STEP.index("val/ratio")]
    told = {
        "objective/kl": kl,
        "objective/entropy": -torch.where(mask, prepared.sampled, 0).sum(1).mean(),
        "objective/non_score_reward": -kl_coef * kl,
        "objective/rlhf_reward": score - kl_coef * kl,
        "objective/scores": score,
        **dict(zip(STEP, table.mean(0), strict=True)),
        "val/ratio_var": ratios.var() if len(ratios) > 1 else ratios.new_zeros(()),
        "val/num_eos_tokens": rows.stopped.sum(),
    }
    numbers = torch.stack([number.double() for number in told.values()]).tolist()
    return dict(zip(told, numbers, strict=True))

"""What an update holds fixed while it trains: old log-probabilities, values, advantages."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from oppo_real.ppo import losses as ppo
from oppo_real.ppo import objectives
from oppo_real.ppo.batch import Rows
from oppo_real.ppo.forward import Forward
from oppo_sim.config.real import Ppo
from oppo_sim.engine.contract import EngineError


class Prepared(NamedTuple):
    """What an update holds fixed; `[B, T]`, T the longest response."""

    old: Tensor  # the ratio's denominator, log-probabilities
    behaviour: Tensor | None  # of the decoupled objective
    sampled: Tensor  # what the KL term and its metrics are of
    kl: Tensor  # 0 at padding
    values: Tensor  # as returns, of no meaning where there is no critic
    advantages: Tensor
    returns: Tensor
    scores: Tensor  # [B], with the missing-EOS penalty
    value_counts: list[int]  # per row, values that take part
    reference: Tensor | None  # where there is a KL term


class Preparation:
    """Prepares batches by the weights that an update begins with."""

    def __init__(
        self,
        actor: nn.Module,
        critic: nn.Module | None,
        reference: nn.Module | None,
        settings: Ppo,
        forward: Forward,
        score_at: ppo.ScoreAt,
        group: int,
    ) -> None:
        self._actor, self._critic, self._reference = actor, critic, reference
        self._settings, self._forward, self._score_at = settings, forward, score_at
        self._group = group

    @torch.no_grad()
    def __call__(self, rows: Rows) -> Prepared:
        settings = self._settings
        mask = ppo.real(rows.lengths, rows.width)
        old = rows.logprobs
        if settings.ratio != "behaviour":
            old = self._logprobs(rows, self._actor, "recomputed log-probability")
        # AReaL penalises what was sampled from, unless recomputing replaces that altogether
        sampled = old if settings.ratio == "recomputed" else rows.logprobs
        kl = torch.zeros_like(sampled)
        reference = self._reference_of(rows) if settings.kl_coef else None
        if reference is not None:
            kl = torch.where(mask, ppo.kl(sampled, reference, settings.kl_estimator), 0)
        behaviour = rows.logprobs if settings.ratio == "decoupled" else None
        scores = ppo.penalised(rows.rewards, rows.stopped, settings.missing_eos_penalty)
        if self._critic is None:
            nothing = torch.zeros_like(sampled)
            advantages = torch.where(mask, self._of_groups(rows, scores)[:, None], 0)
            return Prepared(
                old, behaviour, sampled, kl, nothing, advantages, nothing, scores, [], reference
            )
        rewards = ppo.token_rewards(-settings.kl_coef * kl, scores, rows.lengths, self._score_at)
        value_lengths = ppo.value_lengths(rows.lengths, rows.width, self._score_at)
        if settings.whiten_rewards:
            value_mask = ppo.real(value_lengths, rows.width)
            rewards = ppo.whiten(rewards, value_mask, shift_mean=False)
        counts: list[int] = value_lengths.tolist()
        values = self._values(rows, counts, self._critic)
        advantages = ppo.gae(rewards, values, settings.gamma, settings.lam)
        returns = advantages + values
        masked = torch.where(mask, advantages, 0)
        advantages = ppo.whiten(masked, mask) if settings.whiten_advantages else masked
        return Prepared(
            old, behaviour, sampled, kl, values, advantages, returns, scores, counts, reference
        )

    def _of_groups(self, rows: Rows, scores: Tensor) -> Tensor:
        """GRPO's advantages [B]; the rows of a prompt stand together, sorted by rollout."""
        groups = [rollout // self._group for rollout in rows.rollouts]
        if any(groups.count(group) != self._group for group in groups):
            raise EngineError(
                f"rollouts {rows.rollouts}: GRPO needs whole groups of {self._group}, nothing was "
                "trained"
            )
        return objectives.group_advantages(scores, self._group)

    def _reference_of(self, rows: Rows) -> Tensor:
        if rows.reference is not None:
            return rows.reference
        if self._reference is None:
            raise EngineError(
                f"ppo.kl_coef: {self._settings.kl_coef} needs reference log-probabilities; none"
                " were streamed and there is no reference model: set it to 0 or name a reference"
            )
        return self._logprobs(rows, self._reference, "reference log-probability")

    def _values(self, rows: Rows, counts: list[int], critic: nn.Module) -> Tensor:
        if rows.values is not None and counts == rows.counts:  # streamed: one for each token
            return rows.values
        return self._forward.along(
            rows, counts, "value", lambda piece: self._forward.values(critic, piece)
        )

    def _logprobs(self, rows: Rows, model: nn.Module, what: str) -> Tensor:
        return self._forward.along(
            rows, rows.counts, what, lambda piece: self._forward.logprobs(model, piece).logprobs
        )

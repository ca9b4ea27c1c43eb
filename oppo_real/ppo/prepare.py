"""What an update holds fixed while it trains: old log-probabilities, values, advantages."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from oppo_real.ppo import losses as ppo
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
    values: Tensor
    advantages: Tensor
    returns: Tensor
    scores: Tensor  # [B], with the missing-EOS penalty
    value_counts: list[int]  # per row, values that take part


class Preparation:
    """Prepares batches by the weights that an update begins with."""

    def __init__(
        self,
        actor: nn.Module,
        critic: nn.Module,
        reference: nn.Module | None,
        settings: Ppo,
        forward: Forward,
        score_at: ppo.ScoreAt,
    ) -> None:
        self._actor, self._critic, self._reference = actor, critic, reference
        self._settings, self._forward, self._score_at = settings, forward, score_at

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
        if settings.kl_coef:
            reference = self._reference_of(rows)
            kl = torch.where(mask, ppo.kl(sampled, reference, settings.kl_estimator), 0)
        scores = ppo.penalised(rows.rewards, rows.stopped, settings.missing_eos_penalty)
        rewards = ppo.token_rewards(-settings.kl_coef * kl, scores, rows.lengths, self._score_at)
        value_lengths = ppo.value_lengths(rows.lengths, rows.width, self._score_at)
        if settings.whiten_rewards:
            value_mask = ppo.real(value_lengths, rows.width)
            rewards = ppo.whiten(rewards, value_mask, shift_mean=False)
        counts: list[int] = value_lengths.tolist()
        values = self._values(rows, counts)
        advantages = ppo.gae(rewards, values, settings.gamma, settings.lam)
        returns = advantages + values
        masked = torch.where(mask, advantages, 0)
        advantages = ppo.whiten(masked, mask) if settings.whiten_advantages else masked
        behaviour = rows.logprobs if settings.ratio == "decoupled" else None
        return Prepared(old, behaviour, sampled, kl, values, advantages, returns, scores, counts)

    def _reference_of(self, rows: Rows) -> Tensor:
        if rows.reference is not None:
            return rows.reference
        if self._reference is None:
            raise EngineError(
                f"ppo.kl_coef: {self._settings.kl_coef} needs reference log-probabilities; none"
                " were streamed and there is no reference model: set it to 0 or name a reference"
            )
        return self._logprobs(rows, self._reference, "reference log-probability")

    def _values(self, rows: Rows, counts: list[int]) -> Tensor:
        if rows.values is not None and counts == rows.counts:  # streamed: one for each token
            return rows.values
        return self._forward.along(
            rows, counts, "value", lambda piece: self._forward.values(self._critic, piece)
        )

    def _logprobs(self, rows: Rows, model: nn.Module, what: str) -> Tensor:
        return self._forward.along(
            rows, rows.counts, what, lambda piece: self._forward.logprobs(model, piece).logprobs
        )

"""PPO's update: one batch of finished rollouts into new weights of the actor and the critic.

What differs from TRL 1.12, whose update is met where a mini-batch is one micro-batch:

- Micro-batches sum to the whole mini-batch's gradient: every token weighs the same. TRL takes each
  micro-batch's own mean and averages those, so tokens beside short rows weigh more.
- A mini-batch is an optimiser step, whatever the micro-batches. TRL steps once for every
  `gradient_accumulation_steps` micro-batches, across mini-batches.
- `approxkl`, `ratio` and `entropy` are means over real tokens; TRL's also run over the padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from oppo_real.errors import ModelError
from oppo_real.networks.logprobs import LogitRule
from oppo_real.ppo import losses as ppo
from oppo_real.ppo.batch import Batch as Batch
from oppo_real.ppo.batch import Rows, check
from oppo_real.ppo.forward import Forward, checkpoint_layers, training
from oppo_real.ppo.metrics import STEP, metrics
from oppo_real.ppo.optimiser import NotFinite, Optimiser
from oppo_real.ppo.prepare import Preparation, Prepared
from oppo_sim.config.real import Ppo
from oppo_sim.engine.contract import EngineError


class Trainer:
    """Trains `actor` (a causal LM) and `critic` (a backbone with a `.score` of one number).

    Without a critic it is GRPO, as TRL's GRPOTrainer has it by default: a response is worth what it
    is better than the `group` responses to its prompt, in their standard deviations, the loss is a
    mean over tokens, and the KL term (k3) is a part of it rather than of the rewards.
    `reference` is needed where batches bring no reference log-probabilities. `steps`: of the whole
    run, for a linear learning rate. `score_at`: where a row's score lands (`ppo.token_rewards`).
    """

    def __init__(
        self,
        actor: nn.Module,
        critic: nn.Module | None,
        reference: nn.Module | None,
        settings: Ppo,
        *,
        temperature: float = 1.0,
        seed: int = 0,
        steps: int | None = None,
        rule: LogitRule | None = None,
        score_at: ppo.ScoreAt = "eos",
        group: int = 1,
    ) -> None:
        if critic is None:
            settings = settings.model_copy(update={"kl_estimator": "k3"})
        if settings.lr_schedule == "linear" and (settings.lr_total_steps or steps) is None:
            raise ModelError("ppo.lr_schedule: linear needs the run's number of steps; say `steps`")
        self.updates = 0
        self._actor, self._critic = actor, critic
        self._settings, self._seed, self._steps = settings, seed, steps
        weight = next(actor.parameters())
        self._device = weight.device
        self._dtype = torch.float64 if weight.dtype == torch.float64 else torch.float32
        self._forward = Forward(
            self._device,
            temperature=temperature,
            rule=rule,
            autocast=settings.autocast is not None,
            micro_batch=settings.micro_batch,
        )
        self._prepare = Preparation(
            actor, critic, reference, settings, self._forward, score_at, group
        )
        self._trained = [actor] if critic is None else [actor, critic]
        weights = [weight for model in self._trained for weight in model.parameters()]
        self._optimiser = Optimiser(weights, settings)
        if settings.gradient_checkpointing:
            for model in self._trained:
                checkpoint_layers(model)

    def update(self, batch: Batch, update: int) -> dict[str, float]:
        """Train the weights of version `update` into the next; metrics under TRL's names.

        Raises EngineError before anything is trained where a number of the batch is not finite, and
        at a loss or gradient that is not: then the weights are those of the last step before.
        """
        if update != self.updates:
            raise EngineError(f"update {update} was asked for, but update {self.updates} is due")
        check(batch, update)
        rows = Rows(batch, self._device, self._dtype)
        prepared = self._prepare(rows)
        lr, means = self._lr(update), []
        checkpointed = self._settings.gradient_checkpointing
        with training(*self._trained) if checkpointed else nullcontext():
            for epoch in range(self._settings.num_ppo_epochs):
                order = np.random.default_rng((self._seed, update, epoch)).permutation(len(rows))
                for part in np.array_split(order, self._settings.num_mini_batches):
                    if len(part):
                        means.append(self._step(rows, prepared, part.tolist(), lr))
        self.updates += 1
        return metrics(rows, prepared, means, self._settings.kl_coef) | {"lr": lr}

    def state_dict(self) -> dict[str, Any]:
        """All that an update depends on beside weights, batch and settings."""
        return {"updates": self.updates, "optimiser": self._optimiser.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on as the trainer would have that gave this state; load the weights before."""
        self.updates = state["updates"]
        self._optimiser.load_state_dict(state["optimiser"])

    def _lr(self, update: int) -> float:
        settings = self._settings
        if settings.lr_schedule == "constant":
            return settings.learning_rate
        steps = settings.lr_total_steps or self._steps
        assert steps is not None
        return settings.learning_rate * max(0.0, 1 - update / steps)

    def _step(self, rows: Rows, prepared: Prepared, part: Sequence[int], lr: float) -> Tensor:
        """One optimiser step on some rows; the means over their tokens that STEP names."""
        means = rows.rewards.new_zeros(len(STEP))
        for micro in rows.by_length(part, self._settings.micro_batch):
            means += torch.cat(
                [
                    self._policy_backward(rows, prepared, micro, part),
                    self._value_backward(rows, prepared, micro, part),
                ]
            )
        try:
            if not means.isfinite().all():
                raise NotFinite(f"{dict(zip(STEP, means.tolist(), strict=True))}")
            self._optimiser.step(lr)
        except NotFinite as error:
            self._optimiser.clear()
            trained = sorted(rows.rollouts[row] for row in part)
            raise EngineError(
                f"update {self.updates} of rollouts {trained}: {error}; this step was not taken"
            ) from None
        return means

    def _policy_backward(
        self, rows: Rows, prepared: Prepared, micro: Sequence[int], part: Sequence[int]
    ) -> Tensor:
        """Add the gradient of a micro-batch's share in the mini-batch's mean."""
        settings = self._settings
        tokens = sum(rows.counts[row] for row in part)
        piece = rows.piece(micro, rows.counts)
        at, behaviour = piece.place, prepared.behaviour
        old = prepared.old[at]
        new, entropies = self._forward.logprobs(self._actor, piece)
        losses, clipped = ppo.policy_loss(
            new,
            old,
            prepared.advantages[at],
            settings.cliprange,
            None if behaviour is None else behaviour[at],
            settings.behaviour_cap,
        )
        if self._critic is None and prepared.reference is not None:
            losses = losses + settings.kl_coef * ppo.kl(new, prepared.reference[at], "k3")
        loss = losses.sum() / tokens
        loss.backward()
        change = new.detach() - old
        along = (clipped.to(old.dtype), 0.5 * change.square(), change.exp(), entropies)
        return torch.stack([loss.detach(), *[numbers.sum() / tokens for numbers in along]])

    def _value_backward(
        self, rows: Rows, prepared: Prepared, micro: Sequence[int], part: Sequence[int]
    ) -> Tensor:
        if self._critic is None:
            return prepared.scores.new_zeros(2)
        settings, counts = self._settings, prepared.value_counts
        states = sum(counts[row] for row in part)
        piece = rows.piece(micro, counts)
        at = piece.place
        values = self._forward.values(self._critic, piece)
        losses, clipped = ppo.value_loss(
            values, prepared.values[at], prepared.returns[at], settings.cliprange_value
        )
        loss = losses.sum() / states
        (settings.vf_coef * loss).backward()
        return torch.stack([loss.detach(), clipped.to(loss.dtype).sum() / states])

"""The lanes of a `[real]` table, each built of its models and settings."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from oppo_real.machine.actor import ActorLane
from oppo_real.machine.backend import Clock
from oppo_real.machine.lanes import ScorerLane, TrainerLane
from oppo_real.machine.messages import Weights, Worker
from oppo_real.machine.processes import ProcessScorer
from oppo_real.networks.decoding import ContinuousBatch
from oppo_real.networks.lengths import ForcedLengths
from oppo_real.networks.loading import Models, load_scorer
from oppo_real.networks.rules import RuleReward
from oppo_real.networks.scoring import Scorer
from oppo_real.ppo.trainer import Trainer
from oppo_real.prompts import Prompts
from oppo_sim.config import ConfigError, Real, Scenario
from oppo_sim.costs.layout import Layout
from oppo_sim.engine import Lane, Limits
from oppo_sim.workload.loads import lengths_alone


def real_of(scenario: Scenario) -> Real:
    """Its `[real]` table. ConfigError where it has none."""
    if scenario.real is None:
        raise ConfigError(
            f"{scenario.file}: has no [real] table, so there is nothing to train: add one with "
            "actor, reward and prompts, or simulate it with `oppo run`"
        )
    return scenario.real


@dataclass(frozen=True)
class Build:
    """What the lanes of one machine are built of."""

    scenario: Scenario
    models: Models
    limits: Limits
    seed: int
    clock: Clock
    prompts: Prompts | None = None  # whose columns a reward function may ask for

    @property
    def real(self) -> Real:
        return real_of(self.scenario)

    def rule(self) -> ForcedLengths | None:
        """One for each lane: it remembers what it looked up."""
        return forced_lengths(self.scenario, self.seed, self.models.stop_ids)

    @property
    def shares_weights(self) -> bool:
        """Actors that stand still while the trainer works decode with its very weights."""
        return Layout(self.scenario.cluster).trains_on_actors

    def trainer(self, steps: int, group: int = 1) -> Trainer:
        models, real = self.models, self.real
        ppo = real.ppo
        if models.reference is None:  # "none": there is no KL term
            ppo = ppo.model_copy(update={"kl_coef": 0.0})
        return Trainer(
            models.actor,
            models.critic,
            models.reference,
            ppo,
            temperature=real.temperature,
            seed=self.seed,
            steps=steps,
            rule=self.rule(),
            group=group,
        )

    def actor(self, lane: Lane) -> ActorLane:
        model = self.models.actor if self.shares_weights else copy.deepcopy(self.models.actor)
        batch = ContinuousBatch(
            model,
            stop_ids=self.models.stop_ids,
            cap_tokens=self.limits.response_tokens,
            seed=self.seed,
            temperature=self.real.temperature,
            rule=self.rule(),
        )
        return ActorLane(lane, batch, self.clock, partial(_load, model))

    def frozen_or_trainer(self, lane: Lane, trainer: Trainer) -> Worker:
        real, models = self.real, self.models
        synchronise = _synchronise(real.device)
        if lane.kind == "trainer":
            weights = _no_weights if self.shares_weights else partial(_weights, models.actor)
            return TrainerLane(lane.name, trainer, self.clock, synchronise, weights)
        if real.workers == "processes":
            beside = self.prompts if isinstance(models.reward, RuleReward) else None
            arguments = (self.scenario, self.seed, models.stop_ids, beside)
            threads = real.scorer_threads
            return ProcessScorer(lane.name, build_scorer, arguments, threads, self.clock)
        scorer = _scorer(real, models.reward, models.reference, self.rule(), self.prompts)
        return ScorerLane(lane.name, scorer, self.clock, synchronise)


def build_scorer(
    scenario: Scenario, seed: int, stop_ids: Sequence[int], prompts: Prompts | None = None
) -> Scorer:
    """For a process of its own, which loads the frozen models itself."""
    real = real_of(scenario)
    reward, reference = load_scorer(real, scenario.folder, seed)
    return _scorer(real, reward, reference, forced_lengths(scenario, seed, stop_ids), prompts)


def forced_lengths(scenario: Scenario, seed: int, stop_ids: Sequence[int]) -> ForcedLengths | None:
    """Responses of the workload's lengths, where the scenario asks for them."""
    if real_of(scenario).lengths == "model":
        return None
    return ForcedLengths(lengths_alone(scenario, seed).response_tokens, stop_ids)


def _scorer(
    real: Real,
    reward: nn.Module | RuleReward,
    reference: nn.Module | None,
    rule: ForcedLengths | None,
    prompts: Prompts | None,
) -> Scorer:
    if isinstance(reward, RuleReward) and prompts is not None:
        reward = reward.beside(prompts.beside)
    return Scorer(
        reward,
        reference if "reference" in real.on_scorer else None,
        coalesce=real.coalesce,
        temperature=real.temperature,
        rule=rule,
    )


def _synchronise(device: str) -> Callable[[], None]:
    """Waits for the lane's own stream: an asynchronous kernel has no end before that."""
    return _nothing if device == "cpu" else lambda: torch.cuda.current_stream().synchronize()


def _nothing() -> None:
    pass


def _no_weights() -> None:
    return None


def _weights(actor: nn.Module) -> Weights:
    return dict(actor.named_parameters())


@torch.no_grad()
def _load(model: nn.Module, weights: Weights) -> None:
    for name, parameter in model.named_parameters():
        parameter.copy_(weights[name])

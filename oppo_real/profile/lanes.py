"""A scenario's lanes, built as for training, for nothing but to be timed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from oppo_real.build import Build, real_of
from oppo_real.machine.actor import ActorLane
from oppo_real.machine.backend import Clock
from oppo_real.machine.memory import keep_freed
from oppo_real.machine.messages import Worker
from oppo_real.networks.loading import load_models
from oppo_real.ppo.trainer import Trainer
from oppo_real.prompts import Prompts, read_prompts
from oppo_sim.config import Lengths, Real, Scenario
from oppo_sim.costs.layout import lanes
from oppo_sim.engine import Lane, Limits
from oppo_sim.workload.loads import limits_with


@dataclass
class Subjects:
    """Lanes that nothing else uses, and the token ids that they are fed."""

    real: Real
    build: Build
    limits: Limits
    prompt: tuple[int, ...]
    places: dict[str, Lane]  # the first of each kind
    actor: ActorLane
    others: list[ActorLane]  # a second actor lane, where the scenario has more than one
    scorer: Worker
    trainer: Worker
    learner: Trainer  # what the trainer lane runs

    @property
    def updates(self) -> int:
        """That were made: the number of the next one."""
        return self.learner.updates

    @property
    def shares_weights(self) -> bool:
        return self.build.shares_weights

    def close(self) -> None:
        for worker in (self.actor, *self.others, self.scorer, self.trainer):
            worker.close()


def subjects(scenario: Scenario, seed: int) -> Subjects:
    """Models loaded, lanes built. Responses end at the cap, whatever the model would say.

    Raises ConfigError or ModelError as training would.
    """
    real = real_of(scenario)
    endless = Lengths(constant=scenario.workload.max_response_tokens)
    changes = {"lengths": endless, "prompt_effect": 0.0, "drift": None}
    workload = scenario.workload.model_copy(update=changes)
    scenario = scenario.model_copy(update={"workload": workload})
    keep_freed()
    torch.set_num_threads(real.trainer_threads)
    models = load_models(real, scenario.folder, seed)
    if real.lengths == "model":
        models = replace(models, stop_ids=())
    encode = None if models.tokenizer is None else models.tokenizer.encode
    prompts = Prompts(
        read_prompts(scenario.folder / real.prompts, encode, models.vocabulary), seed=seed
    )
    limits = limits_with(scenario, prompts.longest)
    build = Build(scenario, models, limits, seed, Clock(), prompts)
    places: dict[str, Lane] = {}
    actors = [lane for lane in lanes(scenario.cluster, None) if lane.kind == "actor"]
    for lane in lanes(scenario.cluster, None):
        places.setdefault(lane.kind, lane)
    trainer = build.trainer(1 << 20)
    return Subjects(
        real=real,
        build=build,
        limits=limits,
        prompt=max((prompts(n) for n in range(len(prompts))), key=len),
        places=places,
        actor=build.actor(places["actor"]),
        others=[build.actor(lane) for lane in actors[1:2]],
        scorer=build.frozen_or_trainer(places["scorer"], trainer),
        trainer=build.frozen_or_trainer(places["trainer"], trainer),
        learner=trainer,
    )

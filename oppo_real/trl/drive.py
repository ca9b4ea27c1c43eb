"""Any schedule for TRL's own PPO: `drive_trl` runs an unmodified `PPOTrainer` on our rollouts.

TRL computes reference log-probabilities, values, advantages and the update, all as it does anyway;
what it is spared is generating and scoring, which the engine does while and before it trains.
"""

from __future__ import annotations

import copy
import importlib.metadata
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from types import ModuleType
from typing import Any, Literal

import torch

from oppo_real.errors import ModelError
from oppo_real.machine.actor import ActorLane
from oppo_real.machine.backend import Clock, TorchBackend
from oppo_real.machine.hosts import Host, Inline, Threads
from oppo_real.machine.lanes import ScorerLane
from oppo_real.machine.messages import Weights, Worker
from oppo_real.machine.store import Store
from oppo_real.networks.decoding import ContinuousBatch
from oppo_real.networks.models import refuse_narrow, refuse_unsupported
from oppo_real.trl.hooks import HOOKED, train_on
from oppo_real.trl.rollouts import Live, LoadedPrompts, RewardBeforePad, TrlLane
from oppo_sim.engine import Lane, Limits, Listener, run
from oppo_sim.policies.catalog import named
from oppo_sim.policies.schedule import Schedule
from oppo_sim.records import StepRecord


def drive_trl(
    trainer: Any,
    schedule: str | Schedule,
    *,
    workers: Literal["threads", "inline"] = "threads",
    coalesce: bool = True,
    own_actor: bool = False,
    seed: int | None = None,
    listen: Listener | None = None,
) -> list[StepRecord]:
    """Train as `trainer.train()` does, on rollouts of a schedule; the records of its steps.

    The schedule's batch is the trainer's. `workers`: the actor and the scorer on a thread each, or
    in turns on one, the same every time. `coalesce`: see `scoring.Scorer`. `own_actor`: decode with
    a copy of the policy, which goes on during updates. `seed`: of the tokens; None: the trainer's.
    `listen` hears the run's log, on another thread.

    A response ends at the trainer's stop token, at a pad, which TRL never looks beyond, or at
    `response_length`. Raises ModelError for what cannot be driven, EngineError when a lane fails;
    TRL's own errors pass, and no thread outlives either.
    """
    module = ppo_module()
    _check(trainer, module)
    args, device = trainer.args, trainer.accelerator.device
    chosen = named(schedule) if isinstance(schedule, str) else schedule
    chosen = replace(chosen, batch=args.local_batch_size)
    pad = trainer.processing_class.pad_token_id
    store = Store(LoadedPrompts(trainer.dataloader, pad, chosen.group))
    lanes, limits = _lanes(own_actor), Limits(0, args.response_length)  # prompts: KV has no bound
    records: list[StepRecord] = []

    def synchronise() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def engine(live: Live) -> None:
        tokens_seed = args.seed if seed is None else seed
        crew = _crew(trainer, lanes, live, own_actor, coalesce, tokens_seed, synchronise)
        host: Host = Inline(crew)
        if workers == "threads":
            host = Threads(crew, within=_streams(device))
        with TorchBackend(lanes, host, store) as backend:
            records.extend(run(backend, chosen, limits, args.num_total_batches, listen))

    with Live(engine, trainer.policy_model, synchronise) as live:
        train_on(trainer, module, live)
        live.finish()
    return records


def ppo_module() -> ModuleType:
    """TRL's module with the PPOTrainer. Raises ModelError where it is not what is hooked here."""
    try:
        from trl.experimental.ppo import ppo_trainer
    except ImportError as error:
        raise ModelError(
            f"{_version()} has no trl.experimental.ppo ({error}): PPO left TRL with 1.13; "
            "install trl 1.12"
        ) from error
    module: ModuleType = ppo_trainer
    train = getattr(getattr(module, "PPOTrainer", None), "train", None)
    used = getattr(getattr(train, "__code__", None), "co_names", ())
    lacking = [name for name in HOOKED if not (hasattr(module, name) and name in used)]
    if lacking:
        raise ModelError(
            f"{_version()}: PPOTrainer.train does not call {', '.join(lacking)} of its module, "
            "which drive_trl stands in for; install trl 1.12"
        )
    return module


def _version() -> str:
    try:
        return f"trl {importlib.metadata.version('trl')}"
    except importlib.metadata.PackageNotFoundError:
        return "trl is not installed: this environment"


def _check(trainer: Any, module: ModuleType) -> None:
    """Refuse a trainer whose rollouts would not be TRL's."""
    if not isinstance(trainer, module.PPOTrainer):
        raise ModelError(f"trainer is of {type(trainer).__name__}: must be TRL's PPOTrainer")
    if trainer.args.world_size > 1:
        raise ModelError(f"trainer runs in {trainer.args.world_size} processes: must be one")
    for kind in ("deepspeed_enabled", "fsdp_enabled", "peft_model"):
        if getattr(trainer, f"is_{kind}", False):
            raise ModelError(
                f"trainer.is_{kind}: its weights are not in the policy model alone; drive_trl "
                "takes a plain model on one device"
            )
    for name in ("policy_model", "reward_model"):  # what is cached here; how long is not known
        config = getattr(getattr(trainer, name), "config", None)
        if config is not None:
            refuse_unsupported(config, name)
            refuse_narrow(config, name, getattr(config, "max_position_embeddings", None) or 0)
    if trainer.processing_class.pad_token_id is None:
        raise ModelError("processing_class.pad_token_id is None: TRL needs a pad token; set one")
    if not hasattr(trainer.dataloader, "base_dataloader"):
        raise ModelError(
            f"trainer.dataloader is a {type(trainer.dataloader).__name__}: must be the one that "
            "PPOTrainer has from accelerate"
        )
    if not len(trainer.dataloader):
        raise ModelError(
            f"train_dataset has {len(trainer.train_dataset)} prompts: must have a batch of "
            f"{trainer.args.local_batch_size} at least"
        )
    if trainer.value_model is trainer.reward_model:
        raise ModelError(
            "value_model and reward_model are one object: training would change the rewards; "
            "give the trainer a copy"
        )
    if not hasattr(trainer.reward_model, "base_model"):
        raise ModelError(
            f"reward_model is a {type(trainer.reward_model).__name__}: must be a transformers "
            "model for sequence classification"
        )


def _lanes(own_actor: bool) -> list[Lane]:
    """Devices say who waits for whom: an actor that shares the policy stands while it is trained.

    How many rollouts decode at a time is for the schedule's `pool` to say.
    """
    decodes = "actor" if own_actor else "policy"
    return [
        Lane("actor", "actor", (decodes,), slots=sys.maxsize),
        Lane("scorer", "scorer", ("scorer",)),
        Lane("trainer", "trainer", ("policy",)),
    ]


def _crew(
    trainer: Any,
    lanes: list[Lane],
    live: Live,
    own_actor: bool,
    coalesce: bool,
    seed: int,
    synchronise: Callable[[], None],
) -> dict[str, Worker]:
    """A worker for each lane."""
    args, pad = trainer.args, trainer.processing_class.pad_token_id
    actor, scorer, learner = lanes
    policy, clock = trainer.policy_model, Clock()
    decoding = copy.deepcopy(policy).eval() if own_actor else policy

    def weights() -> Weights | None:
        return policy.state_dict() if own_actor else None

    def load(weights: Weights) -> None:
        decoding.load_state_dict(weights)
        synchronise()  # the next update may begin

    stop = trainer.stop_token_id
    batch = ContinuousBatch(
        decoding,
        stop_ids={pad} if stop is None else {stop, pad},
        cap_tokens=args.response_length,
        seed=seed,
        temperature=args.temperature,
    )
    reward = RewardBeforePad(trainer.reward_model, pad, coalesce=coalesce)
    return {
        actor.name: ActorLane(actor, batch, clock, load),
        scorer.name: ScorerLane(scorer.name, reward, clock, synchronise),
        learner.name: TrlLane(learner.name, live, clock, synchronise, weights),
    }


def _streams(device: torch.device) -> Callable[[str], AbstractContextManager[object]]:
    """On a GPU, a stream for each lane, so that their work overlaps."""
    if device.type != "cuda":
        return lambda lane: nullcontext()
    return lambda lane: torch.cuda.stream(torch.cuda.Stream(device))

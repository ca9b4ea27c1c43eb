"""A scenario's `[real]` table as a machine: models, lanes, workers and the rollouts' data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass

import torch

from oppo_real.build import Build, real_of
from oppo_real.checkpoint import Checkpoint, put_weights, weights_of
from oppo_real.errors import ModelError
from oppo_real.machine.backend import Clock, TorchBackend
from oppo_real.machine.hosts import Host, Inline, Threads
from oppo_real.machine.memory import keep_freed
from oppo_real.machine.messages import Read, Worker
from oppo_real.machine.sharing import Sharing, Team
from oppo_real.machine.store import Store
from oppo_real.networks.loading import Models, load_models
from oppo_real.networks.models import refuse_narrow
from oppo_real.networks.rules import RuleReward
from oppo_real.networks.scoring import ScoreChunk
from oppo_real.ppo.trainer import Trainer
from oppo_real.prompts import Prompts, read_prompts
from oppo_sim.config import ConfigError, Real, Scenario
from oppo_sim.costs.layout import lanes
from oppo_sim.engine import Lane, Limits, Listener, State, restore, snapshot
from oppo_sim.engine.contract import Chunk, Score
from oppo_sim.policies import Schedule
from oppo_sim.workload.loads import limits_with


@dataclass
class Machine:
    """A torch machine and what a run on it needs to be written down and to go on."""

    backend: TorchBackend
    limits: Limits
    models: Models
    trainer: Trainer
    clock: Clock
    stats: dict[int, Mapping[str, float]]  # by update, until they are read

    def checkpoint(self, run: str, state: State) -> Checkpoint:
        """The run between two steps."""
        models = self.models.trained
        caches = self.backend.kept()
        return Checkpoint(
            run=run,
            step=state.step,
            weights=weights_of(**models),
            optimiser=self.trainer.state_dict(),
            engine=snapshot(state, self.backend.scoring),
            rows=self.backend.store.rows,
            caches=caches,
        )

    def start(self, schedule: Schedule, saved: Checkpoint | None, listen: Listener) -> State:
        """The engine's state: at the beginning, or where a checkpoint left it."""
        if saved is None:
            return State(schedule, self.backend.lanes(), self.limits)
        state, scores = restore(schedule, self.backend.lanes(), self.limits, saved.engine)
        for score in scores:
            listen(score)
        self.backend.submit(*scores)
        return state


@contextmanager
def machine(
    scenario: Scenario,
    schedule: Schedule,
    *,
    seed: int,
    steps: int,
    saved: Checkpoint | None = None,
) -> Iterator[Machine]:
    """A machine on which nothing has run, or that goes on from a checkpoint; closed on leaving.

    Raises ConfigError, ModelError or RunError where the scenario cannot run, or not go on.
    """
    real = real_of(scenario)
    if real.objective == "grpo" and schedule.group < 2:
        raise ConfigError(
            f"{scenario.file}: real.objective = 'grpo': schedule.group = {schedule.group}: it "
            "compares the responses to a prompt; set schedule.group to 2 or more, and "
            "schedule.batch to a multiple"
        )
    keep_freed()
    torch.set_num_threads(real.trainer_threads)
    models = load_models(real, scenario.folder, seed)
    if saved is not None:
        put_weights(saved.weights, **models.trained)
    encode = None if models.tokenizer is None else models.tokenizer.encode
    file, encoder = scenario.folder / real.prompts, repr(real.tokenizer or real.actor)
    prompts = Prompts(
        read_prompts(file, encode, models.vocabulary, encoder),
        seed=seed,
        group=schedule.group,
    )
    limits = _limits(scenario, models, prompts)
    if isinstance(models.reward, RuleReward):
        prompts.check_columns(models.reward.columns.needed, f"real.reward = {real.reward!r}")
    clock = Clock(saved.engine["now_s"] if saved else 0.0)
    build = Build(scenario, models, limits, seed, clock, prompts)
    trainer = build.trainer(steps, schedule.group)
    store = Store(prompts)
    if saved is not None:
        trainer.load_state_dict(dict(saved.optimiser))
        store.rows.update(saved.rows)
    places = lanes(scenario.cluster, scenario.cluster.kv_tokens)
    actors = {lane.name: build.actor(lane) for lane in places if lane.kind == "actor"}
    workers: dict[str, Worker] = {}
    stats: dict[int, Mapping[str, float]] = {}
    with ExitStack() as stack:
        for lane in places:
            worker = actors.get(lane.name) or build.frozen_or_trainer(lane, trainer)
            workers[lane.name] = worker
            stack.callback(worker.close)
        if saved is not None:
            _read_again(workers, places, schedule.group, saved)
            for name, actor in actors.items():
                actor.adopt(saved.engine["version"], store.rows, saved.caches.get(name, {}))
        stack.pop_all()  # from here on the backend closes them
        with TorchBackend(
            places, _host(real, workers, places), store, stats.__setitem__
        ) as backend:
            yield Machine(backend, limits, models, trainer, build.clock, stats)


def _read_again(
    workers: Mapping[str, Worker], places: Sequence[Lane], group: int, saved: Checkpoint
) -> None:
    """Scorers read what they had read of rows without a reward, in the same chunks."""
    scorers = [lane.name for lane in places if lane.kind == "scorer"]
    for rollout, row in saved.rows.items():
        lane = scorers[rollout // group % len(scorers)]
        for start, end in row.scored if row.reward is None else ():
            part = ScoreChunk(rollout, row.prompt, tuple(row.ids[start:end]), start, last=False)
            command = Score(lane, (Chunk(rollout, start, end, last=False),))
            workers[lane].give(Read(command, (part,)))
            workers[lane].step()


def _host(real: Real, workers: Mapping[str, Worker], places: Sequence[Lane]) -> Host:
    if real.workers == "inline":
        return Inline(workers)
    kinds = {lane.name: lane.kind for lane in places}
    threads = {
        "actor": real.actor_threads,
        "scorer": real.scorer_threads,
        "trainer": real.trainer_threads,
    }

    if real.share_threads:
        own = {lane: threads[kinds[lane]] for lane in workers if kinds[lane] != "trainer"}
        team = Team(own)
        workers = {
            lane: Sharing(lane, worker, team) if lane in own else worker
            for lane, worker in workers.items()
        }

    @contextmanager
    def within(lane: str) -> Iterator[None]:
        """The lane's own number of torch threads, and its own stream on a GPU."""
        torch.get_num_threads()  # a thread's first use of torch takes the number that was set last
        torch.set_num_threads(threads[kinds[lane]])
        stream = torch.cuda.Stream() if real.device == "cuda" else None
        with torch.cuda.stream(stream) if stream else nullcontext():
            yield

    return Threads(workers, within=within)


def _limits(scenario: Scenario, models: Models, prompts: Prompts) -> Limits:
    """ConfigError or ModelError where a rollout may not fit the model's context."""
    limits = limits_with(scenario, prompts.longest)
    longest, cap, context = prompts.longest, limits.response_tokens, models.context_tokens
    if context is not None and longest + cap > context:
        raise ModelError(
            f"{scenario.file}: workload.max_response_tokens = {cap}: with the longest prompt of "
            f"{longest} tokens it exceeds the actor's context of {context}: lower it to "
            f"{max(context - longest, 0)}, or shorten the prompts"
        )
    for kind in ("actor", "critic", "reference", "reward"):
        config = getattr(getattr(models, kind), "config", None)
        if config is not None:
            refuse_narrow(config, f"real.{kind}", longest + cap)
    return limits

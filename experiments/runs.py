"""Many variants of shipped scenarios and schedules at once, on common random numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, TypeVar

from oppo_sim.analysis import pool
from oppo_sim.analysis.intervals import Mean, of_independent, of_ratios
from oppo_sim.analysis.metrics import Metrics
from oppo_sim.analysis.parts import Part, cores, measure
from oppo_sim.config import Scenario, load_scenario
from oppo_sim.policies import Schedule
from oppo_sim.records import StepRecord
from oppo_sim.simulate import simulate

Seen = TypeVar("Seen")
Task = TypeVar("Task")
Watch = Callable[[Scenario, int, Iterator[StepRecord]], Seen]  # scenario, seed, its steps


@dataclass(frozen=True)
class Variant:
    """A shipped scenario with some keys set, and a schedule of it with some axes changed."""

    scenario: str
    schedule: str
    axes: Mapping[str, Any] = field(default_factory=dict)
    keys: Mapping[str, object] = field(default_factory=dict)  # dotted, as for --set

    def load(self) -> tuple[Scenario, Schedule]:
        scenario = _scenario(self.scenario, tuple(self.keys.items()))
        return scenario, replace(scenario.schedule(self.schedule), **self.axes)


@dataclass(frozen=True)
class Runs:
    """One run per seed of a variant."""

    metrics: tuple[Metrics, ...]

    @property
    def step_s(self) -> Mean:
        return of_independent([run.mean_step_s for run in self.metrics])

    def gain(self, base: Runs) -> Mean:
        """How many times as fast as another, by step time, paired by seed."""
        pairs = zip(base.metrics, self.metrics, strict=True)
        return of_ratios([theirs.mean_step_s / own.mean_step_s for theirs, own in pairs])

    def stage_s(self, stage: str) -> float:
        return sum(run.stages_s[stage] for run in self.metrics) / len(self.metrics)


def simulated(variants: Sequence[Variant], seeds: int, steps: int) -> list[Runs]:
    """The runs of each variant, in order; seeds 0 to `seeds`."""
    parts = []
    for variant in variants:
        scenario, schedule = variant.load()
        parts += [
            Part(scenario=scenario, schedule=schedule, seed=seed, steps=steps)
            for seed in range(seeds)
        ]
    found = measure(parts)
    return [Runs(tuple(found[i : i + seeds])) for i in range(0, len(found), seeds)]


def watched(
    watch: Watch[Seen], variants: Sequence[Variant], seeds: int, steps: int
) -> list[list[Seen]]:
    """What `watch` makes of the steps of each variant and seed; it must be importable by name."""
    tasks = [(variant, seed) for variant in variants for seed in range(seeds)]
    found = on_all_cores(partial(_watched, watch, steps), tasks)
    return [found[i : i + seeds] for i in range(0, len(found), seeds)]


def on_all_cores(work: Callable[[Task], Seen], tasks: Sequence[Task]) -> list[Seen]:
    """What `work`, importable by name, makes of each task, in their order."""
    found = dict(pool.each(work, tasks, pool.processes(min(cores(), len(tasks)))))
    return [found[place] for place in range(len(tasks))]


def _watched(watch: Watch[Seen], steps: int, task: tuple[Variant, int]) -> Seen:
    variant, seed = task
    scenario, schedule = variant.load()
    return watch(scenario, seed, simulate(scenario, schedule, seed=seed, steps=steps))


@cache
def _scenario(name: str, keys: tuple[tuple[str, object], ...]) -> Scenario:
    return load_scenario(name, dict(keys))

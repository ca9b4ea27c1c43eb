"""Schedules against each other on common random numbers: who is faster, by how much, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oppo_sim.analysis.intervals import Mean, of_independent, of_ratios
from oppo_sim.analysis.metrics import Metrics, average
from oppo_sim.analysis.parts import Measured, Part, Progress, run_parts
from oppo_sim.analysis.spent import Spent
from oppo_sim.analysis.time_to_reward import RewardRun
from oppo_sim.analysis.why import Side, Why, same_run, shortened, times, why
from oppo_sim.config import ConfigError, Scenario
from oppo_sim.costs.layout import Layout
from oppo_sim.policies import Schedule
from oppo_sim.runs import assumed, called


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One schedule against the first. Per seed: metrics and speed-up, the ratio of step times."""

    schedule: Schedule
    metrics: tuple[Metrics, ...]
    speedups: tuple[float, ...]
    rewards: tuple[RewardRun, ...] = ()
    spent: tuple[Spent | None, ...] = ()  # what devices did

    @property
    def name(self) -> str:
        return self.schedule.name

    @property
    def step_s(self) -> Mean:
        """Mean step time, with an interval over the seeds."""
        return of_independent([metrics.mean_step_s for metrics in self.metrics])

    @property
    def speedup(self) -> Mean:
        """Geometric mean of the seeds' ratios: paired, so what their lengths share drops out."""
        return of_ratios(self.speedups)

    @property
    def side(self) -> Side:
        return Side(self.schedule, average(self.metrics))

    def over(self, other: Standing) -> Mean:
        """How many times as fast as the other, paired in the same way."""
        mine, others = self.speedups, other.speedups
        return of_ratios([m / o for m, o in zip(mine, others, strict=True)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Schedules on one scenario; the first is what the others are compared with."""

    scenario: str
    seeds: tuple[int, ...]
    steps: int
    standings: tuple[Standing, ...]
    trains_on_actors: bool  # training has the actors' devices
    sets: Mapping[str, str] = field(default_factory=dict)  # what was changed in the scenario
    assumptions: tuple[str, ...] = ()

    def __getitem__(self, schedule: str) -> Standing:
        return next(s for s in self.standings if s.name == schedule)

    @property
    def called(self) -> str:
        """The scenario's name with what was changed."""
        return called(self.scenario, self.sets)

    def verdict(self) -> str:
        """Which is the fastest, by how much, and what that does not prove."""
        first = self.standings[0]
        best = max(self.standings, key=lambda standing: standing.speedup.mean)
        if best is not first and best.speedup.includes(1):
            return (
                f"Not decided: on average {best.name} is the fastest, "
                f"{times(first.name, best.speedup)}, but the interval includes 1; "
                "use more seeds or steps."
            )
        said = [f"Fastest: {best.name}"]
        if best is not first:
            said[0] += f", {times(first.name, best.speedup)}"
        others = [s for s in self.standings if s is not best]
        same = [s.name for s in others if same_run(best.side, s.side)]
        level = [s.name for s in others if s.name not in same and best.over(s).includes(1)]
        if same:
            said.append(f"The same run: {', '.join(same)}")
        if level:
            said.append(f"Not decided against {', '.join(level)}")
        if best is not first and shortened(best.side):
            said.append("Part of its gain is skipped work")
        return ". ".join(said) + "."

    def why(self) -> list[Why]:
        """One for each schedule but the first."""
        sides = [standing.side for standing in self.standings]
        found = []
        for place, standing in enumerate(self.standings[1:], start=1):
            twin = next((s for s in sides[:place] if same_run(s, sides[place])), sides[0])
            found.append(
                why(
                    twin,
                    sides[place],
                    speedup=standing.speedup,
                    trains_on_actors=self.trains_on_actors,
                )
            )
        return found

    def as_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "role": "simulated",
            "scenario": self.scenario,
            "sets": dict(self.sets),
            "assumptions": [*self.assumptions, *assumed(self.sets)],
            "seeds": list(self.seeds),
            "steps": self.steps,
            "baseline": self.standings[0].name,
            "speedup": "geometric mean over seeds of the ratio of mean step times, with a paired "
            "95 % t-interval on its logarithm",
            "schedules": [
                {
                    "schedule": standing.name,
                    "step_s": standing.step_s._asdict(),
                    "speedup": standing.speedup._asdict(),
                    "speedups": list(standing.speedups),
                    "metrics": [metrics.as_dict() for metrics in standing.metrics],
                }
                for standing in self.standings
            ],
            "verdict": self.verdict(),
            "why": [reason._asdict() for reason in self.why()],
        }


def compare(
    scenario: Scenario,
    schedules: Sequence[Schedule],
    seeds: Sequence[int],
    steps: int | None = None,
    jobs: int | None = None,
    *,
    keep: Path | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Run every schedule with every seed and set them against the first.

    A seed gives rollout i the same prompt, length and reward noise whatever the schedule. `steps`
    None: the scenario's; the rest as in `parts.run_parts`. ValueError for too little to compare.
    """
    return compare_all([(scenario, schedules)], seeds, steps, jobs, keep=keep, progress=progress)[0]


def compare_all(
    pairs: Sequence[tuple[Scenario, Sequence[Schedule]]],
    seeds: Sequence[int],
    steps: int | None = None,
    jobs: int | None = None,
    *,
    keep: Path | None = None,
    progress: Progress | None = None,
) -> list[Comparison]:
    """A comparison for each scenario and its schedules, all parts in one go."""
    check_comparable(pairs, seeds)
    parts = [
        Part(scenario=scenario, schedule=schedule, seed=seed, steps=_steps(scenario, steps))
        for scenario, schedules in pairs
        for seed in seeds
        for schedule in schedules
    ]
    found = iter(run_parts(parts, jobs=jobs, keep=keep, progress=progress))
    return [
        _comparison(scenario, schedules, seeds, steps, [next(found) for _ in range(count)])
        for scenario, schedules in pairs
        if (count := len(schedules) * len(seeds))
    ]


def _comparison(
    scenario: Scenario,
    schedules: Sequence[Schedule],
    seeds: Sequence[int],
    steps: int | None,
    found: Sequence[Measured],
) -> Comparison:
    """`found` in the order of the parts: schedules within seeds."""
    metrics = [measured.metrics for measured in found]
    first = metrics[:: len(schedules)]
    standings = []
    for place, schedule in enumerate(schedules):
        own = metrics[place :: len(schedules)]
        ratios = [b.mean_step_s / o.mean_step_s for b, o in zip(first, own, strict=True)]
        standings.append(
            Standing(
                schedule=schedule,
                metrics=tuple(own),
                speedups=tuple(ratios),
                rewards=tuple([measured.rewards for measured in found[place :: len(schedules)]]),
                spent=tuple([measured.spent for measured in found[place :: len(schedules)]]),
            )
        )
    return Comparison(
        scenario=scenario.name,
        seeds=tuple(seeds),
        steps=_steps(scenario, steps),
        standings=tuple(standings),
        trains_on_actors=Layout(scenario.cluster).trains_on_actors,
        sets=dict(scenario.changed),
        assumptions=scenario.assumptions,
    )


def _steps(scenario: Scenario, steps: int | None) -> int:
    return scenario.steps if steps is None else steps


def check_comparable(
    pairs: Sequence[tuple[Scenario, Sequence[Schedule]]], seeds: Sequence[int]
) -> None:
    """ConfigError for too little to compare, or two of one name."""
    if not seeds:
        raise ConfigError("seeds = 0: a comparison needs at least 1")
    for _, schedules in pairs:
        if len(schedules) < 2:
            raise ConfigError(
                f"a comparison needs at least two schedules, not {len(schedules)}: name another, "
                "as in trl,oppo"
            )
        name, count = Counter(schedule.name for schedule in schedules).most_common(1)[0]
        if count > 1:
            raise ConfigError(f"two schedules are called {name!r}: give each its own name")

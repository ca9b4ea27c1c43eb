"""How far a simulation is from the runs that it is of: by command, stage, step, run and ranking.

Pure: runs in, numbers out. An error is simulated / real - 1; all is held against how much the real
machine differs from itself when it does the same again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from statistics import fmean, median
from typing import Any, NamedTuple

from oppo_sim.analysis.fidelity_grades import grade
from oppo_sim.analysis.metrics import STAGES, exposed
from oppo_sim.records import Span, StepRecord
from oppo_sim.runs import Run

KINDS = ("decode", "score", "train", "sync")


class Pair(NamedTuple):
    """A real run and the simulation of it, with the lengths that it had."""

    schedule: str
    repeat: int
    real: Run
    simulated: Run


class StepPair(NamedTuple):
    schedule: str
    repeat: int
    step: int
    real_s: float
    sim_s: float

    @property
    def error(self) -> float:
        return self.sim_s / self.real_s - 1


class Both(NamedTuple):
    """Mean seconds per step, real and simulated."""

    real_s: float
    sim_s: float

    @property
    def error(self) -> float | None:
        """None where the real machine took no time."""
        return self.sim_s / self.real_s - 1 if self.real_s else None


class SpeedUp(NamedTuple):
    """Over the first schedule; real: the median of the paired rounds, with the least and most."""

    real: float
    low: float
    high: float
    simulated: float

    @property
    def error(self) -> float:
        return self.simulated / self.real - 1


@dataclass(frozen=True, kw_only=True)
class Fidelity:
    """`drawn`: by schedule, mean seconds of a step of simulations with lengths of a fitted law.

    The first `warmup` steps of a run count nowhere: the real machine still makes room then.
    """

    pairs: Sequence[Pair]
    warmup: int = 1
    drawn: Mapping[str, Sequence[float]] | None = None
    law: str | None = None  # of the drawn lengths

    @cached_property
    def schedules(self) -> list[str]:
        return [*dict.fromkeys(pair.schedule for pair in self.pairs)]

    @cached_property
    def steps(self) -> list[StepPair]:
        """One row for each step of each run that counts."""
        return [
            StepPair(pair.schedule, pair.repeat, real.step, real.seconds, simulated.seconds)
            for pair in self.pairs
            for real, simulated in zip(*self._counted(pair), strict=False)
        ]

    def _counted(self, pair: Pair) -> tuple[Sequence[StepRecord], Sequence[StepRecord]]:
        return pair.real.steps[self.warmup :], pair.simulated.steps[self.warmup :]

    def of(self, schedule: str) -> list[StepPair]:
        return [step for step in self.steps if step.schedule == schedule]

    # errors of steps and runs

    @property
    def median_abs_error(self) -> float:
        """Of all steps of all runs."""
        return median([abs(step.error) for step in self.steps])

    @property
    def worst_abs_error(self) -> float:
        """The largest over schedules of the median over its steps."""
        return max(
            median([abs(step.error) for step in self.of(schedule)]) for schedule in self.schedules
        )

    def run(self, schedule: str) -> Both:
        """A schedule's mean step."""
        steps = self.of(schedule)
        return Both(fmean([step.real_s for step in steps]), fmean([step.sim_s for step in steps]))

    def kinds(self, schedule: str) -> dict[str, Both]:
        """Seconds per step of the spans of each kind."""
        pairs = [pair for pair in self.pairs if pair.schedule == schedule]
        return {
            kind: Both(
                fmean([self._spent(pair.real, kind) for pair in pairs]),
                fmean([self._spent(pair.simulated, kind) for pair in pairs]),
            )
            for kind in KINDS
        }

    def _spent(self, run: Run, kind: str) -> float:
        counted = max(1, len(run.steps) - self.warmup)
        return sum(_seconds(run.spans, kind, range(self.warmup, len(run.steps)))) / counted

    def stages(self, schedule: str) -> dict[str, Both]:
        """Exposed seconds per step of each stage."""
        sides: list[list[float]] = []
        for side in (0, 1):
            steps = [
                exposed(step)
                for pair in self.pairs
                if pair.schedule == schedule
                for step in self._counted(pair)[side]
            ]
            sides.append([fmean(stage) for stage in zip(*steps, strict=True)])
        return {
            stage: Both(*both) for stage, both in zip(STAGES, zip(*sides, strict=True), strict=True)
        }

    # what repeats tell

    @property
    def repeat_spread(self) -> float | None:
        """Median over steps of (most - least) / median of its repeats; None for a single run."""
        groups: dict[tuple[str, int], list[float]] = {}
        for step in self.steps:
            groups.setdefault((step.schedule, step.step), []).append(step.real_s)
        spreads = [_spread(times) for times in groups.values() if len(times) > 1]
        return median(spreads) if spreads else None

    def means(self, schedule: str, simulated: bool = False) -> dict[int, float]:
        """Seconds per counted step, by repeat: runs may differ in how many steps they have."""
        found: dict[int, list[float]] = {}
        for step in self.of(schedule):
            found.setdefault(step.repeat, []).append(step.sim_s if simulated else step.real_s)
        return {repeat: fmean(seconds) for repeat, seconds in found.items()}

    # speed-ups and ranking

    def speedup(self, schedule: str) -> SpeedUp:
        """Ratios of the same round, of runs with the same lengths by rollout; of the medians, where
        they have no round in common."""
        base = self.schedules[0]
        real, simulated = (
            [a / own[repeat] for repeat, a in self.means(base, side).items() if repeat in own]
            or [self._mid(base, side) / self._mid(schedule, side)]
            for side in (False, True)
            if (own := self.means(schedule, side))
        )
        return SpeedUp(median(real), min(real), max(real), median(simulated))

    @property
    def speedup_error(self) -> float | None:
        """The largest over schedules, without a sign; None for a single schedule."""
        others = self.schedules[1:]
        return max((abs(self.speedup(name).error) for name in others), default=None)

    @property
    def decided(self) -> list[tuple[str, str]]:
        """Pairs of schedules whose medians differ by more than the spread of either's repeats."""
        return [
            (one, other)
            for one, other in combinations(self.schedules, 2)
            if abs(self._mid(one) - self._mid(other)) > max(self._range(one), self._range(other))
        ]

    @property
    def tau(self) -> float | None:
        """Kendall's, over the decided pairs; None where there is none."""
        agreeing = [
            (self._mid(one) < self._mid(other)) == (self._mid(one, True) < self._mid(other, True))
            for one, other in self.decided
        ]
        return 2 * fmean(agreeing) - 1 if agreeing else None

    def _mid(self, schedule: str, simulated: bool = False) -> float:
        return median(self.means(schedule, simulated).values())

    def _range(self, schedule: str) -> float:
        means = self.means(schedule).values()
        return max(means) - min(means)

    # all of it

    def as_dict(self) -> dict[str, Any]:
        """As a JSON object; shares are fractions (0.08 is 8 %)."""
        return {
            "median_abs_error": self.median_abs_error,
            "worst_abs_error": self.worst_abs_error,
            "speedup_error": self.speedup_error,
            "repeat_spread": self.repeat_spread,
            "tau": self.tau,
            "pairs": len(self.decided),
            "grade": self.grade,
            "steps": len(self.steps),
            "warmup": self.warmup,
            "law": self.law,
            "schedules": [self._schedule(name) for name in self.schedules],
        }

    @property
    def grade(self) -> str:
        return grade(
            median_abs_error=self.median_abs_error,
            worst_abs_error=self.worst_abs_error,
            speedup_error=self.speedup_error,
            repeat_spread=self.repeat_spread,
            tau=self.tau,
        )

    def _schedule(self, name: str) -> dict[str, Any]:
        run, speedup = self.run(name), self.speedup(name)
        errors = [step.error for step in self.of(name)]
        means = [*self.means(name).values()]
        drawn = (self.drawn or {}).get(name)
        return {
            "schedule": name,
            **_both(run),
            "median_abs_error": median([abs(error) for error in errors]),
            "median_error": median(errors),
            "run_spread": _spread(means) if len(means) > 1 else None,
            "speedup": {**speedup._asdict(), "error": speedup.error},
            "commands": {kind: _both(both) for kind, both in self.kinds(name).items()},
            "stages": {stage: _both(both) for stage, both in self.stages(name).items()},
            "drawn": None
            if not drawn
            else {**_drawn(drawn), "error": fmean(drawn) / run.real_s - 1},
        }


def _both(both: Both) -> dict[str, float | None]:
    return {"real_s": both.real_s, "sim_s": both.sim_s, "error": both.error}


def _drawn(seconds: Sequence[float]) -> dict[str, float]:
    return {"sim_s": fmean(seconds), "low_s": min(seconds), "high_s": max(seconds)}


def _spread(times: Sequence[float]) -> float:
    return (max(times) - min(times)) / median(times)


def _seconds(spans: Sequence[Span], kind: str, steps: range) -> Iterator[float]:
    for span in spans:
        if span.kind == kind and span.step in steps:
            yield span.end_s - span.start_s

"""How the mean reward rises with training: a law that levels off, or points, and the noise."""

import csv
import math
from bisect import bisect_right
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from itertools import pairwise
from typing import Protocol

from oppo_sim.workload.checks import finite


class Rewards(Protocol):
    """The mean reward by training done, and the standard deviation of one rollout's noise.

    `updates` counts fresh updates: one that learned from stale rollouts may count as less.
    """

    @property
    def noise(self) -> float: ...
    def mean(self, updates: float) -> float: ...


@dataclass(frozen=True)
class RewardCurve:
    """The mean reward at a weight version, and the spread of single rollouts around it.

    mean(v) = start + (plateau - start) * (1 - exp(-v / tau_steps)): after tau_steps updates 63 % of
    the way is done. `noise` is the standard deviation of one rollout's Gaussian noise. The curve is
    an assumption: of the paper's curves a few points are known, and no law.
    """

    start: float
    plateau: float
    tau_steps: float
    noise: float

    def __post_init__(self) -> None:
        finite("start", self.start)
        finite("plateau", self.plateau)
        finite("tau_steps", self.tau_steps, above=0)
        finite("noise", self.noise, least=0)

    def mean(self, updates: float) -> float:
        """The mean reward of rollouts decoded by weights after so many updates."""
        return self.plateau - (self.plateau - self.start) * math.exp(-updates / self.tau_steps)


@dataclass(frozen=True)
class RewardPoints:
    """(step, mean reward) in order: straight in between, level before the first and after the last.

    Straight lines are an assumption too; between points far apart a curve that levels off lies
    above them.
    """

    points: tuple[tuple[float, float], ...]
    noise: float

    def __post_init__(self) -> None:
        finite("noise", self.noise, least=0)
        if not self.points:
            raise ValueError("points must hold at least one [step, reward]")
        for place, (step, reward) in enumerate(self.points):
            finite(f"points[{place}][0], a step,", step, least=0)
            finite(f"points[{place}][1], a reward,", reward)
        for (step, _), (later, _) in pairwise(self.points):
            if later <= step:
                raise ValueError(f"points: step {later:g} must come before {step:g}, or only once")

    def mean(self, updates: float) -> float:
        """The mean reward of rollouts decoded by weights after so many updates."""
        place = bisect_right(self.points, (updates, math.inf))
        if place in (0, len(self.points)):
            return self.points[max(0, place - 1)][1]
        (step, reward), (next_step, next_reward) = self.points[place - 1 : place + 1]
        return reward + (next_reward - reward) * (updates - step) / (next_step - step)


@dataclass(frozen=True)
class CurvePoint:
    """One row of reward_curves.csv: a published or assumed point, and which of the two it is."""

    curve: str
    step: float
    reward: float
    source: str


def reward_curves() -> tuple[CurvePoint, ...]:
    """The shipped points of the paper's reward curves, curve by curve."""
    with (files("oppo_sim") / "data" / "reward_curves.csv").open(encoding="utf-8") as lines:
        return tuple(
            [
                CurvePoint(row["curve"], float(row["step"]), float(row["reward"]), row["source"])
                for row in csv.DictReader(lines)
            ]
        )


def reward_curve(name: str, noise: float) -> RewardPoints:
    """The shipped curve of that name; ValueError with the nearest name if there is none."""
    points = reward_curves()
    known = list(dict.fromkeys(point.curve for point in points))
    if name not in known:
        close = get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"no reward curve is called {name!r}; {hint}known: {', '.join(known)}")
    return RewardPoints(tuple([(p.step, p.reward) for p in points if p.curve == name]), noise)


def update_worth(stale_penalty: float, staleness: float) -> float:
    """What an update is worth against a fresh one: 1 / (1 + stale_penalty * mean staleness).

    An assumption. Public notes on the paper say that staleness slows convergence, which is the sign
    of it; neither the size nor the form is known. That it may end in a worse model is left out.
    """
    return 1.0 / (1.0 + stale_penalty * staleness)

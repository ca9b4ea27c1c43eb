"""Rewards that rise with training and level off, with noise, for the controllers to read."""

import math
from dataclasses import dataclass

from oppo_sim.workload.checks import finite


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

    def mean(self, version: int) -> float:
        """The mean reward of rollouts decoded by weights after `version` updates."""
        return self.plateau - (self.plateau - self.start) * math.exp(-version / self.tau_steps)

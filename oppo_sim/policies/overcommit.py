"""Overcommit policies: how many rollouts beyond the batch are in flight (the paper's delta)."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Literal, Protocol

from oppo_sim.policies.checks import at_least, finite, one_of
from oppo_sim.records import Observation


class OvercommitPolicy(Protocol):
    @property
    def window(self) -> int:
        """How many of the latest steps the policy reads."""

    @property
    def most(self) -> int:
        """The largest overcommitment it may ask for."""

    def overcommit(self, seen: Observation) -> int:
        """Rollouts in flight beyond the batch, for the step that begins."""


@dataclass(frozen=True, slots=True)
class FixedOvercommit:
    rollouts: int
    window: int = 0

    def __post_init__(self) -> None:
        at_least("overcommit", self.rollouts, 0)

    @property
    def most(self) -> int:
        return self.rollouts

    def overcommit(self, seen: Observation) -> int:
        return self.rollouts


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardSlope:
    """The paper's controller: up while the mean reward rises over the last `over` steps, else down.

    slope = (R_t - R_{t-over}) / over: the mean of the `over` latest differences telescopes to it.
    step_rule "constant": by `up` and `down`. "proportional": by max(1, D // 4), as Algorithm 1 is
    noted to have it.
    """

    start: int = 4
    least: int = 0
    most: int = 16
    over: int = 5
    step_rule: Literal["constant", "proportional"] = "constant"
    up: int = 1
    down: int = 1

    def __post_init__(self) -> None:
        _check_controller(self)
        one_of("overcommit.step_rule", self.step_rule, ("constant", "proportional"))

    @property
    def window(self) -> int:
        return self.over + 1

    def overcommit(self, seen: Observation) -> int:
        if not seen.recent:
            return self.start
        now = seen.recent[-1].overcommit
        slope = reward_slope(seen, self.over)
        if slope is None:
            return now
        by = max(1, now // 4)
        if slope > 0:
            return min(self.most, now + (self.up if self.step_rule == "constant" else by))
        return max(self.least, now - (self.down if self.step_rule == "constant" else by))


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglerShare:
    """Follows the tail: `gain` times the stragglers of a batch while the reward rises, else down.

    A straggler is a trained response longer than `long` times the median of its batch; the share is
    taken over the last `over` steps.
    """

    start: int = 4
    least: int = 0
    most: int = 16
    over: int = 10
    gain: float = 1.0
    long: float = 2.0
    up: int = 1
    down: int = 1

    def __post_init__(self) -> None:
        _check_controller(self)
        for field, value in (("gain", self.gain), ("long", self.long)):
            finite(f"overcommit.{field}", value)
            if value <= 0:
                raise ValueError(f"overcommit.{field} = {value}: must be above 0")

    @property
    def window(self) -> int:
        return self.over + 1

    def overcommit(self, seen: Observation) -> int:
        if not seen.recent:
            return self.start
        now = seen.recent[-1].overcommit
        slope = reward_slope(seen, self.over)
        target = round(self.gain * straggler_share(seen, self.over, self.long) * seen.batch_size)
        if (slope is not None and slope <= 0) or target < now:
            return max(self.least, now - self.down)
        return min(self.most, target, now + self.up)


def reward_slope(seen: Observation, over: int) -> float | None:
    """Mean change per step of the mean reward over the last `over` steps; None too early."""
    if len(seen.recent) <= over:
        return None
    return (seen.recent[-1].reward - seen.recent[-1 - over].reward) / over


def straggler_share(seen: Observation, over: int, long: float) -> float:
    """Share of the responses of the last `over` steps longer than `long` medians of their batch."""
    stragglers = total = 0
    for step in seen.recent[-over:]:
        bar = long * median(step.tokens)
        stragglers += sum(tokens > bar for tokens in step.tokens)
        total += len(step.tokens)
    return stragglers / total


def _check_controller(policy: RewardSlope | StragglerShare) -> None:
    """What every controller of D has: bounds, a start between them, a window, two step sizes."""
    start, most = policy.start, policy.most
    at_least("overcommit.least", policy.least, 0)
    at_least("overcommit.most", most, policy.least)
    at_least("overcommit.start", start, policy.least)
    if start > most:
        raise ValueError(f"overcommit.start = {start}: must be at most overcommit.most = {most}")
    at_least("overcommit.over", policy.over, 1)
    at_least("overcommit.up", policy.up, 1)
    at_least("overcommit.down", policy.down, 1)

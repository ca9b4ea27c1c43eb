"""Minutes to a reward: when the moving mean of a run's rewards first reaches a target."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from oppo_sim.records import StepRecord

WINDOW = 20  # steps; with 112 rewards of noise 1 each, the mean is known to 0.02


class Reached(NamedTuple):
    """The step (0-based) with which the moving mean reached the target, and that step's end."""

    step: int
    minutes: float


@dataclass(frozen=True)
class RewardRun:
    """What a run's batches were worth, and when: one entry per step, from step 0."""

    rewards: list[float] = field(default_factory=list)
    end_s: list[float] = field(default_factory=list)

    def watch(self, steps: Iterable[StepRecord]) -> Iterator[StepRecord]:
        """Hand the steps on, and note each."""
        for record in steps:
            self.rewards.append(record.reward)
            self.end_s.append(record.end_s)
            yield record

    def reached(self, target: float, window: int = WINDOW) -> Reached | None:
        """When the mean reward of the last `window` steps first is at least `target`; None: never.

        The mean trails: on a curve that rises evenly it comes (window - 1) / 2 steps late, as it
        does for every schedule. No answer comes before `window` steps. ValueError for a window
        below 1.
        """
        if window < 1:
            raise ValueError(f"window must be at least 1 step, not {window}")
        last: deque[float] = deque(maxlen=window)
        for step, (reward, end_s) in enumerate(zip(self.rewards, self.end_s, strict=True)):
            last.append(reward)
            if len(last) == window and sum(last) >= target * window:
                return Reached(step, end_s / 60)
        return None

    def around(self, step: int, window: int = WINDOW) -> float | None:
        """The mean reward of `window` steps around one; None where the run does not have them."""
        first = max(0, step - window // 2)
        rewards = self.rewards[first : first + window]
        return sum(rewards) / window if len(rewards) == window else None

    def as_dict(self) -> dict[str, Any]:
        return {"rewards": self.rewards, "end_s": self.end_s}

    @classmethod
    def from_dict(cls, row: dict[str, Any]) -> Self:
        return cls(**row)


def time_to_reward(
    steps: Iterable[StepRecord], target: float, window: int = WINDOW
) -> Reached | None:
    """As `RewardRun.reached`, of a whole run."""
    run = RewardRun()
    deque(run.watch(steps), maxlen=0)
    return run.reached(target, window)

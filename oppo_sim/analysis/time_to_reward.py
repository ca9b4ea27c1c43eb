"""Minutes to a reward: when the moving mean of a run's rewards first reaches a target."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from oppo_sim.records import StepRecord

WINDOW = 20  # steps; with 112 rewards of noise 1 each, the mean is known to 0.02


class Reached(NamedTuple):
    """The step (0-based) with which the moving mean reached the target, and that step's end."""

    step: int
    minutes: float


def time_to_reward(
    steps: Iterable[StepRecord], target: float, window: int = WINDOW
) -> Reached | None:
    """When the mean reward of the last `window` steps first is at least `target`; None: never.

    The mean trails: on a curve that rises evenly it comes (window - 1) / 2 steps late, as it does
    for every schedule. No answer comes before `window` steps. ValueError for a window below 1.
    """
    if window < 1:
        raise ValueError(f"window must be at least 1 step, not {window}")
    last: deque[float] = deque(maxlen=window)
    for record in steps:
        last.append(record.reward)
        if len(last) == window and sum(last) >= target * window:
            return Reached(record.step, record.end_s / 60)
    return None

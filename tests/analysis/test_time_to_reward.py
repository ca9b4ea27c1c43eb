"""Minutes to a reward, against runs written by hand."""

from __future__ import annotations

import pytest

from oppo_sim.analysis.time_to_reward import Reached, RewardRun, time_to_reward
from oppo_sim.config import load_scenario
from oppo_sim.records import StepRecord
from oppo_sim.simulate import simulate
from tests.steps import step


def run(*rewards: float) -> list[StepRecord]:
    """Steps of 90 s with these mean rewards."""
    return [
        step(n, 90.0 * n, end_s=90.0 * (n + 1), rewards=(reward - 1, reward + 1))
        for n, reward in enumerate(rewards)
    ]


def test_the_first_step_whose_moving_mean_is_there() -> None:
    steps = run(0, 1, 2, 3, 4, 5)
    assert time_to_reward(steps, 3.0, window=1) == Reached(3, 6.0)
    assert time_to_reward(steps, 3.0, window=3) == Reached(4, 7.5)
    assert time_to_reward(steps, 2.9, window=3) == Reached(4, 7.5)
    assert time_to_reward(steps, 4.5, window=3) is None


def test_a_single_good_step_is_not_enough_and_no_answer_comes_before_the_window() -> None:
    assert time_to_reward(run(0, 9, 0, 0, 4, 4), 4.0, window=2) == Reached(2 - 1, 3.0)
    assert time_to_reward(run(0, 7, 0, 0, 4, 4), 4.0, window=2) == Reached(5, 9.0)
    assert time_to_reward(run(9, 9), 1.0, window=3) is None
    assert time_to_reward(run(9, 9, 9), 1.0, window=3) == Reached(2, 4.5)
    assert time_to_reward([], 1.0) is None


def test_no_window_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 step, not 0"):
        time_to_reward([], 1.0, window=0)


def test_a_noiseless_curve_is_reached_half_a_window_late() -> None:
    """The reward is step / 10: 2.0 comes with step 20, its mean over 5 steps with step 22."""
    reward = {"points": [[0, 0.0], [100, 10.0]], "noise": 0.0}
    scenario = load_scenario("tiny", {"workload.reward": reward})
    steps = list(simulate(scenario, scenario.schedule("trl"), steps=30))
    assert time_to_reward(steps, 2.0 - 1e-9, window=5) == Reached(22, steps[22].end_s / 60)


def test_a_run_is_noted_as_it_passes_and_read_back() -> None:
    steps, noted = run(1, 2, 3, 4), RewardRun()
    assert list(noted.watch(steps)) == steps
    assert noted == RewardRun([1, 2, 3, 4], [90, 180, 270, 360])
    assert RewardRun.from_dict(noted.as_dict()) == noted


def test_the_reward_around_a_step() -> None:
    noted = RewardRun([0, 1, 2, 3, 4, 5], [0.0] * 6)
    assert noted.around(3, window=2) == 2.5  # steps 2 and 3
    assert noted.around(0, window=2) == 0.5
    assert noted.around(5, window=4) is None
    assert noted.around(99, window=2) is None

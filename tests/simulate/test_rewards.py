"""Rewards of a run: which curve a scenario takes, and what staleness costs where it says so."""

from __future__ import annotations

from statistics import fmean
from typing import Any

import pytest

from oppo_sim.config import ConfigError, Scenario, load_scenario, parse_scenario
from oppo_sim.records import StepRecord
from oppo_sim.simulate import simulate, workload

LINE = {"points": [[0, 0.0], [1000, 1000.0]], "noise": 0.0}  # the reward is the updates done


def tiny(**reward: Any) -> Scenario:
    return load_scenario("tiny", {"workload.reward": reward})


def steps_of(scenario: Scenario, schedule: str, steps: int = 12) -> list[StepRecord]:
    return list(simulate(scenario, scenario.schedule(schedule), steps=steps))


def test_a_scenario_takes_points_or_a_curve_of_the_paper() -> None:
    scenario = tiny(points=[[0, 1.0], [10, 3.0]], noise=0.0)
    assert workload(scenario).reward(7, 5) == 2.0
    assert parse_scenario(scenario.document()).document() == scenario.document()
    assert workload(tiny(curve="gsm8k", noise=0.0)).reward(7, 200) == 0.82


def test_a_curve_that_does_not_exist_and_points_out_of_order() -> None:
    with pytest.raises(ConfigError, match=r"workload.reward: no reward curve.*'stack-exchange'"):
        workload(tiny(curve="stackexchange", noise=0.0))
    with pytest.raises(ConfigError, match=r"workload.reward: points: step 1 must come before 2"):
        workload(tiny(points=[[2, 0.0], [1, 0.0]], noise=0.0))


def test_the_noise_of_a_rollout_is_the_same_on_every_curve() -> None:
    flat, law = tiny(points=[[0, 0.0]], noise=0.5), load_scenario("tiny")
    for rollout in range(20):
        noise = workload(flat).reward(rollout, 3)
        assert workload(law).reward(rollout, 0) == pytest.approx(noise)


@pytest.mark.parametrize("schedule", ["trl", "oppo", "areal"])
def test_without_a_penalty_a_rollout_has_the_reward_of_its_first_version(schedule: str) -> None:
    for record in steps_of(tiny(**LINE), schedule):
        assert record.rewards == tuple(record.step - late for late in record.staleness)


@pytest.mark.parametrize("schedule", ["trl", "oppo", "areal"])
def test_a_stale_batch_counts_as_less_than_an_update(schedule: str) -> None:
    """Against a fold over the records: worth = 1 / (1 + 0.5 * mean staleness)."""
    done = [0.0]
    for record in steps_of(tiny(**LINE, stale_penalty=0.5), schedule):
        expected = [done[record.step - late] for late in record.staleness]
        assert record.rewards == pytest.approx(expected)
        done.append(done[-1] + 1 / (1 + 0.5 * fmean(record.staleness)))
    if schedule == "trl":
        assert done[-1] == 12
    else:
        assert done[-1] < 12


def test_a_penalty_alone_changes_no_time_where_nothing_reads_rewards() -> None:
    plain, penalised = (steps_of(tiny(**LINE, stale_penalty=p), "areal") for p in (0.0, 0.5))
    assert [step.end_s for step in plain] == [step.end_s for step in penalised]
    assert plain[-1].reward > penalised[-1].reward

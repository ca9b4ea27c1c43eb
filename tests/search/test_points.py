"""One point: what it comes to is what the runs come to, and its baseline is run once."""

import math
from collections.abc import Sequence

import pytest

from oppo_sim.config import load_scenario
from oppo_sim.search import Point, Problem, Result, Seeds, evaluate, more_seeds, summed_up
from oppo_sim.simulate import simulate


def step_s(schedule: str, seed: int, **sets: object) -> float:
    """The mean of a run's steps, from its records."""
    scenario = load_scenario("tiny", {f"schedule.{key}": value for key, value in sets.items()})
    records = list(simulate(scenario, scenario.schedule(schedule), seed=seed, steps=8))
    return records[-1].end_s / len(records)


def found(step_s: float) -> dict[str, object]:
    rest = ("staleness", "deferred_share", "length_bias", "busy", "wasted_share")
    return {"step_s": step_s, "kv_peak_tokens": 1, **dict.fromkeys(rest, 0.0)}


def of_times(own: Sequence[float], baseline: Sequence[float] | None) -> Result:
    base = None if baseline is None else [found(time) for time in baseline]
    return summed_up(Point(0, {}), range(len(own)), [found(time) for time in own], base)


def test_a_point_is_paired_with_its_baseline_by_seed() -> None:
    result = evaluate(Problem.of("tiny", steps=8), {"schedule.chunk": 20}, Seeds(4, 2))
    own = [step_s("oppo", seed, chunk=20) for seed in (4, 5)]
    base = [step_s("trl", seed) for seed in (4, 5)]
    assert result.step_s is not None
    assert result.speedup is not None
    assert result.step_s.mean == pytest.approx(sum(own) / 2)
    assert result.speedup.mean == pytest.approx(math.sqrt(base[0] / own[0] * base[1] / own[1]))


def test_the_baseline_has_the_batch_and_the_hardware_but_not_the_schedule_of_the_point() -> None:
    problem = Problem.of("tiny", steps=8)
    values = {"schedule.batch": 4, "cluster.actors": 1, "cluster.devices": 2, "schedule.pool": 50}
    scenario, schedule = problem.built("baseline", values)
    assert (schedule.name, schedule.batch, schedule.pool) == ("trl", 4, None)
    assert scenario.cluster.actors == 1


def test_points_that_differ_in_the_schedule_alone_share_a_baseline() -> None:
    problem, baselines = Problem.of("tiny", steps=3), {}
    for chunk in (20, 50):
        for actors in (1, 2):
            values = {"schedule.chunk": chunk, "cluster.actors": actors}
            assert evaluate(problem, values, Seeds(0, 2), baselines=baselines).is_ok
    assert len(baselines) == 4  # two numbers of actors, two seeds


def test_what_a_point_cannot_do_is_its_error() -> None:
    result = evaluate(Problem.of("tiny", steps=3), {"schedule.pool": 2}, Seeds(0, 2))
    assert (result.status, result.seeds, result.step_s) == ("failed", 0, None)
    assert "pool = 2 is less than batch = 8" in result.error
    result = evaluate(Problem.of("tiny", {"cluster.actors": 9}, steps=3), {}, Seeds(0, 2))
    assert "cluster" in result.error


def test_an_error_of_the_baseline_says_so() -> None:
    bad = {"error": "no memory"}
    assert summed_up(Point(0, {}), [7], [found(1.0)], [bad]).error == "the baseline: no memory"
    both = summed_up(Point(0, {}), [7, 8], [found(1.0), bad], [found(1.0), found(1.0)])
    assert both.error == "no memory (seed 8)"


def test_seeds_are_added_until_the_interval_is_narrow() -> None:
    seeds = Seeds(0, 2, 100, enough=0.5)
    # two ratios e^0.1 and e^-0.1: t(1) = 12.706, half-width of the log 12.706 * 0.1
    ratios = [math.exp(0.1), math.exp(-0.1)]
    wide = of_times([1.0, 1.0], ratios)
    half = math.sinh(1.2706)
    assert more_seeds(wide, seeds._replace(enough=half * 1.001)) == 0
    assert more_seeds(wide, seeds._replace(enough=half * 0.999)) == 3
    assert more_seeds(wide, seeds._replace(enough=half / 100)) == 4  # twice as many at most
    assert more_seeds(wide, seeds._replace(enough=half / 100, most=3)) == 3
    assert more_seeds(wide, seeds._replace(enough=half / 100, most=2)) == 0
    assert more_seeds(of_times([1.0], None), seeds) == 2  # one value has no interval


def test_the_step_time_decides_where_there_is_no_baseline() -> None:
    assert more_seeds(of_times([1.0, 1.0, 1.0], None), Seeds(0, 3, 9, 0.01)) == 0
    assert more_seeds(of_times([1.0, 1.2, 1.0], None), Seeds(0, 3, 9, 0.01)) == 6

"""The benchmark times what it says, on the scenario that `oppo run bench` runs."""

import pytest

from oppo_sim.analysis import bench
from oppo_sim.analysis.bench import Bench, Speed, bench_sim
from oppo_sim.analysis.metrics import summarise
from oppo_sim.config import load_scenario
from oppo_sim.policies import FixedChunk
from oppo_sim.simulate import lanes, simulate, workload


def test_the_scenario_is_the_agreed_one() -> None:
    scenario = load_scenario("bench")
    schedule = scenario.schedule()
    assert (schedule.name, schedule.batch) == ("oppo", 112)
    assert schedule.chunk_policy == FixedChunk(256)
    assert schedule.overcommit_policy.most == 8
    assert sum(lane.kind == "actor" for lane in lanes(scenario)) == 7
    lengths = workload(scenario).describe()
    assert lengths.mean_tokens == pytest.approx(500, rel=0.01)
    assert workload(scenario).cap_tokens == 4096
    assert scenario.schedule("inter").overcommit_policy.most == 8


def test_a_bench_simulates_what_a_run_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "TIMEOUTS", 1000)
    scenario = load_scenario("bench", {"steps": 5})
    monkeypatch.setattr(bench, "load_scenario", lambda name: scenario)
    found = bench_sim(rounds=2)
    for name, speed in found.speeds.items():
        run = summarise(simulate(scenario, scenario.schedule(name)))
        assert speed.mean_step_s == run.mean_step_s
        assert speed.steps_per_s > 0
    document = found.as_dict()
    assert document["steps_per_s"] == found.speeds["oppo"].steps_per_s
    assert set(document["schedules"]) == {"oppo", "inter", "trl"}


def test_the_ratio_is_timeouts_per_step() -> None:
    speeds = {"oppo": Speed(steps_per_s=500, mean_step_s=1)}
    found = Bench(
        scenario="x", seed=0, steps=1, rounds=1, speeds=speeds, simpy_timeouts_per_s=750_000
    )
    assert found.ratio == 1500

"""`oppo bench --suite real`: what it counts, and that all four systems run."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest

from oppo_real.bench.suite import RATES, RATIOS, RealBench, _running, interval
from oppo_real.bench.systems import System, Timed
from oppo_real.bench.task import FULL, TINY
from oppo_real.networks.loading import load_models
from oppo_real.prompts import Prompts, read_prompts
from oppo_sim.cli import main
from oppo_sim.engine import EngineError
from oppo_sim.workload.loads import workload


def bench(**timed: list[list[Timed]]) -> RealBench:
    names = {"trl_1_12": "trl 1.12"}
    return RealBench(
        task=TINY,
        seed=0,
        rounds=2,
        steps=1,
        warmup=0,
        elsewhere=[0.0],
        timed={names.get(name, name): rounds for name, rounds in timed.items()},
    )


def step(generate_s: float, score_s: float, train_s: float, rest_s: float, tokens: int) -> Timed:
    whole = generate_s + score_s + train_s + rest_s
    return Timed(whole, generate_s, score_s, train_s, tokens, stale_tokens=0, cpu_s=0.0)


def test_ratios_are_of_the_sums_of_a_round() -> None:
    found = bench(
        trl=[[step(3, 1, 4, 0, 40), step(5, 1, 4, 2, 40)], [step(4, 1, 4, 1, 40)]],
        oppo=[[step(1, 0, 4, 0, 40), step(2, 1, 2, 0, 20)], [step(2, 0, 3, 0, 40)]],
    )
    assert found.ratio("rollout_oppo").median == (10 / 4 + 5 / 2) / 2
    assert found.ratio("step_oppo").median == (20 / 10 + 10 / 5) / 2
    assert found.rate("tokens_oppo").median == (60 / 10 / (80 / 20) + 40 / 5 / (40 / 10)) / 2
    assert found.shares("oppo") == {
        "generation": 5 / 15,
        "scoring": 1 / 15,
        "training": 9 / 15,
        "sync": 0,
    }
    assert found.system("oppo")["step_s"] == 5
    assert found.system("oppo")["tokens_per_s"] == 100 / 15
    assert found.system("oppo")["mean_tokens"] == 100 / 3 / TINY.batch


def test_the_interval_holds_the_median_and_is_repeatable() -> None:
    ratios = [1.0, 1.1, 1.2, 1.3, 2.0]
    found = interval(ratios, seed=3)
    assert found == interval(ratios, seed=3)
    assert found.median == 1.2
    assert 1.0 <= found.low < 1.2 < found.high <= 2.0
    assert interval([1.5] * 4, seed=0) == (1.5, 1.5, 1.5)


def test_the_task_is_the_agreed_one(tmp_path: Path) -> None:
    FULL.write(tmp_path, 40, seed=0)
    scenario = FULL.scenario(tmp_path, {})
    assert scenario.real is not None
    lengths = workload(scenario).describe()
    assert 97 < lengths.mean_tokens < 100, "of 100, the cap takes a little"
    assert (lengths.max_tokens, FULL.batch, FULL.overcommit) == (512, 16, 8)
    models = load_models(scenario.real, tmp_path, 0)
    millions = [sum(p.numel() for p in m.parameters()) / 1e6 for m in (models.actor, models.reward)]
    assert millions == pytest.approx([14, 37], rel=0.02)
    prompts = Prompts(read_prompts(tmp_path / "prompts.jsonl", None, FULL.vocabulary), seed=0)
    assert len({prompts(rollout) for rollout in range(40)}) == 40
    assert {len(prompts(rollout)) for rollout in range(40)} == {32}


@pytest.mark.slow
def test_a_system_that_fails_is_named(tmp_path: Path) -> None:
    with (
        _running("broken", System("trl", {"actor": "nowhere.json"}), TINY, tmp_path, 0, 1) as turn,
        pytest.raises(EngineError, match=r"bench: broken failed with ModelError: .*nowhere.json"),
    ):
        turn(1)
    assert not [p for p in multiprocessing.active_children() if "broken" in p.name]


@pytest.mark.slow
def test_all_four_systems_train_the_same(capfd: pytest.CaptureFixture[str]) -> None:
    few = ("--size", "tiny", "--rounds", "2", "--steps", "1", "--warmup", "1")
    assert main(["bench", "--suite", "real", *few, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    for name in (*RATIOS, *RATES):
        assert 0 < found[name]["low"] <= found[name]["median"] <= found[name]["high"]
    assert set(found["shares"]) == {"trl 1.12", "trl", "intra", "oppo"}
    for shares in found["shares"].values():
        assert set(shares) == {"generation", "scoring", "training", "sync"}
        assert sum(shares.values()) == pytest.approx(1)
    tokens = {name: figures["mean_tokens"] for name, figures in found["systems"].items()}
    assert tokens["trl 1.12"] == tokens["trl"] == tokens["intra"]
    assert found["rounds"] == 2

"""Lengths from everywhere a scenario may take them from, and what is refused."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from oppo_sim.config import ConfigError, Scenario, load_scenario
from oppo_sim.simulate import limits, simulate, workload
from oppo_sim.workload import Drift

CHAT = "alpacaeval_Qwen1.5-1.8B-Chat"  # 3 % of its answers were cut at 3500


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny = (files("oppo_sim") / "data/scenarios/tiny.toml").read_text(encoding="utf-8")
    scenario = tiny.replace("lengths = { exponential = 100 }", 'lengths = "mine.csv"')
    assert scenario != tiny
    (tmp_path / "scenario.toml").write_text(scenario)
    return tmp_path


def measured(folder: Path, text: str, **overrides: object) -> Scenario:
    (folder / "mine.csv").write_text(text)
    changed = {key.replace("__", "."): value for key, value in overrides.items()}
    return load_scenario(folder / "scenario.toml", changed)


def test_a_file_beside_the_scenario_is_a_distribution(folder: Path) -> None:
    scenario = measured(folder, "response_tokens\n10\n20\n30\n")
    drawn = {workload(scenario).response_tokens(n) for n in range(200)}
    assert min(drawn) >= 10
    assert max(drawn) <= 30
    assert len(drawn) > 5
    assert len(list(simulate(scenario, steps=5))) == 5


def test_a_file_may_be_replayed_in_order(folder: Path) -> None:
    rows = "".join(f"{n},{n + 1}\n" for n in range(1, 31))
    scenario = measured(
        folder,
        "prompt_tokens,response_tokens\n" + rows,
        workload__lengths={"replay": "mine.csv"},
        workload__prompt_tokens=9,
    )
    assert [workload(scenario).response_tokens(n) for n in range(3)] == [2, 3, 4]
    assert len(list(simulate(scenario, steps=3))) == 3
    with pytest.raises(ConfigError, match="holds 30 lengths, but oppo needs 36 for steps = 4"):
        simulate(scenario, steps=4)


def test_prompts_of_the_lengths_bound_the_memory_of_a_rollout() -> None:
    own = {
        "workload.lengths": "gsm8k_Qwen2-7B-Instruct_greedy",
        "workload.prompt_tokens": None,
        "workload.max_prompt_tokens": 300,
    }
    assert limits(load_scenario("gsm8k-7b", own)) == (300, 2048)
    with pytest.raises(ConfigError, match=r"max_prompt_tokens = 200: the longest prompt has 285"):
        limits(load_scenario("gsm8k-7b", {**own, "workload.max_prompt_tokens": 200}))
    assert limits(load_scenario("tiny")) == (20, 400)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["mine.csv", "holds no lengths"]),
        ("response_tokens\n", ["mine.csv", "holds no lengths"]),
        ("response_tokens\n5\nlong\n", ["line 3", "'long'", "whole number"]),
        ("response_tokens\n5\nnan\n", ["line 3", "'nan'", "whole number"]),
        ("response_tokens\n5\n0\n", ["line 3", "'0'", "drop the row"]),
        ("tokens\n5\n", ["no response_tokens"]),
        ("response_tokens\n5\n", ["needs >= 2 lengths"]),
    ],
)
def test_lengths_that_cannot_be_read(folder: Path, text: str, parts: list[str]) -> None:
    scenario = measured(folder, text)
    with pytest.raises(ConfigError) as caught:
        simulate(scenario)
    for part in ["scenario.toml: workload.lengths: ", *parts]:
        assert part in str(caught.value)


def test_a_recorded_length_above_the_cap_is_never_cut(folder: Path) -> None:
    scenario = measured(
        folder, "response_tokens\n5\n401\n", workload__lengths={"replay": "mine.csv"}
    )
    with pytest.raises(ConfigError, match=r"401 tokens in place 1, above max_response_tokens"):
        workload(scenario)


def test_a_missing_file_an_unknown_table_and_missing_prompts() -> None:
    def refused(overrides: dict[str, object]) -> str:
        with pytest.raises(ConfigError) as caught:
            simulate(load_scenario("tiny", overrides))
        return str(caught.value)

    assert "none.csv cannot be read" in refused({"workload.lengths": "none.csv"})
    message = refused({"workload.lengths": "gsm8k_reference_trial"})
    assert "did you mean 'gsm8k_reference_train'" in message
    without_prompts = {
        "lengths": {"constant": 9},
        "max_response_tokens": 9,
        "reward": {"start": 0.0, "plateau": 1.0, "tau_steps": 1.0, "noise": 0.0},
    }
    message = refused({"workload": without_prompts})
    assert "workload.prompt_tokens is missing" in message


def test_a_cap_beyond_what_the_source_knows_is_refused() -> None:
    changes = {"workload.lengths": CHAT, "workload.max_response_tokens": 4096}
    with pytest.raises(ConfigError, match=r"max_response_tokens = 4096: .*cut at 3500.*lower it"):
        workload(load_scenario("stackexchange-7b", changes))


@pytest.mark.parametrize(
    ("lengths", "mean"),
    [
        ({"lognormal": {"mu": 4.0, "sigma": 0.5}}, 61.9),  # exp(mu + sigma^2 / 2)
        ({"gamma": {"shape": 2.0, "scale_tokens": 30.0}}, 60.0),
        ({"weibull": {"shape": 2.0, "scale_tokens": 70.0}}, 62.0),  # scale * Gamma(1.5)
        ({"mixture": {"weight": 0.5, "mu": [3.0, 4.0], "sigma": [0.4, 0.2]}}, 38.7),
        ({"gamma": {"shape": 2.0, "scale_tokens": 30.0}, "endless": 0.1}, 94.0),  # a tenth at 400
    ],
)
def test_fitted_laws_are_sources(lengths: dict[str, object], mean: float) -> None:
    scenario = load_scenario("tiny", {"workload.lengths": lengths})
    drawn = workload(scenario).responses(range(50_000))
    assert sum(drawn) / len(drawn) == pytest.approx(mean, rel=0.015)
    assert len(list(simulate(scenario, steps=3))) == 3


def test_effects_come_from_the_scenario_and_its_schedule() -> None:
    changes = {
        "workload.prompt_effect": 0.79,
        "workload.prompt_set": 100,
        "workload.drift": {"per_step": -0.01, "ar": 0.5, "noise": 0.02},
    }
    effects = workload(load_scenario("tiny", changes)).effects
    assert (effects.prompt_effect, effects.group, effects.prompt_set) == (0.79, 1, 100)
    assert (effects.drift, effects.batch) == (Drift(-0.01, 0.5, 0.02), 8)
    grouped = load_scenario("tiny", changes | {"schedule.group": 4})
    assert workload(grouped).effects.group == 4
    assert workload(load_scenario("tiny", {"schedule.group": 4})).effects.group == 1
    assert workload(load_scenario("tiny", {"workload.group": 2})).effects.group == 2
    assert len(list(simulate(load_scenario("tiny", changes), steps=4))) == 4


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("prompt_effect", 1.2, "workload.prompt_effect"),
        ("drift", {"ar": 2.0}, "workload.drift.ar"),
        ("drift", {"slope": 2.0}, "unknown key 'slope'"),
        ("lengths", {"lognormal": {"mu": 4.0}}, "workload.lengths.lognormal.sigma"),
        ("lengths", {"lognormal": {"mu": 4.0, "sigma": 0.0}}, "workload.lengths.lognormal.sigma"),
        ("lengths", {"mixture": {"weight": 0.5, "mu": [1.0], "sigma": [1.0]}}, "of two"),
        ("lengths", {"constant": 3, "endless": 0.1}, "goes with lognormal"),
    ],
)
def test_laws_and_effects_that_cannot_be(key: str, value: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_scenario("tiny", {f"workload.{key}": value})

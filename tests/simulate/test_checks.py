"""What a scenario cannot run is said before the run begins, with the field to change."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oppo_sim.config import ConfigError, Scenario, load_scenario
from oppo_sim.policies import CATALOG
from oppo_sim.policies.schedule import Share
from oppo_sim.simulate import check, simulate

# Prompts of 20 tokens, responses to 400, KV memory for 5,000: see tiny.toml.
SCARCE = {"schedule.kv_reserve_tokens": 1, "cluster.slots": 4}


def refusal(changes: dict[str, object], name: str = "tiny", steps: int = 2) -> str:
    scenario = load_scenario(name, changes)
    with pytest.raises(ConfigError) as caught:
        check(scenario, scenario.schedule(), steps)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("changes", "field", "remedy"),
    [
        # the memory that the scenario states
        ({"cluster.kv_tokens": 419}, "cluster.kv_tokens = 419", "raise cluster.kv_tokens to 420"),
        ({"cluster.kv_tokens": 419}, "cluster.kv_tokens = 419", "max_response_tokens to 399"),
        ({"cluster.kv_tokens": 20}, "cluster.kv_tokens = 20", "or shorten the prompts"),
        # what is reserved, though a rollout would fit
        (
            {"schedule.kv_reserve_tokens": 6000},
            "schedule.kv_reserve_tokens = 6000",
            "lower it to 4980, or raise cluster.kv_tokens to 6020",
        ),
        (
            {"workload.max_prompt_tokens": 4700},
            "workload.max_prompt_tokens = 4700",
            "set it to 20, the longest prompt there is, or leave it out",
        ),
        # a rollout that grows beyond the memory, whatever it reserves
        (
            {**SCARCE, "cluster.kv_tokens": 300},
            "cluster.kv_tokens = 300",
            "raise cluster.kv_tokens to 420, or lower workload.max_response_tokens to 280",
        ),
        (
            {**SCARCE, "cluster.kv_tokens": 419},
            "cluster.kv_tokens = 419",
            "can grow to 20 prompt + 400 response tokens",
        ),
    ],
)
def test_too_little_memory_names_the_field_to_blame(
    changes: dict[str, object], field: str, remedy: str
) -> None:
    message = refusal(changes)
    assert message.startswith(f"tiny: {field}: ")
    assert remedy in message


@pytest.mark.parametrize("reserve", [None, 100])
def test_a_card_without_the_memory_is_not_asked_for_more_of_it(reserve: int | None) -> None:
    """What an actor's card leaves is no field: the response is shortened to what it holds."""
    changes: dict[str, object] = {
        "workload.lengths": {"exponential": 1e6},  # to 36 million: -log(2**-53) times the mean
        "workload.prompt_tokens": 512,
        "workload.max_response_tokens": 10_000_000,
        "cluster.slots": 16,
    }
    if reserve is not None:
        changes["schedule.kv_reserve_tokens"] = reserve
    message = refusal(changes, "stackexchange-7b")
    assert message.startswith("stackexchange-7b: workload.max_response_tokens = 10000000: ")
    assert "lower it to " in message
    shorter = int(message.split("lower it to ")[1].split(",")[0])
    scenario = load_scenario(
        "stackexchange-7b", {**changes, "workload.max_response_tokens": shorter}
    )
    check(scenario, scenario.schedule("trl"), 2)


def test_responses_that_never_reach_the_cap_may_have_less_memory() -> None:
    """Constant lengths of 30 with prompts of 20 fit into 50 tokens, and not into 49."""
    lengths = {**SCARCE, "workload.lengths": {"constant": 30}}
    fits = load_scenario("tiny", {**lengths, "cluster.kv_tokens": 50})
    assert len(list(simulate(fits, steps=2))) == 2
    assert "20 prompt + 30 response" in refusal({**lengths, "cluster.kv_tokens": 49})
    drifting = {**lengths, "workload.drift": {"per_step": 0.1}, "cluster.kv_tokens": 50}
    assert "20 prompt + 400 response" in refusal(drifting)


@pytest.mark.parametrize(
    ("reserve", "said"), [(None, "lower max_response_tokens"), (400, "lower kv_reserve_tokens")]
)
def test_a_batch_beyond_memory_names_what_is_reserved(reserve: int | None, said: str) -> None:
    changes: dict[str, object] = {"schedule.batch": 23}
    if reserve is not None:
        changes["schedule.kv_reserve_tokens"] = reserve
    assert said in refusal(changes)


@pytest.mark.parametrize(
    ("costs", "field"),
    [
        ({"model": "constant", "train_call_s": 1.0}, "costs.decode_token_s"),
        ({"model": "linear"}, "costs.decode_token_s, decode_rollout_s or decode_context_s"),
    ],
)
def test_decoding_must_take_time(costs: dict[str, object], field: str) -> None:
    message = refusal({"costs": costs})
    assert message.startswith(f"tiny: {field}: decoding a token takes 0 s")
    assert "the costs of decoding must be above 0" in message


@pytest.mark.parametrize("part", ["decode_token_s", "decode_rollout_s", "decode_context_s"])
def test_one_of_the_costs_of_decoding_is_enough(part: str) -> None:
    """One rollout of 30 tokens after a prompt of 20: 30 iterations, contexts of 20 to 49."""
    scenario = load_scenario(
        "tiny",
        {
            "costs": {"model": "linear", part: 0.5, "train_call_s": 1.0},
            "workload.lengths": {"constant": 30},
            "schedule.batch": 1,
        },
    )
    weight = sum(range(20, 50)) if part == "decode_context_s" else 30
    first, second = simulate(scenario, scenario.schedule("trl"), steps=2)
    assert first.taken_s == second.taken_s - second.start_s == 0.5 * weight


def test_more_in_flight_than_memory_holds_is_refused() -> None:
    """(1 + 1000) x 1000 rollouts, and up to 4 beyond; 8, and ten million times as many beyond."""
    message = refusal({"schedule.ahead": 1000, "schedule.batch": 1000, "cluster.slots": 1})
    assert "schedule.ahead = 1000: up to 1,001,004 rollouts would be in flight" in message
    assert "to 1,000,000 in flight at most" in message
    tiny = load_scenario("tiny")
    many = replace(tiny.schedule("april"), overcommit=Share(of_batch=1e7))
    with pytest.raises(ConfigError, match=r"schedule\.overcommit, at most 80,000,000: up to"):
        check(tiny, many, 2)


def test_the_steps_asked_for_have_the_bounds_of_the_scenarios() -> None:
    assert "steps = 0: must be at least 1" in refusal({}, steps=0)
    assert "steps = 1000001: must be at most 1,000,000" in refusal({}, steps=1_000_001)


SECONDS = st.sampled_from([0.0, 5e-324, 1e-12, 1e-3, 1.0, 1e7])


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Small ones, at the edges of what the tables allow."""
    parts = ("round_s", "decode_token_s", "decode_rollout_s", "decode_context_s", "score_call_s")
    parts += ("prefill_call_s", "score_token_s", "train_call_s", "sync_call_s", "handoff_token_s")
    changes: dict[str, object] = {"costs": {"model": "linear", **{p: draw(SECONDS) for p in parts}}}
    for key, values in {
        "workload.max_response_tokens": [1, 2, 10, 40],
        "workload.prompt_tokens": [1, 7],
        "workload.lengths": [{"exponential": 5.0}, {"constant": 5}, {"lognormal": EXTREME}],
        "schedule.batch": [1, 2, 8],
        "schedule.chunk": [1, 3, 10_000_000],
        "schedule.overcommit": [0, 5, {"policy": "share", "of_batch": 1e-300}],
        "schedule.ahead": [0, 3],
        "cluster.kv_tokens": [5, 8, 20, 48, 1000],
        "cluster.slots": [1, 2, 1_000_000],
    }.items():
        changes[key] = draw(st.sampled_from(values))
    if draw(st.booleans()):
        changes["schedule.kv_reserve_tokens"] = draw(st.sampled_from([1, 5, 30]))
    if draw(st.booleans()):
        changes["cluster.placement"] = "colocated"
        changes["cluster.contention"] = {"decode_stretch": 1e7, "switch_s": draw(SECONDS)}
    return load_scenario("tiny", changes)


EXTREME = {"mu": 50, "sigma": 50}


@settings(max_examples=60)
@given(scenarios(), st.sampled_from(sorted(CATALOG)))
def test_what_is_not_refused_runs(scenario: Scenario, name: str) -> None:
    try:
        records = simulate(scenario, scenario.schedule(name), steps=3)
    except ConfigError:
        return
    ends = [record.end_s for record in records]
    assert len(ends) == 3
    assert all(map(math.isfinite, ends))

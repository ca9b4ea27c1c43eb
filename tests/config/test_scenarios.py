"""What a scenario file says, and what of it becomes the schedules that run on it."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from oppo_sim.config import (
    Scenario,
    load_scenario,
    load_schedule,
    parse_scenario,
    shipped_scenarios,
    text_of,
    value_of,
)
from oppo_sim.policies import CATALOG

PAPER = ("gsm8k-7b", "opencoder-3b", "stackexchange-3b", "stackexchange-7b")


def test_what_is_shipped() -> None:
    assert {"tiny", *PAPER} <= set(shipped_scenarios())


@pytest.mark.parametrize("name", shipped_scenarios())
def test_a_shipped_scenario_loads_under_its_own_name_and_lists_what_it_assumes(name: str) -> None:
    scenario = load_scenario(name)
    assert scenario.name == name
    assert scenario.about
    assert scenario.assumptions
    assert all(line.endswith(".") for line in scenario.assumptions)


@pytest.mark.parametrize("name", PAPER)
def test_a_paper_scenario_has_the_papers_layout_and_names_its_proxy(name: str) -> None:
    scenario = load_scenario(name)
    cluster = scenario.cluster
    assert (cluster.card, cluster.devices, cluster.actors, cluster.scorers) == ("H200", 8, 7, 1)
    assert scenario.schedule().batch == 112
    assert "DESIGN.md, decision 21" in scenario.assumptions[0] or name == "stackexchange-3b"
    assert "fitted" in scenario.assumptions[0].lower()


def test_both_stack_exchange_scenarios_have_the_same_lengths_and_costs() -> None:
    large, small = load_scenario("stackexchange-7b"), load_scenario("stackexchange-3b")
    assert small.workload.model_dump(exclude={"reward"}) == large.workload.model_dump(
        exclude={"reward"}
    )
    assert (small.costs, small.cluster) == (large.costs, large.cluster)


@pytest.mark.parametrize("name", shipped_scenarios())
def test_a_scenario_survives_json_and_pickle(name: str) -> None:
    scenario = load_scenario(name)
    document = json.loads(json.dumps(scenario.document()))
    again = parse_scenario(document, scenario.file, scenario.folder)
    assert again == scenario
    assert again.document() == document
    assert pickle.loads(pickle.dumps(scenario)) == scenario


def test_a_document_names_no_path_of_this_machine(tmp_path: Path, scenario_file: Path) -> None:
    assert str(tmp_path) not in json.dumps(load_scenario(scenario_file).document())


def test_a_byte_order_mark_and_a_suffix_in_capitals_are_no_mistake(
    tmp_path: Path, scenario_file: Path, tiny: Scenario
) -> None:
    windows = tmp_path / "MINE.TOML"
    windows.write_bytes(b"\xef\xbb\xbf" + scenario_file.read_bytes())
    plain = load_scenario(scenario_file).document()
    assert load_scenario(windows).document() == load_scenario(str(windows)).document() == plain
    schedule = tmp_path / "SHORT.TOML"
    schedule.write_bytes(b'\xef\xbb\xbfbase = "oppo"\nchunk = 3')
    assert load_schedule(str(schedule), tiny).chunk_policy.chunk_tokens(None) == 3  # type: ignore[arg-type]


def test_overrides_are_read_as_toml_values_and_leave_the_rest_alone(tiny: Scenario) -> None:
    changed = load_scenario(
        "tiny",
        {
            "workload.max_response_tokens": "1024",
            "workload.lengths": "{ constant = 7 }",
            "schedule.name": "trl",
            "cluster.kv_tokens": 9000,
            "about": "not TOML, so a text",
        },
    )
    assert changed.workload.max_response_tokens == 1024
    assert changed.workload.lengths.constant == 7
    assert changed.schedule().name == "trl"
    assert changed.cluster.kv_tokens == 9000
    assert changed.about == "not TOML, so a text"
    assert changed.costs == tiny.costs


def test_an_override_reaches_into_a_shorthand() -> None:
    changed = load_scenario(
        "stackexchange-7b",
        {"workload.lengths.exponential": 300, "costs.engine.fixed_s": 0.084},
    )
    assert changed.workload.lengths.exponential == 300
    assert changed.costs.engine.fixed_s == 0.084


def test_a_scenarios_axes_go_to_the_schedules_they_are_for(tiny: Scenario) -> None:
    trl, intra, inter, oppo = map(tiny.schedule, ("trl", "intra", "inter", "oppo"))
    assert [s.batch for s in (trl, intra, inter, oppo)] == [8, 8, 8, 8]
    assert trl.chunk is None
    assert trl.overcommit == 0
    assert intra.chunk == oppo.chunk
    assert intra.chunk_policy.chunk_tokens(None) == 50  # type: ignore[arg-type]
    assert intra.overcommit == 0
    assert inter.chunk is None
    assert inter.overcommit == oppo.overcommit
    assert inter.overcommit_policy.most == 4


def test_a_fixed_number_of_rollouts_that_makes_a_system_is_its_own(tiny: Scenario) -> None:
    assert tiny.schedule("april").overcommit == CATALOG["april"].overcommit


def test_a_plain_axis_holds_for_every_schedule() -> None:
    scenario = load_scenario("tiny", {"schedule.update_kv": "recompute"})
    assert {scenario.schedule(name).update_kv for name in CATALOG} == {"recompute"}


def test_numbers_stand_for_constant_policies() -> None:
    plain = load_scenario("tiny", {"schedule.chunk": 64, "schedule.overcommit": 3}).schedule()
    assert plain.chunk_policy.chunk_tokens(None) == 64  # type: ignore[arg-type]
    assert plain.overcommit_policy.overcommit(None) == 3  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (150, "150"),
        (0.25, "0.25"),
        (True, "true"),
        ("whole", "whole"),
        ([1, 2.5, "a"], '[1, 2.5, "a"]'),
        ({"policy": "fixed", "tokens": 9}, '{ policy = "fixed", tokens = 9 }'),
    ],
)
def test_what_was_changed_is_written_as_it_may_be_set(value: object, text: str) -> None:
    assert text_of(value) == text
    assert value_of(text) == value

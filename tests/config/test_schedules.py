"""Schedules from files: a schedule of the catalogue, changed."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from oppo_sim.config import ConfigError, Scenario, load_schedule
from oppo_sim.config.schedules import AXES
from oppo_sim.policies import CATALOG, ProbedChunk, RewardSlope, Schedule, StragglerShare
from oppo_sim.policies.schedule import Share


def schedule(folder: Path, scenario: Scenario, text: str) -> Schedule:
    file = folder / "mine.toml"
    file.write_text(text)
    return load_schedule(file, scenario)


def test_every_axis_of_a_schedule_can_be_set() -> None:
    assert {f.name for f in fields(Schedule)} - {"name"} == AXES


def test_a_name_is_the_scenarios_schedule(tiny: Scenario) -> None:
    assert load_schedule("oppo", tiny) == tiny.schedule("oppo")


def test_a_file_is_its_base_on_the_scenario_but_for_what_it_says(
    tmp_path: Path, tiny: Scenario
) -> None:
    mine = schedule(tmp_path, tiny, 'base = "oppo"\nflush = "rollout"\nbatch = 6')
    assert mine.name == "mine"
    assert (mine.flush, mine.batch) == ("rollout", 6)
    assert (mine.chunk, mine.overcommit) == (
        tiny.schedule("oppo").chunk,
        tiny.schedule("oppo").overcommit,
    )


def test_policies_in_a_file(tmp_path: Path, tiny: Scenario) -> None:
    mine = schedule(
        tmp_path,
        tiny,
        """
        base = "oppo"
        name = "probing"
        chunk = { policy = "probe", candidates = [16, 64], every = 20, repeats = 2 }
        overcommit = { policy = "straggler-share", start = 1, most = 6, gain = 0.5 }
        """,
    )
    assert mine.name == "probing"
    assert mine.chunk == ProbedChunk(candidates=(16, 64), every=20, repeats=2)
    assert mine.overcommit == StragglerShare(start=1, most=6, gain=0.5)


def test_a_share_of_the_batch_is_rounded_to_whole_groups(tmp_path: Path, tiny: Scenario) -> None:
    """Of 12 rollouts, 3 groups of 4: a tenth is 0.3 groups, a fifth 0.6, a half 1.5 (to even)."""
    for of_batch, rollouts in ((0, 0), (0.1, 0), (0.2, 4), (0.5, 8), (1, 12), (2.0, 24)):
        mine = schedule(
            tmp_path,
            tiny,
            f"""
            base = "april"
            batch = 12
            group = 4
            overcommit = {{ policy = "share", of_batch = {of_batch} }}
            """,
        )
        assert mine.overcommit == Share(of_batch=of_batch)
        assert mine.overcommit_policy.most == rollouts
        assert mine.window == 0


def test_april_oversubscribes_in_proportion_to_the_batch(tiny: Scenario) -> None:
    """APRIL asks for twice the groups it trains on, whatever the batch."""
    assert CATALOG["april"].overcommit_policy.most == 112
    assert (tiny.schedule("april").batch, tiny.schedule("april").overcommit_policy.most) == (8, 8)


def test_a_policy_that_is_only_named_has_its_own_defaults(tmp_path: Path, tiny: Scenario) -> None:
    mine = schedule(
        tmp_path,
        tiny,
        'base = "oppo"\nchunk = {policy = "probe"}\novercommit = {policy = "reward-slope"}',
    )
    assert (mine.chunk, mine.overcommit) == (ProbedChunk(), RewardSlope())


def test_a_file_may_stop_streaming_and_overcommitting(tmp_path: Path, tiny: Scenario) -> None:
    mine = schedule(
        tmp_path, tiny, 'base = "oppo"\nchunk = "whole"\nscoring = "batch"\novercommit = 0'
    )
    assert mine.chunk is None
    assert mine.overcommit_policy.most == 0


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('base = "opo"', ["base", "'opo'", "did you mean 'oppo'"]),
        ('base = "oppo"\nchunks = 3', ["unknown key 'chunks'", "did you mean 'chunk'"]),
        ("chunk = 3", ["base is missing"]),
        ('base = "oppo"\nbatch = 8\ngroup = 3', ["batch = 8", "multiple of group = 3"]),
        ('base = "trl"\nscoring = "chunk"', ["scoring = 'chunk' needs a chunk"]),
        ('base = "oppo"\nchunk = 0', ["chunk = 0", "at least 1 token"]),
        ('base = "oppo"\novercommit = -2', ["overcommit = -2", "at least 0"]),
        ('base = "oppo"\novercommit = 2.5', ["overcommit = 2.5", "number of rollouts"]),
        (
            'base = "oppo"\novercommit = { policy = "share", of_batch = -1 }',
            ["overcommit.of_batch = -1", "at least 0"],
        ),
        ('base = "oppo"\novercommit = { policy = "share" }', ["overcommit.of_batch is missing"]),
        ('base = "oppo"\nmax_staleness = 2', ["max_staleness = 2", "add stale = 'drop' or 'wait'"]),
        ('base = "oppo"\nstale = "drop"', ["stale = 'drop'", "add max_staleness"]),
        ('base = "oppo"\nchunk = {policy = "prob"}', ["chunk.policy", "did you mean 'probe'"]),
        ('base = "oppo"\nchunk = {every = 9}', ["chunk.policy is missing"]),
        ('base = "oppo"\ntake = "first"', ["take = 'first'", "'finished' or 'oldest'"]),
        ("base = ", ["not valid TOML"]),
    ],
)
def test_mistakes_in_a_file_are_one_line(
    tmp_path: Path, tiny: Scenario, text: str, parts: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        schedule(tmp_path, tiny, text)
    message = str(caught.value)
    assert "\n" not in message
    for part in ["mine.toml", *parts]:
        assert part in message


def test_an_unknown_schedule_names_the_nearest(tiny: Scenario) -> None:
    for load in (load_schedule, lambda name, scenario: scenario.schedule(name)):
        with pytest.raises(ConfigError, match=r"no schedule is called 'intr'.*'intra'"):
            load("intr", tiny)

"""Schedules: what the catalogue holds, and what no schedule can be."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest

from oppo_sim.policies import (
    CATALOG,
    FixedChunk,
    FixedOvercommit,
    ProbedChunk,
    RewardSlope,
    Schedule,
    WholeResponse,
    named,
)
from tests.policies.seen import seen

SOUND = Schedule(name="sound")


# the catalogue


def test_the_papers_four_differ_by_its_two_ideas() -> None:
    """A probed chunk of 128, 256 or 512 is intra-step overlap, a controlled D is inter-step."""
    trl, intra, inter, oppo = (CATALOG[name] for name in ("trl", "intra", "inter", "oppo"))
    assert trl == Schedule(name="trl", batch=112)
    assert intra == replace(trl, name="intra", chunk=ProbedChunk((128, 256, 512)), scoring="chunk")
    assert inter == replace(trl, name="inter", overcommit=RewardSlope())
    assert oppo == replace(intra, name="oppo", overcommit=inter.overcommit)
    assert (trl.flush, trl.partial, trl.surplus) == ("round", "kv", "keep")


def test_every_schedule_is_found_by_its_name() -> None:
    assert {"response", "one-step-off", "areal", "april", "pipeline-rl"} < set(CATALOG)
    for name in CATALOG:
        assert named(name).name == name
        assert type(named(name)) is Schedule


@pytest.mark.parametrize(
    ("typo", "meant"), [("opo", "oppo"), ("intr", "intra"), ("one-step", "one-step-off")]
)
def test_a_misspelt_name_is_answered_with_the_nearest(typo: str, meant: str) -> None:
    with pytest.raises(ValueError, match=rf"'{typo}'; did you mean '{meant}'\? There are: trl, "):
        named(typo)


def test_a_name_that_is_near_to_none_is_answered_with_all() -> None:
    with pytest.raises(ValueError, match=r"called 'zzz'\. There are: trl, intra, inter, oppo, "):
        named("zzz")


def test_a_schedule_is_a_value() -> None:
    assert replace(SOUND, batch=8) == Schedule(name="sound", batch=8)
    with pytest.raises(FrozenInstanceError):
        SOUND.batch = 8  # type: ignore[misc]


# shorthands


def test_a_number_is_the_fixed_policy() -> None:
    assert replace(SOUND, chunk=64).chunk_policy == FixedChunk(64)
    assert SOUND.chunk_policy == WholeResponse()
    assert replace(SOUND, overcommit=3).overcommit_policy == FixedOvercommit(3)
    assert replace(SOUND, overcommit=RewardSlope()).overcommit_policy == RewardSlope()


def test_its_window_is_that_of_the_policy_that_looks_back_the_furthest() -> None:
    assert SOUND.window == 0
    probe = ProbedChunk(every=20)
    assert replace(SOUND, chunk=probe, overcommit=RewardSlope(over=5)).window == 20
    assert replace(SOUND, chunk=probe, overcommit=RewardSlope(over=30)).window == 31


# errors


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"batch": 0}, r"batch = 0: must be at least 1"),
        ({"batch": 8.0}, r"batch = 8\.0: must be a whole number"),
        ({"group": 0}, r"group = 0: must be at least 1"),
        ({"batch": 10, "group": 4}, r"batch = 10: must be a multiple of group = 4"),
        ({"ahead": -1}, r"ahead = -1: must be at least 0"),
        ({"overcommit": -1}, r"overcommit = -1: must be at least 0"),
        ({"overcommit": 1.5}, r"overcommit = 1\.5: must be"),
        ({"chunk": 0}, r"chunk = 0: must be at least 1"),
        ({"chunk": "big"}, r"chunk = 'big': must be"),
        ({"pool": 0}, r"pool = 0: must be at least 1"),
        ({"pool": 111}, r"pool = 111 is less than batch = 112: raise it, or set refill = 'event'"),
        ({"kv_reserve_tokens": 0}, r"kv_reserve_tokens = 0: must be at least 1"),
        ({"stale": "drop"}, r"stale = 'drop' with max_staleness = None: .* need a bound"),
        ({"max_staleness": 2}, r"stale = 'keep' with max_staleness = 2: .* a bound needs"),
        ({"stale": "wait", "max_staleness": -1}, r"max_staleness = -1: must be at least 0"),
        ({"refill": "often"}, r"refill = 'often': must be one of 'batch', 'idle', 'event'"),
        ({"take": "best"}, r"take = 'best': must be one of 'finished', 'oldest'"),
        ({"surplus": "sell"}, r"surplus = 'sell': must be one of 'keep', 'drop'"),
        ({"stale": "sell"}, r"stale = 'sell': must be one of 'keep', 'wait', 'drop'"),
        ({"stop": "never"}, r"stop = 'never': must be one of 'taken', 'train'"),
        ({"partial": "half"}, r"partial = 'half': must be one of 'kv', 'tokens', 'nothing'"),
        ({"update": "now"}, r"update = 'now': must be one of 'in_flight', 'interrupt', 'drain'"),
        ({"update_kv": "lose"}, r"update_kv = 'lose': must be one of 'keep', 'recompute'"),
        ({"scoring": "token"}, r"scoring = 'token': must be one of 'batch', 'response', 'chunk'"),
        ({"flush": "never"}, r"flush = 'never': must be one of 'round', 'rollout'"),
        ({"scoring": "chunk"}, r"scoring = 'chunk' needs a chunk"),
        (
            {"scoring": "response"},
            r"scoring = 'response' with flush = 'round' needs rounds .* or flush = 'rollout'",
        ),
        (
            {"scoring": "chunk", "chunk": 8, "partial": "nothing"},
            r"partial = 'nothing' with scoring = 'chunk' would score tokens that are thrown away",
        ),
    ],
)
def test_an_error_names_field_value_and_remedy(wrong: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        replace(SOUND, **wrong)


def test_a_small_pool_is_fine_where_it_is_topped_up() -> None:
    assert replace(SOUND, pool=10, refill="event").pool == 10


# policies of one's own


class Own:
    """Returns what it was made with, whatever that is."""

    window = 1
    most = 4

    def __init__(self, value: Any, **changes: Any) -> None:
        self.value = value
        vars(self).update(changes)

    def overcommit(self, seen: object) -> Any:
        return self.value

    def chunk_tokens(self, seen: object) -> Any:
        return self.value


class Bare:
    def chunk(self, seen: object) -> int:
        return 8


class Blind:
    window = most = 0

    def overcommit(self) -> int:
        return 0


class Endless:
    window = 0

    def overcommit(self, seen: object) -> int:
        return 0


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (
            {"chunk": Bare()},
            r"chunk = Bare: must be a whole number, or a policy with a method "
            r"chunk_tokens\(self, seen\)",
        ),
        ({"overcommit": Bare()}, r"overcommit = Bare: must be .* method overcommit\(self, seen\)"),
        ({"overcommit": np.int64(4)}, r"overcommit = np\.int64\(4\): must be a whole number, or"),
        (
            {"overcommit": Own},
            r"overcommit = Own is a class: give an object of it, such as Own\(\)",
        ),
        (
            {"overcommit": Blind()},
            r"Blind\.overcommit: must take one argument, as in overcommit\(self, seen\)",
        ),
        (
            {"overcommit": Endless()},
            r"overcommit: Endless has no attribute most: add a whole number, the largest",
        ),
        ({"overcommit": Own(1, most=2.5)}, r"Own\.most = 2\.5: must be a whole number"),
        ({"overcommit": Own(1, most=-1)}, r"Own\.most = -1: must be at least 0"),
        ({"overcommit": Own(1, window=None)}, r"Own\.window = None: must be a whole number"),
        ({"chunk": Own(1, window="5")}, r"Own\.window = '5': must be a whole number"),
    ],
)
def test_a_policy_of_ones_own_is_told_what_it_lacks(wrong: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=f"^{error}"):
        replace(SOUND, **wrong)


def test_a_chunk_policy_needs_no_most() -> None:
    class Chunks:
        window = 0

        def chunk_tokens(self, seen: object) -> int:
            return 8

    assert replace(SOUND, chunk=Chunks()).choose(seen()) == (8, 0)


@pytest.mark.parametrize("value", [2.5, None, -1, 5, True, "2"])
def test_what_an_overcommit_policy_returns_is_from_0_to_its_most(value: Any) -> None:
    schedule = replace(SOUND, overcommit=Own(value))
    says = rf"Own\.overcommit returned {value!r}: must be a whole number from 0 to most = 4$"
    with pytest.raises(ValueError, match=says):
        schedule.choose(seen())


@pytest.mark.parametrize("value", [2.5, 0, -1, True, "2"])
def test_what_a_chunk_policy_returns_is_tokens_or_none(value: Any) -> None:
    schedule = replace(SOUND, chunk=Own(value))
    says = rf"Own\.chunk_tokens returned {value!r}: must be a whole number, at least 1, or None$"
    with pytest.raises(ValueError, match=says):
        schedule.choose(seen())


def test_numpys_whole_numbers_are_taken_as_pythons() -> None:
    """So that they can be written to a run's records."""
    tokens, rollouts = replace(SOUND, chunk=Own(np.int64(64)), overcommit=Own(np.int32(4))).choose(
        seen()
    )
    assert (tokens, rollouts) == (64, 4)
    assert (type(tokens), type(rollouts)) == (int, int)
    assert replace(SOUND, chunk=Own(None)).choose(seen()) == (None, 0)

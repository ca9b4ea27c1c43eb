"""How the controllers of D choose: by the slope of the reward, and by the share of stragglers."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oppo_sim.policies import FixedOvercommit, RewardSlope, StragglerShare
from oppo_sim.policies.overcommit import OvercommitPolicy, reward_slope, straggler_share
from oppo_sim.records import StepRecord
from tests.policies.seen import seen
from tests.steps import step


def rewarded(*rewards: float, overcommit: int = 4) -> list[StepRecord]:
    """Steps with these mean rewards."""
    return [
        step(number, rewards=(reward - 1, reward + 1), overcommit=overcommit)
        for number, reward in enumerate(rewards)
    ]


def course(policy: OvercommitPolicy, rewards: Sequence[float], **changes: Any) -> list[int]:
    """D step by step, when the steps turn out to have these mean rewards."""
    steps: list[StepRecord] = []
    for number, reward in enumerate(rewards):
        chosen = policy.overcommit(seen(steps[-policy.window :] if policy.window else []))
        steps.append(step(number, rewards=(reward,) * 2, overcommit=chosen, **changes))
    return [record.overcommit for record in steps]


def test_a_fixed_overcommitment_never_moves() -> None:
    assert course(FixedOvercommit(3), [1, 2, 1, 0]) == [3, 3, 3, 3]
    assert FixedOvercommit(3).most == 3


# the reward's slope


def test_the_slope_is_the_papers_mean_of_differences() -> None:
    """s_t = 1/w * sum of R_i - R_{i-1} over the last w steps: (1 - 0.5 + 1.5) / 3."""
    assert reward_slope(seen(rewarded(9.0, 1.0, 2.0, 1.5, 3.0)), over=3) == pytest.approx(2 / 3)


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=20), st.integers(1, 19))
def test_the_slope_telescopes(rewards: list[float], over: int) -> None:
    """Also where the window is longer than the run so far: then there is no slope yet."""
    slope = reward_slope(seen(rewarded(*rewards)), over)
    if over >= len(rewards):
        assert slope is None
    else:
        assert slope == pytest.approx(np.diff(rewards)[-over:].mean(), abs=1e-9)


def test_the_constant_rule_goes_up_by_one_and_down_by_one() -> None:
    """w = 1: each step looks at the last difference; a level reward is not a rising one."""
    policy = RewardSlope(start=4, over=1)
    assert course(policy, [1, 2, 3, 2, 2, 5, 6]) == [4, 4, 5, 6, 5, 4, 5]


def test_the_constant_rule_with_other_increments_and_bounds() -> None:
    policy = RewardSlope(start=4, least=2, most=8, over=1, up=3, down=2)
    assert course(policy, [1, 2, 3, 4, 0, -1, -2, -3, -4]) == [4, 4, 7, 8, 8, 6, 4, 2, 2]


def test_the_proportional_rule_moves_by_a_quarter_and_by_one_at_least() -> None:
    """max(1, D // 4): 9 + 2 = 11, 11 + 2 = 13, 13 + 3 = 16, at most 17; then 17 - 4, 13 - 3, ..."""
    policy = RewardSlope(start=9, most=17, over=1, step_rule="proportional")
    rising, falling = [1, 2, 3, 4, 5, 6], [5, 4, 3, 2, 1, 0, -1, -2, -3, -4, -5, -6, -7]
    ups = [9, 9, 11, 13, 16, 17, 17]
    downs = [13, 10, 8, 6, 5, 4, 3, 2, 1, 0, 0, 0]
    assert course(policy, rising + falling) == ups + downs


def test_at_convergence_overcommitment_switches_itself_off() -> None:
    assert course(RewardSlope(start=3, over=2), [1.0] * 9) == [3, 3, 3, 2, 1, 0, 0, 0, 0]


def test_one_bad_step_is_not_yet_a_fall() -> None:
    """w = 3: from 1 to 4 the reward rose although the last step fell."""
    steps = rewarded(1, 3, 5, 4)
    assert RewardSlope(over=3).overcommit(seen(steps)) == 5
    assert RewardSlope(over=1).overcommit(seen(steps)) == 3


def test_it_declares_how_far_back_it_looks() -> None:
    """w differences need w + 1 steps."""
    assert RewardSlope(over=5).window == StragglerShare(over=5).window == 6


@given(
    rewards=st.lists(st.floats(-5, 5), min_size=1, max_size=40),
    bounds=st.lists(st.integers(0, 30), min_size=3, max_size=3).map(sorted),
    rule=st.sampled_from(["constant", "proportional"]),
    over=st.integers(1, 4),
)
def test_it_stays_within_its_bounds(
    rewards: list[float], bounds: list[int], rule: str, over: int
) -> None:
    least, start, most = bounds
    policy = RewardSlope(start=start, least=least, most=most, over=over, step_rule=rule)  # type: ignore[arg-type]
    assert all(least <= chosen <= most for chosen in course(policy, rewards))


# the share of stragglers


def test_a_straggler_is_longer_than_twice_the_median_of_its_batch() -> None:
    """Medians 10 and 100: 21 and 50 are stragglers, 20 is not; 201 is one, 200 is not."""
    steps = [
        step(0, tokens=(1, 1, 1, 999)),
        step(1, tokens=(10, 10, 10, 10, 20, 21, 50)),
        step(2, tokens=(100, 100, 200, 50, 201)),
    ]
    assert straggler_share(seen(steps), over=2, long=2.0) == pytest.approx(3 / 12)


def test_it_climbs_to_the_number_of_stragglers_and_stays() -> None:
    """Two of eight are stragglers: D = 2 for gain 1, 3 for gain 1.5; one step at a time."""
    tail = (10,) * 6 + (50,) * 2
    rising = [1, 2, 3, 4, 5]
    policy = StragglerShare(start=0, over=1)
    assert course(policy, rising, tokens=tail) == [0, 1, 2, 2, 2]
    policy = StragglerShare(start=0, over=1, gain=1.5, up=2)
    assert course(policy, rising, tokens=tail) == [0, 2, 3, 3, 3]
    policy = StragglerShare(start=0, over=1, most=1)
    assert course(policy, rising, tokens=tail) == [0, 1, 1, 1, 1]


def test_it_falls_when_the_tail_is_gone_or_training_converges() -> None:
    even, tail = (10,) * 8, (10,) * 6 + (50,) * 2
    rising, level = [1, 2, 3, 4, 5, 6], [1.0] * 6
    assert course(StragglerShare(start=3, over=1), rising, tokens=even) == [3, 2, 1, 0, 0, 0]
    assert course(StragglerShare(start=2, over=1), level, tokens=tail) == [2, 2, 1, 0, 0, 0]
    policy = StragglerShare(start=6, over=1, least=3, down=2)
    assert course(policy, rising, tokens=even) == [6, 4, 3, 3, 3, 3]


# errors


@pytest.mark.parametrize("kind", [RewardSlope, StragglerShare])
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"least": -1}, r"overcommit\.least = -1: must be at least 0"),
        ({"least": 5}, r"overcommit\.start = 4: must be at least 5"),
        ({"most": 3}, r"overcommit\.start = 4: must be at most overcommit\.most = 3"),
        ({"least": 3, "most": 2}, r"overcommit\.most = 2: must be at least 3"),
        ({"start": 4.5}, r"overcommit\.start = 4\.5: must be a whole number"),
        ({"over": 0}, r"overcommit\.over = 0: must be at least 1"),
        ({"up": 0}, r"overcommit\.up = 0: must be at least 1"),
        ({"down": 0}, r"overcommit\.down = 0: must be at least 1"),
    ],
)
def test_an_error_names_field_value_and_limit(
    kind: type[RewardSlope | StragglerShare], wrong: dict[str, object], error: str
) -> None:
    with pytest.raises(ValueError, match=error):
        kind(**wrong)  # type: ignore[arg-type]


def test_errors_of_one_kind_only() -> None:
    with pytest.raises(ValueError, match=r"overcommit = -1: must be at least 0"):
        FixedOvercommit(-1)
    with pytest.raises(
        ValueError, match=r"step_rule = 'linear': must be one of 'constant', 'proportional'"
    ):
        RewardSlope(step_rule="linear")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"overcommit\.gain = nan: must be a finite number"):
        StragglerShare(gain=nan)
    with pytest.raises(ValueError, match=r"overcommit\.long = 0: must be above 0"):
        StragglerShare(long=0)

"""Reward curves: the law that levels off, points, and those of the paper."""

import math

import pytest

from oppo_sim.workload import (
    RewardCurve,
    RewardPoints,
    reward_curve,
    reward_curves,
    update_worth,
)


def test_a_curve_starts_rises_and_levels_off() -> None:
    curve = RewardCurve(start=1, plateau=4, tau_steps=200, noise=0.5)
    assert curve.mean(0) == 1
    assert curve.mean(200) == pytest.approx(1 + 3 * (1 - 1 / math.e))
    assert curve.mean(10**6) == pytest.approx(4)
    means = [curve.mean(version) for version in range(0, 2000, 10)]
    assert means == sorted(means)


def test_a_curve_may_fall() -> None:
    assert RewardCurve(start=1, plateau=0, tau_steps=1, noise=0).mean(50) == pytest.approx(0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"start": math.nan}, "start must be a finite number, not nan"),
        ({"plateau": math.inf}, "plateau must be a finite number, not inf"),
        ({"tau_steps": 0}, "tau_steps must be a finite number > 0, not 0"),
        ({"tau_steps": -5}, "tau_steps must be a finite number > 0, not -5"),
        ({"noise": -0.1}, "noise must be a finite number >= 0, not -0.1"),
        ({"noise": "loud"}, "noise must be a finite number >= 0, not 'loud'"),
    ],
)
def test_a_curve_refuses_bad_numbers(change: dict[str, float], message: str) -> None:
    numbers = {"start": 0.0, "plateau": 1.0, "tau_steps": 200.0, "noise": 0.1} | change
    with pytest.raises(ValueError, match=message):
        RewardCurve(**numbers)


def test_points_are_joined_by_straight_lines_and_held_at_the_ends() -> None:
    curve = RewardPoints(((10, 0.7), (30, 0.66), (200, 0.82)), noise=0.1)
    assert [curve.mean(step) for step in (0, 10, 30, 200, 999)] == [0.7, 0.7, 0.66, 0.82, 0.82]
    assert curve.mean(20) == pytest.approx(0.68)
    assert curve.mean(115) == pytest.approx(0.74)
    assert curve.mean(20.5) == pytest.approx(0.679)
    assert RewardPoints(((5, 2.0),), noise=0).mean(7) == 2.0


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ((), "at least one"),
        (((0, 1.0), (0, 2.0)), "step 0 must come before 0, or only once"),
        (((9, 1.0), (3, 2.0)), "step 3 must come before 9"),
        (((-1, 1.0),), r"points\[0\]\[0\], a step, must be a finite number >= 0, not -1"),
        (((0, 1.0), (1, math.nan)), r"points\[1\]\[1\], a reward, must be a finite number"),
    ],
)
def test_points_out_of_order_or_not_finite_are_refused(
    points: tuple[tuple[float, float], ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        RewardPoints(points, noise=0.0)


def test_the_papers_curves_pass_through_its_points() -> None:
    """R1 and R2 of arXiv 2509.25762, from public reading notes."""
    chat, maths = reward_curve("stack-exchange", 1.0), reward_curve("gsm8k", 0.4)
    assert [chat.mean(step) for step in (150, 600)] == [2.0, 4.1]
    assert max(chat.mean(step) for step in range(2000)) > 4.17
    assert maths.mean(0) == 0.70
    assert min(maths.mean(step) for step in range(201)) == 0.66
    assert maths.mean(200) == 0.82
    assert (chat.noise, maths.noise) == (1.0, 0.4)
    assert all("arXiv 2509.25762" in p.source or "assumed" in p.source for p in reward_curves())


def test_an_unknown_curve_names_the_nearest() -> None:
    with pytest.raises(ValueError, match="'gsm8'; did you mean 'gsm8k'"):
        reward_curve("gsm8", 0.0)


def test_stale_updates_are_worth_less() -> None:
    assert update_worth(0.0, 5.0) == 1.0
    assert update_worth(0.25, 0.0) == 1.0
    assert update_worth(0.25, 4.0) == 0.5

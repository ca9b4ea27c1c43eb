"""The saturating reward curve."""

import math

import pytest

from oppo_sim.workload import RewardCurve


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

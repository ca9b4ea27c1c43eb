"""Laws of stage times: what is recovered, what is said to be unknown, what is held out."""

import numpy as np
import pytest

from oppo_sim.calibration.laws import Array, Law, Term, constant, fit_law

ROWS, FITTED = 200, 80


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def fit(seconds: Array, *terms: Term, fitted: int = FITTED) -> Law:
    return fit_law(seconds, [constant(len(seconds)), *terms], fitted, seed=0)


def test_exact_times_give_the_exact_law(rng: np.random.Generator) -> None:
    mean, longest = rng.uniform(100, 300, ROWS), rng.uniform(200, 500, ROWS)
    law = fit(3 + 0.1 * mean + 0.02 * longest, Term("mean", mean), Term("longest", longest))
    assert law.constant == pytest.approx(3, rel=1e-4)
    assert law.value("mean") == pytest.approx(0.1, rel=1e-5)
    assert law.value("longest") == pytest.approx(0.02, rel=1e-4)
    assert law.held_out.median.value < 1e-6
    assert (law.fitted, law.held_out.rows) == (FITTED, ROWS - FITTED)
    assert law.doubts == ()


def test_noise_is_in_the_interval_and_outliers_hardly_matter(rng: np.random.Generator) -> None:
    mean = rng.uniform(100, 300, ROWS)
    seconds = (3 + 0.1 * mean) * rng.normal(1, 0.02, ROWS)
    seconds[rng.choice(ROWS, 10, replace=False)] *= 4
    law = fit(seconds, Term("mean", mean))
    _, slope = law.estimates
    assert slope.value == pytest.approx(0.1, rel=0.05)
    assert slope.low < 0.1 < slope.high
    # the median of |normal| is 0.6745 standard deviations
    assert law.held_out.median.value == pytest.approx(0.6745 * 0.02, rel=0.35)


def test_what_is_held_out_takes_no_part_in_the_fit(rng: np.random.Generator) -> None:
    mean = rng.uniform(100, 300, ROWS)
    seconds = (3 + 0.1 * mean) * rng.normal(1, 0.02, ROWS)
    one = fit(seconds, Term("mean", mean))
    seconds[FITTED:] *= 2
    other = fit(seconds, Term("mean", mean))
    assert [e.value for e in one.estimates] == [e.value for e in other.estimates]
    assert one.doubts == other.doubts
    assert other.held_out.signed.value == pytest.approx(-0.5, abs=0.02)
    assert one == fit_law(*_same(seconds, mean), FITTED, seed=0)


def _same(seconds: Array, mean: Array) -> tuple[Array, list[Term]]:
    halved = seconds.copy()
    halved[FITTED:] /= 2
    return halved, [constant(ROWS), Term("mean", mean)]


def test_a_regressor_that_stands_still_has_no_price(rng: np.random.Generator) -> None:
    mean = rng.uniform(100, 300, ROWS)
    law = fit(3 + 0.1 * mean + 0.02 * 512, Term("mean", mean), Term("longest", np.full(ROWS, 512)))
    assert law.value("longest") == 0
    assert law.constant == pytest.approx(3 + 0.02 * 512, rel=1e-4)
    (doubt,) = law.doubts
    assert doubt.startswith("longest: hardly varies in the fitted rows (512 to 512)")


def test_a_price_that_may_as_well_be_nothing_is_left_out(rng: np.random.Generator) -> None:
    tokens = rng.uniform(100, 300, ROWS)
    law = fit(rng.normal(20, 0.5, ROWS), Term("tokens", tokens))
    assert law.value("tokens") == 0
    assert law.constant == pytest.approx(20, rel=0.02)
    assert "may as well be 0, and is left out" in law.doubts[0]


def test_terms_that_rise_together_are_named(rng: np.random.Generator) -> None:
    """Their condition number, by numpy's own singular values of columns of length 1."""
    mean = rng.uniform(100, 300, ROWS)
    longest = 2 * mean * rng.normal(1, 0.01, ROWS)
    law = fit(0.1 * mean + 0.02 * longest + 3, Term("mean", mean), Term("longest", longest))
    table = np.column_stack([np.ones(ROWS), mean, longest])[:FITTED]
    s = np.linalg.svd(table / np.linalg.norm(table, axis=0), compute_uv=False)
    assert s[0] / s[-1] > 30
    assert any(f"condition number {s[0] / s[-1]:,.0f}" in doubt for doubt in law.doubts)


def test_the_null_model_and_the_change_from_row_to_row_by_hand() -> None:
    seconds = np.array([10.0] * 10 + [10.0, 20.0] * 5)
    law = fit(seconds, fitted=10)
    held = law.held_out
    assert law.constant == pytest.approx(10)
    assert held.null_error == pytest.approx((0 + 0.5) / 2)  # of 10 for 10, and of 10 for 20
    assert held.floor == pytest.approx(0.5)  # five times 10/20, four times 10/10
    assert held.signed.value == pytest.approx(-0.25)

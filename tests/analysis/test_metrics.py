"""The metrics of steps made by hand, each number worked out beside it."""

import json
import tracemalloc
from dataclasses import asdict
from itertools import accumulate, repeat

import numpy as np
import pytest
from scipy import stats

from oppo_sim.analysis.intervals import Mean, of_independent, of_ratios, of_series
from oppo_sim.analysis.metrics import Metrics, exposed, summarise
from tests.steps import step


def test_the_stages_of_a_step_add_up_to_it() -> None:
    assert exposed(step()) == (4, 2, 1, 2, 1)


def test_what_was_over_before_the_step_began_is_not_in_it() -> None:
    """One step off: the batch was taken and scored while the one before trained."""
    record = step(start_s=10.0, taken_s=5.0, scored_s=8.0, train_start_s=10.0, train_end_s=18.0)
    assert exposed(record) == (0, 0, 0, 8, 2)


def test_step_times_and_stages() -> None:
    metrics = summarise([step(0, 0.0), step(1, 10.0, end_s=24.0), step(2, 24.0, end_s=34.0)])
    assert metrics.steps == 3
    assert metrics.mean_step_s == pytest.approx((10 + 14 + 10) / 3)
    assert (metrics.p50_step_s, metrics.p95_step_s) == (10, pytest.approx(13.6))
    stages = {"generation": 4, "scoring": 2, "waiting": 1, "training": 2, "sync": (1 + 5 + 1) / 3}
    assert metrics.stages_s == pytest.approx(stages)
    assert sum(metrics.stages_s.values()) == pytest.approx(metrics.mean_step_s)


def test_utilisation_is_busy_over_wall_and_counts_idle_devices() -> None:
    metrics = summarise([step(0), step(1, 10.0)], ["gpu0", "gpu1", "gpu2"])
    assert metrics.utilisation == pytest.approx({"gpu0": 0.6, "gpu1": 0.3, "gpu2": 0.0})
    assert metrics.mean_utilisation == pytest.approx(0.3)


def test_hidden_scoring_is_a_share_of_scorer_seconds() -> None:
    metrics = summarise([step(0), step(1, 10.0, score_s=5.0, hidden_score_s=5.0)])
    assert metrics.hidden_score_share == pytest.approx(6 / 8)
    assert metrics.score_s == 4
    assert summarise([step(score_s=0.0, hidden_score_s=0.0)]).hidden_score_share is None


def test_lateness_is_counted_by_rollout() -> None:
    metrics = summarise(
        [
            step(0, staleness=(0, 1), deferrals=(0, 1), stale_tokens=12),
            step(1, 10.0, staleness=(0, 2), deferrals=(0, 3), stale_tokens=20),
        ]
    )
    assert metrics.staleness == {0: 2, 1: 1, 2: 1}
    assert metrics.deferrals == {0: 2, 1: 1, 3: 1}
    assert metrics.stale_token_share == pytest.approx(32 / 80)


def test_lengths_of_trained_and_admitted() -> None:
    """Five rollouts of 10, 20, 30, 40, 50 tokens are admitted; 10, 30, 10, 30 were trained."""
    metrics = summarise(
        [step(0), step(1, 10.0)], lengths=lambda rollouts: [10 * (r + 1) for r in rollouts]
    )
    assert metrics.trained_tokens_mean == 20
    assert metrics.admitted_tokens_mean == 30
    assert summarise([step()]).admitted_tokens_mean is None


def test_waste_is_a_share_of_what_was_decoded() -> None:
    """40 trained + 10 wasted + 20 carried = 70; then 40 + 0 + (5 - 20) = 25."""
    metrics = summarise(
        [
            step(0, wasted_tokens=10, reprefilled_tokens=19, carried_tokens=20),
            step(1, 10.0, carried_tokens=5),
        ]
    )
    assert metrics.decoded_tokens == pytest.approx((70 + 25) / 2)
    assert (metrics.wasted_tokens, metrics.reprefilled_tokens) == (5, 9.5)
    assert metrics.wasted_share == pytest.approx(10 / 95)
    assert metrics.reprefilled_share == pytest.approx(19 / 95)


def test_what_the_policies_chose() -> None:
    metrics = summarise(
        [
            step(0, overcommit=4, chunk_tokens=512, kv_used=0.5),
            step(1, 10.0, overcommit=6, chunk_tokens=128, kv_peak_tokens=300),
            step(2, 20.0, overcommit=4, chunk_tokens=None),
        ]
    )
    assert metrics.overcommit == {4: 2, 6: 1}
    assert metrics.mean_overcommit == pytest.approx(14 / 3)
    assert metrics.chunk_tokens == {"128": 1, "512": 1, "whole": 1}
    assert list(metrics.chunk_tokens) == ["128", "512", "whole"]
    assert (metrics.kv_peak_tokens, metrics.kv_used_max) == (300, 0.5)
    assert metrics.reward_mean == 1.5


def test_warm_up_is_left_out_of_everything() -> None:
    slow = step(0, wasted_tokens=7, staleness=(9, 9), end_s=100.0, carried_tokens=5)
    late = [step(1, 100.0), step(2, 110.0)]
    lengths = range(100).__getitem__
    warm = summarise([slow, *late], warmup=1, lengths=lambda r: map(lengths, r))
    assert warm.mean_step_s == 10
    assert warm.staleness == {0: 4}
    assert warm.decoded_tokens == 40
    assert warm.admitted_tokens_mean == pytest.approx((3 + 4 + 5 + 6) / 4)  # ids 3 to 6
    with pytest.raises(ValueError, match="no steps to summarise after 3 steps of warm-up"):
        summarise([slow, *late], warmup=3)


def test_metrics_survive_json() -> None:
    metrics = summarise([step(0, staleness=(0, 12)), step(1, 10.0)], ["gpu0"])
    row = json.loads(json.dumps(metrics.as_dict(), allow_nan=False))
    assert Metrics.from_dict(row) == metrics
    assert asdict(Metrics.from_dict(row)) == asdict(metrics)


def test_a_long_run_is_summarised_in_flat_memory() -> None:
    """One float per step is all that may stay: 8 bytes, and what the array reserves ahead."""
    steps = 5_000
    tracemalloc.start()
    metrics = summarise(step(n, 10.0 * n) for n in range(steps))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert metrics.steps == steps
    assert peak < 100 * steps


def test_the_interval_of_independent_values_is_students() -> None:
    values = [1.81, 1.79, 1.84, 1.80, 1.77]
    low, high = stats.t.interval(0.95, 4, loc=np.mean(values), scale=stats.sem(values))
    assert of_independent(values) == pytest.approx((np.mean(values), low, high))
    assert of_independent([2.0]) == (2.0, None, None)


def test_the_interval_of_ratios_is_students_on_their_logarithms() -> None:
    """The geometric mean of 1, 2 and 4 is 2; no bound is negative where a plain one would be."""
    ratios = [1.0, 2.0, 4.0]
    low, high = np.exp(
        stats.t.interval(0.95, 2, loc=np.log(ratios).mean(), scale=stats.sem(np.log(ratios)))
    )
    assert of_ratios(ratios) == pytest.approx((2.0, low, high))
    assert of_independent(ratios).low < 0 < low  # type: ignore[operator]
    assert of_ratios([0.25]) == pytest.approx((0.25, None, None))


def test_inverse_ratios_have_the_inverse_interval() -> None:
    mean, low, high = of_ratios([1.5, 1.7, 1.9])
    inverse = of_ratios([1 / 1.5, 1 / 1.7, 1 / 1.9])
    assert inverse == pytest.approx((1 / mean, 1 / high, 1 / low))  # type: ignore[operator]


def test_an_interval_includes_its_bounds_and_no_interval_includes_nothing() -> None:
    assert Mean(1.1, 1.0, 1.2).includes(1)
    assert not Mean(1.1, 1.05, 1.15).includes(1)
    assert not Mean(1.0, None, None).includes(1)


def test_batch_means_by_hand() -> None:
    """41 values make 4 stretches of 10; the first one only enters the mean."""
    values = [100.0, *[1.0] * 10, *[2.0] * 10, *[3.0] * 10, *[4.0] * 10]
    mean, low, high = of_series(values)
    half = stats.t.ppf(0.975, 3) * np.std([1, 2, 3, 4], ddof=1) / 2
    assert mean == pytest.approx(200 / 41)
    assert (low, high) == (pytest.approx(mean - half), pytest.approx(mean + half))
    assert of_series(values[:39])[1:] == (None, None)


def test_batch_means_cover_an_autocorrelated_mean_where_independence_would_not() -> None:
    """An AR(1) with coefficient 0.8 has a mean that varies three times as much as it looks."""
    draws = np.random.default_rng(0)
    covered = {"batch means": 0, "as if independent": 0}
    for _ in range(300):
        noise = draws.normal(size=1_000).tolist()
        series = list(accumulate(noise, lambda now, new: 0.8 * now + new))
        for name, interval in (
            ("batch means", of_series(series)),
            ("as if independent", of_independent(series)),
        ):
            covered[name] += interval.low < 0 < interval.high
    assert covered["batch means"] > 0.88 * 300
    assert covered["as if independent"] < 0.65 * 300


def test_a_constant_series_has_no_width() -> None:
    assert of_series(list(repeat(2.5, 100))) == (2.5, 2.5, 2.5)

"""The value of each kind of row, against comparisons written by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oppo_sim.analysis import measures
from oppo_sim.analysis.compare import Comparison, Standing
from oppo_sim.analysis.fits import Fit
from oppo_sim.analysis.intervals import Mean
from oppo_sim.analysis.metrics import Metrics, summarise
from oppo_sim.analysis.paper import PaperRow, paper_rows
from oppo_sim.analysis.spent import Spent
from oppo_sim.analysis.time_to_reward import RewardRun
from oppo_sim.policies import CATALOG
from tests.calibration.test_rows import candidate
from tests.steps import step

HOUR = 3600.0


def metrics(step_s: float, staleness: tuple[int, ...] = (0, 0)) -> Metrics:
    """One step; two devices work 0.6 and 0.3 of its first 10 s."""
    return summarise([step(0, end_s=step_s, staleness=staleness)])


def standing(name: str, step_s: tuple[float, ...], first_s: tuple[float, ...]) -> Standing:
    """One of several schedules; its reward rises by 0.1 a step, its steps take an hour / step_s."""
    return Standing(
        schedule=replace(CATALOG["oppo"], name=name),
        metrics=tuple([metrics(s, (0, 1, 1, 3)) for s in step_s]),
        speedups=tuple([f / s for f, s in zip(first_s, step_s, strict=True)]),
        rewards=tuple(
            [
                RewardRun([n / 10 for n in range(60)], [s * (n + 1) for n in range(60)])
                for s in step_s
            ]
        ),
        spent=tuple([Spent(0.4, 0.2, 0.1, 0.3) for _ in step_s]),
    )


def comparison(scenario: str, *step_s: tuple[str, tuple[float, ...]]) -> Comparison:
    first_s = step_s[0][1]
    return Comparison(
        scenario=scenario,
        seeds=tuple(range(len(first_s))),
        steps=60,
        standings=tuple([standing(name, own, first_s) for name, own in step_s]),
        trains_on_actors=True,
    )


def row(measure: str, at: str = "", schedule: str = "oppo") -> PaperRow:
    return PaperRow(
        id="X",
        quantity="",
        measure=measure,
        scenario="s",
        baseline="trl",
        schedule=schedule,
        at=at,
        paper=None,
        role="assumed",
        null="",
        source="",
    )


COUNTS = candidate(decode_counts=0.5, wait_counts=0.25, values={})
FITS = {"chat": Fit("chat", (COUNTS,))}
HERE = comparison("s", ("trl", (40.0, 40.0)), ("oppo", (20.0, 20.0)))
THERE = comparison("elsewhere", ("trl", (100.0, 100.0)), ("oppo", (50.0, 50.0)))


def value(of: PaperRow, *found: Comparison, swept: tuple[Comparison, ...] = ()) -> Mean | None:
    (outcome,) = measures.outcomes([of], found, swept, FITS)
    return outcome.simulated


def test_a_speed_up_here_or_over_a_baseline_elsewhere() -> None:
    assert value(row("speedup"), HERE, THERE) == pytest.approx((2.0, 2.0, 2.0))
    assert value(row("speedup", at="elsewhere"), HERE, THERE) == pytest.approx((5.0, 5.0, 5.0))


def test_minutes_to_a_reward_are_a_ratio_and_unknown_where_a_run_ends_first() -> None:
    assert value(row("minutes", at="3"), HERE) == pytest.approx((2.0, 2.0, 2.0))
    assert value(row("minutes", at="5.5"), HERE) is None  # the mean of the last 20 is 4.95


def test_devices_lateness_and_reward() -> None:
    assert value(row("utilisation"), HERE) == pytest.approx((0.5 * 0.4 + 0.25 * 0.2 + 0.4,) * 3)
    late = [value(row("late", at=at), HERE) for at in ("0", "1", "2")]
    assert [found and found.mean for found in late] == [0.25, 0.5, 0.25]
    assert value(row("reward", at="30"), HERE) == pytest.approx((2.95,) * 3)  # steps 20 to 39
    assert value(row("reward", at="70"), HERE) is None


def test_the_fastest_chunk_with_those_that_are_level() -> None:
    step_s = [60.0, 50.0, 40.0, 40.1, 45.0, 50.0, 60.0, 70.0]
    chunks = [(f"c{n}", (s, s * 1.001)) for n, s in zip(measures.CHUNKS, step_s, strict=True)]
    clear = comparison("s", *chunks)
    assert value(row("chunk"), swept=(clear,)) == Mean(200, 200, 200)
    chunks[3] = ("c350", (39.0, 41.5))  # slower on one seed, faster on the other
    level = comparison("s", *chunks)
    assert value(row("chunk"), swept=(level,)) == Mean(200, 200, 350)


def test_the_shipped_rows_ask_for_what_they_need() -> None:
    rows = paper_rows()
    pairs = {scenario.name: [s.name for s in own] for scenario, own in measures.pairs(rows, {})}
    others = ["areal", "oppo-d4", "oppo-d8"]
    assert pairs["stackexchange-7b"] == ["trl", "intra", "inter", "oppo", *others]
    assert pairs["two-node-a100"] == pairs["two-node-a100-gather"] == ["trl", "oppo"]
    sweeps = measures.sweeps(rows, {})
    assert [len(schedules) for _, schedules in sweeps] == [len(measures.CHUNKS)] * 2
    assert sweeps[0][1][0].name == "intra-chunk-50"
    assert measures.runs(sweeps, range(2)) == 2 * 2 * len(measures.CHUNKS)

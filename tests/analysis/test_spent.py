"""What devices do with their time, by hand, and against the busy seconds of the records."""

from __future__ import annotations

import pytest

from oppo_sim.analysis.compare import compare
from oppo_sim.analysis.spent import Spending, Spent
from oppo_sim.config import load_scenario
from oppo_sim.engine import Lane
from oppo_sim.engine.contract import Done, Finished, Generate, Paused, Plan, Score, Take, Train

A, B = Lane("a", "actor", ("g0",)), Lane("b", "actor", ("g1",))
SCORER, TRAINER = Lane("s", "scorer", ("g2",)), Lane("t", "trainer", ("g0", "g1"))


def test_a_lane_out_of_rollouts_waits_until_the_batch_is_complete() -> None:
    spending = Spending([A, B, SCORER, TRAINER])
    for entry in (
        Plan(0, None, 0),
        Generate("a", ((0, 0),), 100, None),
        Generate("b", ((1, 0),), 100, None),
        Finished(4.0, "a", 0, 4, "stop"),  # a decodes 4 s, then waits 6 s for b
        Finished(10.0, "b", 1, 10, "stop"),
        Take((0, 1)),
        Done(13.0, "s", Score("s", ()), 10.0),  # nobody waits for the batch any more
        Done(18.0, "t", Train(("t",), (0, 1), 0), 13.0),  # on two devices
    ):
        spending(entry)
    whole = 3 * 20.0
    assert spending.spent(20.0) == Spent((4 + 10) / whole, 6 / whole, 3 / whole, 10 / whole)


def test_what_is_carried_decodes_on_while_the_scorer_works_and_a_pause_ends_it() -> None:
    spending = Spending([A, SCORER, TRAINER])
    for entry in (
        Plan(0, None, 1),
        Generate("a", ((0, 0), (1, 0)), 100, None),
        Finished(4.0, "a", 0, 4, "stop"),
        Take((0,)),
        Done(6.0, "s", Score("s", ()), 4.0),
        Paused(7.0, "a", ((1, 7),), True, "asked"),
    ):
        spending(entry)
    spent = spending.spent(10.0)
    assert (spent.decode, spent.wait) == (7 / 30, 0.0)


def test_utilisation_counts_decoding_and_waiting_in_part() -> None:
    assert Spent(0.4, 0.2, 0.1, 0.3).counted(0.5, 0.25) == pytest.approx(0.2 + 0.05 + 0.4)


def test_it_is_known_where_actors_and_scorers_have_their_own_devices() -> None:
    assert Spending.is_known([A, SCORER, TRAINER])
    assert not Spending.is_known([A, Lane("s", "scorer", ("g0",)), TRAINER])


def test_what_is_spent_on_tasks_is_what_devices_are_busy() -> None:
    """Nothing of decoding, scoring and training overlaps on a device here (I2)."""
    tiny = load_scenario("tiny", {"steps": 5})
    schedules = [tiny.schedule(name) for name in ("trl", "intra", "inter", "oppo")]
    for standing in compare(tiny, schedules, (0, 1), jobs=1).standings:
        for spent, metrics in zip(standing.spent, standing.metrics, strict=True):
            assert spent is not None
            busy = spent.decode + spent.score + spent.train
            assert busy == pytest.approx(metrics.mean_utilisation, rel=1e-9)
            assert busy + spent.wait <= 1
    free = {"decode_stretch": 1.0, "score_stretch": 1.0, "switch_s": 0}
    keys = {"cluster.placement": "colocated", "cluster.contention": free}
    shared = load_scenario("tiny", {"steps": 2, **keys})
    assert compare(shared, schedules[:2], (0,), jobs=1).standings[0].spent == (None,)

"""Weighted busy seconds, by hand."""

from __future__ import annotations

from oppo_sim.analysis.compare import compare
from oppo_sim.analysis.weighted import Weighted
from oppo_sim.config import load_scenario
from oppo_sim.engine import Lane
from oppo_sim.engine.contract import Done, Finished, Generate, Paused, Plan, Score, Train


def test_a_decoding_lane_counts_by_what_still_runs() -> None:
    weighted = Weighted(
        [Lane("a", "actor", ("g0",)), Lane("s", "scorer", ("g1",)), Lane("t", "trainer", ("g0",))]
    )
    for entry in (
        Plan(0, None, 0),
        Generate("a", ((0, 0), (1, 0)), 100, None),
        Finished(4.0, "a", 0, 4, "stop"),  # two of two for 4 s
        Finished(10.0, "a", 1, 10, "stop"),  # one of two for 6 s
        Done(12.0, "s", Score("s", ()), 10.5),
        Done(17.0, "t", Train(("t",), (0, 1), 0), 12.0),
    ):
        weighted(entry)
    assert weighted.busy_s == {"g0": 4.0 + 3.0 + 5.0, "g1": 1.5}


def test_the_last_step_counts_to_its_end_and_a_pause_takes_rollouts_out() -> None:
    weighted = Weighted([Lane("a", "actor", ("g0", "g1")), Lane("s", "scorer", ("g2",))])
    for entry in (
        Plan(0, None, 0),
        Generate("a", ((0, 0), (1, 0), (2, 0), (3, 0)), 100, None),
        Paused(8.0, "a", ((2, 8), (3, 8)), True, "asked"),  # four of four for 8 s
        Plan(1, None, 0),  # two of two from now on
        Finished(10.0, "a", 0, 10, "stop"),  # for 2 s
    ):
        weighted(entry)
    assert weighted.share(14.0) == (2 * (8.0 + 2.0 + 4.0 / 2)) / (3 * 14.0)
    assert weighted.busy_s["g2"] == 0.0


def test_it_is_known_where_actors_and_scorers_have_their_own_devices() -> None:
    actor, trainer = Lane("a", "actor", ("g0",)), Lane("t", "trainer", ("g0", "g1"))
    assert Weighted.is_known([actor, Lane("s", "scorer", ("g1",)), trainer])
    assert not Weighted.is_known([actor, Lane("s", "scorer", ("g0",)), trainer])


def test_a_device_is_never_weighted_above_what_it_is_busy() -> None:
    tiny = load_scenario("tiny", {"steps": 5})
    schedules = [tiny.schedule(name) for name in ("trl", "intra", "inter", "oppo")]
    for standing in compare(tiny, schedules, (0, 1), jobs=1).standings:
        for weighted, metrics in zip(standing.weighted, standing.metrics, strict=True):
            assert weighted is not None
            assert 0 < weighted < metrics.mean_utilisation
    free = {"decode_stretch": 1.0, "score_stretch": 1.0, "switch_s": 0}
    keys = {"cluster.placement": "colocated", "cluster.contention": free}
    shared = load_scenario("tiny", {"steps": 2, **keys})
    assert compare(shared, schedules[:2], (0,), jobs=1).standings[0].weighted == (None,)

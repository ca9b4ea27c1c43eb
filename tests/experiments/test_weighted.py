"""Weighted busy seconds, by hand."""

from __future__ import annotations

from experiments.weighted import Weighted
from oppo_sim.engine import Lane
from oppo_sim.engine.contract import Done, Finished, Generate, Plan, Score, Train


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

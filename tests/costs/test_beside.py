"""Work beside other work: how much slower, by size; by hand."""

from __future__ import annotations

import pytest

from oppo_sim.costs import Measured, Measurements, Row
from oppo_sim.simulator import SimPyMachine
from tests.simulator.hand import ACTOR, LONG, SCORER, TRAINER, hear, score, stamps, starts
from tests.simulator.lab import Work


def table() -> Measured:
    """A token takes 1 s, beside a score 2 for one row and 4 for four; 4 tokens are scored in 6 s,
    beside decoding in 9, 64 in 12, beside it in 12."""
    rows = [
        *[Row("decode", n, n * x, n, 1.0) for n in (1, 4) for x in (0, 1000)],
        Row("decode+score", 1, 10, 1, 2.0),
        Row("decode+score", 4, 40, 4, 4.0),
        Row("score", 1, 0, 4, 6.0),
        Row("score", 1, 0, 64, 12.0),
        Row("score+decode", 1, 0, 4, 9.0),
        Row("score+decode", 1, 0, 64, 12.0),
        Row("train", 1, 0, 4, 1.0),
        Row("prefill", 1, 0, 4, 1.0),
    ]
    return Measured(measurements=Measurements("mine", tuple(rows), {"grouped": "yes"}))


def told(machine: SimPyMachine) -> list[tuple[str, float]]:
    return [(name, round(at_s, 9)) for name, at_s in stamps(hear(machine, 2))]


def test_a_ratio_goes_straight_over_the_logarithm_of_a_size() -> None:
    costs = table().by_row
    assert costs is not None
    assert costs.beside("score", "decode", 4) == 1.5
    assert costs.beside("score", "decode", 16) == 1.25, "halfway from 4 to 64"
    assert costs.beside("score", "decode", 1) == 1.5
    assert costs.beside("score", "decode", 1000) == 1.0
    assert costs.beside("score", "train", 4) is None
    stretches = {"decode_stretch": 3.0, "score_stretch": 1.25}
    stretches["decode_decode_stretch"] = 3.0  # not measured: as beside a score
    assert costs.sharing.stretches == pytest.approx(stretches)


def test_the_law_of_decoding_beside_scores_has_a_ratio_for_each_batch() -> None:
    costs = table().by_row
    assert costs is not None
    law = costs.decode_beside("score")
    assert law is not None
    tokens = [law.token_s(n, 10 * n) for n in (1, 2, 4)]
    assert tokens == pytest.approx([2.0, 2.0 + 2 / 3, 4.0]), "straight between measured batches"
    assert costs.decode_beside("train") is None


def test_what_was_measured_counts_more_than_the_contention() -> None:
    """6 s of scoring take 9 beside decoding, of which 4.5 tokens are decoded; then 5.5 are left."""
    lanes = (ACTOR, SCORER, TRAINER)
    machine = SimPyMachine(lanes, table(), Work((10,), (0,), cap=LONG))
    machine.submit(starts(0), score(7, 0, 4))
    assert told(machine) == [("Done", 9.0), ("Finished", 14.5)]


def test_halved_costs_are_halved_beside_others_too() -> None:
    lanes = (ACTOR, SCORER, TRAINER)
    machine = SimPyMachine(lanes, table().scaled(0.5), Work((10,), (0,), cap=LONG))
    machine.submit(starts(0), score(7, 0, 4))
    assert told(machine) == [("Done", 4.5), ("Finished", 7.25)]

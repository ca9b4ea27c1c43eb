"""Calls cut into padded forwards, by hand."""

from __future__ import annotations

import pytest

from oppo_sim.costs import Measured, Measurements, Row
from oppo_sim.costs.forwards import groups, micro_batches
from oppo_sim.costs.measurements import as_text, parse_measurements
from oppo_sim.simulator import SimPyMachine
from tests.simulator.hand import ACTOR, LONG, SCORER, TRAINER, hear, starts
from tests.simulator.lab import Work

SAID = {"grouped": "yes", "micro_batch": "2", "mini_batches": "1"}


def table(**said: str) -> Measured:
    """A second per 100 padded tokens that open rows, per 50 that go on; 3 s for 100 in training."""
    rows = [Row("decode", 1, 10, 1, 0.5)]
    for tokens in (50, 100, 400):
        rows.append(Row("score", 1, 0, tokens, tokens / 100))
        rows.append(Row("score", 1, 100, tokens, tokens / 50))
        rows.append(Row("train", 2, 0, tokens, 3 * tokens / 100))
    rows.append(Row("prefill", 1, 0, 100, 1.0))
    rows.append(Row("update", 1, 0, 0, 5.0))
    return Measured(measurements=Measurements("mine", tuple(rows), SAID | said))


def test_rows_of_which_half_would_be_padding_go_apart() -> None:
    assert groups([10, 100, 49, 50]) == [[1, 3], [2], [0]], "49 is less than half of 100"
    assert groups([]) == []


def test_rows_are_sorted_into_micro_batches_and_padded_to_the_longest() -> None:
    assert micro_batches([10, 100, 30, 40], 2) == [60, 200]
    assert micro_batches([10, 100, 30], 2) == [60, 100], "the last has one row"
    assert micro_batches([10, 100, 30, 40], None) == [400]
    assert micro_batches([10, 100, 30, 40], None, 2) == [80, 200], "10 and 40; 30 and 100"


def test_a_call_takes_as_long_as_its_padded_forwards() -> None:
    costs = table().by_row
    assert costs is not None
    assert costs.score_s([(0, 100), (0, 60)]) == pytest.approx(2.0), "200 padded tokens"
    assert costs.score_s([(0, 100), (0, 50), (20, 70)]) == pytest.approx(2.0 + 1.0)
    assert costs.score_s([(0, 100), (0, 40)]) == pytest.approx(1.0 + 0.5), "50 is the fewest"
    assert costs.train_s([50, 60, 100, 80]) == pytest.approx(5.0 + 3.6 + 6.0)


def test_halved_costs_are_halved() -> None:
    half = table().scaled(0.5).by_row
    assert half is not None
    assert half.train_s([50, 60, 100, 80]) == pytest.approx((5.0 + 3.6 + 6.0) / 2)
    assert half.score_s([(0, 100)]) == pytest.approx(0.5)


def test_without_the_word_sums_are_enough() -> None:
    plain = Measured(measurements=Measurements("mine", (Row("decode", 1, 10, 1, 0.5),)))
    assert plain.by_row is None


def test_a_wrong_word_is_refused() -> None:
    with pytest.raises(ValueError, match="micro_batch is 'two'; it must be a whole number"):
        table(micro_batch="two")
    with pytest.raises(ValueError, match="grouped is 'no'; it must be 'yes', or left out"):
        table(grouped="no")


def test_there_are_no_more_mini_batches_than_rows() -> None:
    assert micro_batches([10, 100], None, 999_999_999) == [10, 100]


def test_a_table_is_read_as_it_is_written() -> None:
    """With what is timed beside other work, and what has no tokens of its own."""
    rows = (
        Row("decode", 2, 10, 2, 0.5),
        Row("decode+score", 2, 10, 2, 0.75),
        Row("score+decode", 2, 10, 8, 0.25),
        Row("pause", 2, 10, 2, 0.001),
        Row("update", 1, 0, 0, 3.0),
    )
    said = dict.fromkeys(("machine", "versions", "date", "source"), 'a "quoted" word')
    written = Measurements("mine", rows, said)
    read = parse_measurements("mine", as_text(written))
    assert read == written
    assert read.provenance == said


def test_every_row_of_a_batch_reads_as_much_as_the_longest() -> None:
    """A token takes 1 s, and 1 s for each token of the longest row's context.

    10 tokens of prompt are prefilled in 1 s; then 11 and 12 s, whatever the other row holds, which
    is alone with 2 tokens in the end: 3 s.
    """
    rows = [Row("decode", n, n * x, n, 1.0 + x) for n in (1, 2) for x in (0, 1000)]
    rows += [Row(task, 1, 0, 10, 1.0) for task in ("prefill", "score", "train")]
    costs = Measured(measurements=Measurements("mine", tuple(rows), {"grouped": "yes"}))
    machine = SimPyMachine((ACTOR, SCORER, TRAINER), costs, Work((3, 2), (0, 10), cap=LONG))
    machine.submit(starts(0, 1))
    told = [(event.rollout, round(event.at_s, 6)) for event in hear(machine, 2)]  # type: ignore[union-attr]
    assert told == [(1, 24.0), (0, 27.0)]

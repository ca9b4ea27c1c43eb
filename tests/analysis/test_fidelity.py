"""How wrong a simulation was, by hand: two schedules, two repeats, two steps that count."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import pytest

from oppo_sim.analysis.fidelity import Fidelity, Pair
from oppo_sim.analysis.fidelity_grades import grade
from oppo_sim.analysis.fidelity_page import page
from oppo_sim.analysis.fidelity_trace import write_side_by_side
from oppo_sim.records import Span, StepRecord
from oppo_sim.runs import Header, Run
from tests.analysis.by_hand import by_hand
from tests.analysis.test_trace import load
from tests.steps import step


def run(*seconds: float, spans: Sequence[Span] = ()) -> Run:
    """Steps of that length: two fifths generation, a fifth each scoring and training ..."""
    steps: list[StepRecord] = []
    for number, end_s in enumerate(accumulate(seconds)):
        start_s, length = end_s - seconds[number], seconds[number]
        cuts = {"taken_s": 0.4, "scored_s": 0.6, "train_start_s": 0.7, "train_end_s": 0.9}
        at = {name: start_s + share * length for name, share in cuts.items()}
        steps.append(step(number, start_s, **at, end_s=end_s))
    header = Header(scenario={}, schedule={}, seed=0, steps=len(steps), spans=True)
    return Run(header, tuple(steps), tuple(spans))


def decode(number: int, seconds: float) -> Span:
    return Span("actor0", ("gpu0",), "decode", 100.0, 100.0 + seconds, number, 1, 1)


REAL, SIMULATED = (
    [decode(0, 50.0), decode(1, 3.0), decode(2, 5.0)],
    [decode(0, 1.0), decode(1, 4.0), decode(2, 5.0)],
)
FOUND = Fidelity(
    pairs=[
        Pair("a", 0, run(99, 10, 20, spans=REAL), run(1, 11, 18, spans=SIMULATED)),
        Pair("b", 0, run(99, 5, 10), run(1, 5, 12)),
        Pair("b", 1, run(99, 6, 10), run(1, 5, 12)),
        Pair("a", 1, run(99, 12, 22, spans=REAL), run(1, 11, 18, spans=SIMULATED)),
    ],
    drawn={"a": [28.0, 36.0]},
    law="lognormal",
)


def test_errors_of_steps() -> None:
    """a: +10, -10, -8.3, -18.2 %; b: 0, +20, -16.7, +20 %."""
    assert [step.error for step in FOUND.of("a")] == pytest.approx(
        [0.1, -0.1, 11 / 12 - 1, 18 / 22 - 1]
    )
    assert FOUND.median_abs_error == pytest.approx((0.1 + 1 / 6) / 2)
    assert FOUND.worst_abs_error == pytest.approx((0.2 + 1 / 6) / 2), "b's median is the larger"


def test_the_first_steps_count_nowhere() -> None:
    assert {step.step for step in FOUND.steps} == {1, 2}
    assert FOUND.kinds("a")["decode"] == (4.0, 4.5), "(3 + 5) / 2 and (4 + 5) / 2 a step"
    assert FOUND.kinds("a")["score"].error is None


def test_stages_are_means_of_the_counted_steps() -> None:
    stages = FOUND.stages("b")
    assert stages["generation"] == pytest.approx((0.4 * 31 / 4, 0.4 * 34 / 4))
    assert stages["scoring"].error == pytest.approx(34 / 31 - 1)


def test_repeats_spread_by_step() -> None:
    """2 of 11, 2 of 21, 1 of 5.5 and 0 of 10; the median is between the two in the middle."""
    assert FOUND.repeat_spread == pytest.approx((2 / 21 + 2 / 11) / 2)
    one = Fidelity(pairs=[FOUND.pairs[0]])
    assert one.repeat_spread is None


def test_speedups_are_paired_by_round() -> None:
    speedup = FOUND.speedup("b")
    assert (speedup.low, speedup.high) == (30 / 15, 34 / 16)
    assert speedup.real == (30 / 15 + 34 / 16) / 2
    assert speedup.simulated == pytest.approx(29 / 17)
    assert FOUND.speedup_error == pytest.approx(1 - 29 / 17 / 2.0625)


def test_only_schedules_that_the_runs_tell_apart_are_ranked() -> None:
    assert FOUND.decided == [("a", "b")]
    assert FOUND.tau == 1.0
    wrong = Fidelity(pairs=[FOUND.pairs[0], Pair("b", 0, run(99, 5, 10), run(1, 20, 20))])
    assert wrong.tau == -1.0
    close = Fidelity(
        pairs=[
            Pair("a", 0, run(1, 10), run(1, 10)),
            Pair("a", 1, run(1, 14), run(1, 10)),
            Pair("b", 0, run(1, 9), run(1, 10)),
            Pair("b", 1, run(1, 9), run(1, 10)),
        ]
    )
    assert close.decided == [], "medians of 12 and 9 differ by 3, a's repeats by 4"
    assert close.tau is None


def test_all_of_it_as_json() -> None:
    document = json.loads(json.dumps(FOUND.as_dict()))
    assert document["pairs"] == 1
    assert document["grade"] == "E", "the speed-up is 17 % off"
    first = document["schedules"][0]
    assert first["schedule"] == "a"
    assert first["drawn"]["error"] == pytest.approx(32 / 16 - 1)
    assert first["speedup"]["error"] == 0


GOOD = {"worst_abs_error": 0.0, "speedup_error": 0.0, "tau": 1.0}


@pytest.mark.parametrize(
    ("median", "spread", "expected"),
    [
        (0.05, 0.0, "A"),
        (0.06, 0.0, "B"),
        (0.06, 0.07, "A"),  # the machine itself differs by more
        (0.09, 0.2, "C"),  # so noisy a machine excuses nothing
        (0.36, None, "F"),
    ],
)
def test_a_step_need_not_be_closer_than_its_repeats(
    median: float, spread: float | None, expected: str
) -> None:
    assert grade(median_abs_error=median, repeat_spread=spread, **GOOD) == expected


def test_the_weakest_measure_decides() -> None:
    best = {"median_abs_error": 0.0, "repeat_spread": 0.0, **GOOD}
    assert grade(**best) == "A"
    assert grade(**{**best, "worst_abs_error": 0.16}) == "C"
    assert grade(**{**best, "speedup_error": 0.16}) == "E"
    assert grade(**{**best, "tau": 0.85}) == "C"


def test_the_page_has_all_and_needs_nothing() -> None:
    text = page(FOUND, {"machine": "a <fast> one"}, ["as slow as this"])
    assert "a &lt;fast&gt; one" in text
    assert text.count("<circle") == len(FOUND.steps) + 2, "a mark for each step, a key for each"
    assert "http" not in text
    assert "as slow as this" in text


def test_two_runs_stand_side_by_side_in_one_trace(tmp_path: Path) -> None:
    folders = [("real", by_hand(tmp_path / "one")), ("simulated", by_hand(tmp_path / "two"))]
    write_side_by_side(folders, tmp_path / "trace.json")
    db = load(tmp_path / "trace.json")
    names = [name for (name,) in db.execute("select name from process order by pid")]
    assert [name.split(":")[0] for name in names] == ["real"] * 4 + ["simulated"] * 4
    assert db.execute("select count(*) from flow").fetchone() == (6,)
    twice = "select count(*), count(distinct ts) from on_thread where cat = 'train'"
    assert db.execute(twice).fetchone() == (4, 1), "a gang of two, twice, at the same time"

"""The explanation says who is faster, where the seconds went, at what price, and no more."""

from dataclasses import replace
from typing import Any

import pytest

from oppo_sim.analysis.intervals import Mean
from oppo_sim.analysis.metrics import Metrics, summarise
from oppo_sim.analysis.why import Side, Why, average_key, count, percent, plain, why
from oppo_sim.policies import CATALOG, Schedule
from tests.steps import step

BEFORE = replace(
    summarise([step()]),
    mean_step_s=100.0,
    stages_s={"generation": 50, "scoring": 20, "waiting": 0, "training": 30, "sync": 0},
    hidden_score_share=0.0,
    score_s=20.0,
    overcommit={0: 10},
    utilisation={},
)
AFTER = replace(
    BEFORE,
    mean_step_s=50.0,
    stages_s={"generation": 15, "scoring": 5, "waiting": 0, "training": 30, "sync": 0},
    hidden_score_share=0.75,
    overcommit={8: 5, 16: 5},
    steps=10,
    deferrals={0: 90, 1: 10},
    utilisation={"gpu0": 0.9, "gpu7": 0.4},
)
TWICE = Mean(2.0, 1.95, 2.05)


def explained(
    after: Metrics = AFTER,
    *,
    before: Metrics = BEFORE,
    schedule: Schedule = CATALOG["oppo"],
    speedup: Mean = TWICE,
    trains_on_actors: bool = False,
) -> Why:
    first, other = Side(CATALOG["trl"], before), Side(schedule, after)
    return why(first, other, speedup=speedup, trains_on_actors=trains_on_actors)


def text(*arguments: Any, **options: Any) -> str:
    found = explained(*arguments, **options)
    return "\n".join([found.verdict, *found.reasons])


def test_every_claim_has_its_number() -> None:
    assert explained() == Why(
        "oppo",
        "oppo: 2.00x trl (95 % interval 1.950 to 2.050), 100.0 -> 50.00 s per step.",
        (
            "Exposed generation 50.0 -> 15.0 s: with 12.0 rollouts beyond the batch (D), it is "
            "complete without its slowest responses, 10 % of the trained were carried over.",
            "Exposed scoring 20.0 -> 5.00 s: 75 % of the scoring is hidden, it runs while the "
            "batch is generated (before: 0 %).",
            "Longest stage now: training, 60 % of the step; gpu0 is busy 90 % of the time.",
        ),
    )


def test_what_is_bound_by_the_same_stage_as_before_is_not_now_bound_by_it() -> None:
    generation = {"generation": 40, "scoring": 0, "waiting": 0, "training": 10, "sync": 0}
    said = text(replace(AFTER, stages_s=generation))
    assert "Longest stage: generation, 80 % of the step" in said
    assert "training 30.0 -> 10.0 s" in said


def test_slower_is_said_by_its_number_and_one_seed_has_no_interval() -> None:
    slower = explained(BEFORE, before=AFTER, speedup=Mean(0.5, 0.49, 0.51))
    assert slower.verdict.startswith("oppo: 0.50x trl (95 % interval 0.490 to 0.510)")
    assert "2.00x trl (1 seed, so no interval)" in text(speedup=Mean(2.0, None, None))
    assert "oppo: 1.003x trl" in text(speedup=Mean(1.003, 1.002, 1.004))


def test_an_interval_that_includes_1_decides_nothing() -> None:
    undecided = explained(speedup=Mean(1.1, 0.9, 1.3))
    assert undecided == Why(
        "oppo",
        "oppo: 1.10x trl (95 % interval 0.900 to 1.300), not decided: the interval includes 1; "
        "use more seeds or steps.",
    )
    assert "not decided" not in text(speedup=Mean(1.1, 1.01, 1.2))


def test_identical_runs_are_the_same_run() -> None:
    """Chunks that nobody streams change nothing."""
    same = replace(BEFORE, chunk_tokens={"64": 1})
    said = explained(same, schedule=CATALOG["intra"], speedup=Mean(1.0, 1.0, 1.0))
    assert said == Why("intra", "intra: the same run as trl.")


# running ahead


def test_a_run_ahead_schedule_is_explained_by_running_ahead() -> None:
    """It takes the oldest, so that its batch is never complete without the slowest."""
    after = replace(AFTER, overcommit={0: 10})
    for name, ahead in (("one-step-off", 1), ("areal", 4)):
        said = text(after, schedule=CATALOG[name])
        assert (
            "Exposed generation 50.0 -> 15.0 s: generation of the next batch runs while this one "
            f"trains (ahead = {ahead})." in said
        )
        assert "slowest" not in said
        assert "carried" not in said
    said = text(after, schedule=CATALOG["pipeline-rl"])
    assert "(ahead = 2); the first to finish are taken, 10 % of the trained were carried" in said


def test_where_training_has_the_actors_devices_nothing_is_generated_meanwhile() -> None:
    after = replace(AFTER, overcommit={0: 10})
    said = text(after, schedule=CATALOG["one-step-off"], trains_on_actors=True)
    assert "runs while this one is scored; training stops it (ahead = 1)" in said


def test_staleness_beyond_one_step_is_said() -> None:
    """(1 * 1 + 2 * 2 + 3 * 1) / 8 = 1."""
    said = text(replace(AFTER, staleness={0: 4, 1: 1, 2: 2, 3: 1}))
    assert "Staleness: 1.0 steps on average, at most 3." in said
    assert "Staleness" not in text(replace(AFTER, staleness={0: 4, 1: 4}))


# work that was not done


DROPPED = replace(
    AFTER,
    wasted_tokens=800.0,
    wasted_share=0.08,
    trained_tokens_mean=157.5,
    admitted_tokens_mean=175.0,
)


def test_a_gain_from_skipped_work_is_called_that() -> None:
    sentence = (
        "It threw away 8 % of the decoded tokens and trained on responses 10 % shorter than "
        "admitted: part of the gain is skipped work."
    )
    dropping = CATALOG["pipeline-rl"]
    assert sentence in explained(DROPPED, schedule=dropping).reasons
    undecided = explained(DROPPED, schedule=dropping, speedup=Mean(1.1, 0.9, 1.3))
    assert sentence in undecided.reasons
    surplus = replace(CATALOG["oppo"], surplus="drop")
    assert sentence in explained(DROPPED, schedule=surplus).reasons
    slower = explained(DROPPED, schedule=dropping, speedup=Mean(0.9, 0.8, 0.95))
    assert any(reason.endswith("admitted: work was skipped.") for reason in slower.reasons)


def test_tokens_that_are_decoded_twice_are_waste_but_no_skipped_work() -> None:
    again = replace(CATALOG["april"], partial="nothing")
    said = explained(DROPPED, schedule=again).reasons
    assert "It threw away 8 % of the decoded tokens." in said
    assert "threw away" not in text()


# numbers as text


@pytest.mark.parametrize(
    ("value", "digits", "expected"),
    [
        (0.016, 2, "0.016"),
        (0.01649, 2, "0.016"),
        (153.2, 2, "153"),
        (12345.6, 4, "12,346"),
        (2.8, 3, "2.80"),
        (0.00002, 2, "0.000020"),
        (-38.2, 2, "-38"),
        (0.0, 2, "0"),
    ],
)
def test_numbers_have_no_exponents(value: float, digits: int, expected: str) -> None:
    assert plain(value, digits) == expected


def test_small_words() -> None:
    assert [percent(share) for share in (0, 0.004, 0.08, 1)] == ["0 %", "0.4 %", "8 %", "100 %"]
    assert [count(n, "seed") for n in (0, 1, 2)] == ["0 seeds", "1 seed", "2 seeds"]
    assert average_key({0: 1, 3: 1}) == 1.5

"""The explanation says who is faster, where the seconds went, and what bounds the step now."""

from dataclasses import replace

from oppo_sim.analysis.intervals import Mean
from oppo_sim.analysis.metrics import Metrics, summarise
from oppo_sim.analysis.why import why
from tests.steps import step

BEFORE = replace(
    summarise([step()]),
    mean_step_s=100.0,
    stages_s={"generation": 50, "scoring": 20, "waiting": 0, "training": 30, "sync": 0},
    hidden_score_share=0.0,
    score_s=20.0,
    overcommit={0: 10},
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


def text(before: Metrics, after: Metrics, mean: float, low: float, high: float) -> str:
    return why("trl", "oppo", before, after, speedup=Mean(mean, low, high))


def test_every_claim_has_its_number() -> None:
    said = text(BEFORE, AFTER, 2.0, 1.95, 2.05)
    assert "oppo is 2.00x as fast as trl (95 % interval 1.950 to 2.050): 100 -> 50 s" in said
    assert "generation 50 -> 15 s (-70%), scoring 20 -> 5 s (-75%)." in said
    assert "training 30" not in said  # it did not change
    assert "With 12 rollouts beyond the batch on average" in said
    assert "10% of the trained ones were carried over" in said
    assert "75% of the 20 s of scoring is hidden" in said
    assert "longest stage of oppo is now training (60% of the step)" in said
    assert "gpu0, works 90% of the time" in said


def test_slower_and_equal_are_said_as_such() -> None:
    assert "oppo is slower, 0.50x as fast as trl" in text(AFTER, BEFORE, 0.5, 0.49, 0.51)
    assert "oppo is as fast as trl" in text(BEFORE, BEFORE, 1.0, 1.0, 1.0)
    assert "No stage changes much." in text(BEFORE, BEFORE, 1.0, 1.0, 1.0)

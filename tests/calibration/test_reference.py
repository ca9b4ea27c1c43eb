"""Runs of the torch machine that are kept, and the table that was measured beside them.

Four schedules of `experiments/configs/real/cpu-small.toml`, the first run of each, on two cores of
an AMD EPYC on 2026-12-01; the table is of all four rounds of that validation. What changes the
simulator's error on them leaves these bands; what is within says nothing of other machines.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from oppo_sim.calibration.realruns import real_runs
from oppo_sim.cli import main

REFERENCE = Path(__file__).parents[1] / "real" / "reference"
# When they were kept: 2.2 %, 4.7 %, 5.7 %, 1.0 over 6 pairs.
MEDIAN, WORST, SPEEDUP = 0.04, 0.07, 0.08


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    from contextlib import redirect_stdout
    from io import StringIO

    out = StringIO()
    with warnings.catch_warnings(), redirect_stdout(out):
        warnings.simplefilter("ignore")
        assert main(["validate", "--from", str(REFERENCE), "--json"]) == 0
    document: dict[str, Any] = json.loads(out.getvalue())
    return document


def test_the_error_on_the_kept_runs_stays_within_its_bands(found: dict[str, Any]) -> None:
    assert found["median_abs_error"] <= MEDIAN
    assert found["worst_abs_error"] <= WORST
    assert found["speedup_error"] <= SPEEDUP
    assert (found["tau"], found["pairs"]) == (1.0, 6)


def test_the_table_is_of_the_machine_of_the_runs(found: dict[str, Any]) -> None:
    said = ("the table is of", "took up to", "policies")
    assert not [note for note in found["notes"] if any(words in note for words in said)]


def test_sequential_and_streamed_runs_train_what_the_simulator_trains() -> None:
    """Their batches do not depend on seconds; those of schedules that carry rollouts over may."""
    from oppo_sim.calibration.twin import again, replaying, twin

    table = REFERENCE / "costs.csv"
    for real in real_runs(REFERENCE):
        if real.schedule in ("trl", "intra"):
            scenario = twin(real.recorded.run.header.scenario, table, replaying(real.recorded))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                simulated = [*again(scenario, real.recorded, None)]
            assert [step.trained for step in simulated] == [
                step.trained for step in real.recorded.run.steps
            ]

"""Fitting rows: known parameters come back, unknown ones are called so, nothing held out counts."""

from __future__ import annotations

from dataclasses import replace
from math import inf, log

import numpy as np
import pytest

from oppo_sim.analysis.fits import Candidate, Fit, read, shipped_fits, written
from oppo_sim.analysis.paper import PaperRow
from oppo_sim.calibration import rows
from oppo_sim.calibration.protocol import Protocol, Stage, Tail, shipped_protocol
from oppo_sim.calibration.refit import changes
from oppo_sim.calibration.row_values import LOGARITHMIC, simulated, slopes, value
from oppo_sim.calibration.rows import solve
from oppo_sim.config import load_scenario

TRUE = {"train_mfu": 0.11, "prefill_mfu": 0.04, "decode_counts": 0.7, "wait_counts": 0.3}
TAIL = Tail("alpacaeval_alpaca-farm-ppo-human", 1024, 8, 0.3)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "STEPS", 12)
    monkeypatch.setattr(rows, "FINAL_STEPS", 12)


def made(stage: Stage, with_rows: tuple[PaperRow, ...]) -> tuple[PaperRow, ...]:
    """The rows as a machine with the true parameters would have published them."""
    runs = simulated(stage, TAIL, TRUE, with_rows, 12)
    return tuple([replace(row, paper=value(row, runs, TRUE)) for row in with_rows])


@pytest.mark.slow
def test_known_parameters_of_simulated_rows_are_recovered(quick: None) -> None:
    protocol = shipped_protocol()
    chat = protocol.stages[0]
    stage = replace(chat, fits=made(chat, chat.fits), counts=made(chat, chat.counts), holds_out=())
    found = solve(replace(protocol, stages=(stage,)), stage, TAIL, {})
    for name, true in TRUE.items():
        assert getattr(found.candidate, name) == pytest.approx(true, rel=0.05)
    assert found.candidate.accepted
    assert found.candidate.worst < 0.01
    assert max(found.unsure.values()) < rows.UNKNOWN


def test_what_no_row_speaks_of_is_called_unknown(quick: None) -> None:
    """A speed-up alone tells nothing of what counts as utilised."""
    protocol = shipped_protocol()
    chat = protocol.stages[0]
    only = tuple([row for row in chat.fits if row.id == "A2"])
    stage = replace(chat, fits=made(chat, only), counts=(), holds_out=())
    found = solve(replace(protocol, stages=(stage,)), stage, TAIL, {})
    assert found.unsure["decode_counts"] == found.unsure["wait_counts"] == inf
    assert found.unsure["train_mfu"] > rows.UNKNOWN  # training and scoring trade off


def test_slopes_are_those_of_the_simulation(quick: None) -> None:
    """Nearly: forwards of reference and critic, at prefill_mfu, count as training."""
    chat = shipped_protocol().stages[0]
    row = next(row for row in chat.fits if row.id == "U1b")
    found = slopes(row, simulated(chat, TAIL, TRUE, (row,), 12), TRUE)
    for name in TRUE:
        more = {**TRUE, name: TRUE[name] * 1.02}
        before, after = (
            log(value(row, simulated(chat, TAIL, p, (row,), 12), p)) for p in (TRUE, more)
        )
        by = log(1.02) if name in LOGARITHMIC else 0.02 * TRUE[name]
        assert found[name] == pytest.approx((after - before) / by, rel=0.3, abs=0.05)


def test_the_shipped_scenarios_have_the_numbers_of_the_shown_candidates() -> None:
    found = changes(shipped_protocol(), shipped_fits())
    for name, changed in found.items():
        assert load_scenario(name, changed).document() == load_scenario(name).document(), name


def test_every_candidate_of_the_protocol_was_tried_and_accepted_by_its_rule() -> None:
    protocol = shipped_protocol()
    for stage in protocol.stages:
        fit = shipped_fits()[stage.name]
        assert fit.accepted
        papers = {row.id: row.paper for row in stage.fits}
        for candidate in fit.candidates:
            errors = [
                abs(candidate.values[row] / paper - 1) for row, paper in papers.items() if paper
            ]
            assert candidate.worst == pytest.approx(max(errors), abs=1e-3)
            meets = candidate.worst <= protocol.accepted_within
            assert candidate.accepted == (meets and candidate.late_share <= protocol.late_share)


def candidate(**changed: object) -> Candidate:
    one = Candidate(
        lengths="table",
        max_response_tokens=1024,
        most=8,
        train_mfu=0.1,
        prefill_mfu=0.03,
        decode_counts=0.7,
        wait_counts=0.3,
        worst=0.01,
        error=0.02,
        late_share=0.1,
        accepted=True,
        values={"A1": 1.0},
    )
    return replace(one, **changed)  # type: ignore[arg-type]


def test_shown_is_the_accepted_one_nearest_to_the_medians() -> None:
    some = [candidate(most=most, values={"A1": 1.0 + most / 100}) for most in (1, 2, 9)]
    outside = candidate(most=2, accepted=False, values={"A1": 1.02})
    fit = Fit("s", (*some, outside))
    assert fit.shown is some[1]
    assert fit.median("A1") == 1.02
    low, high = np.quantile([1.01, 1.02, 1.09], (0.1, 0.9))
    assert fit.spread("A1") == (pytest.approx(low), pytest.approx(high))
    with pytest.raises(ValueError, match="s: no candidate meets its rows"):
        _ = Fit("s", (outside,)).shown


def test_a_parameter_that_accepted_candidates_disagree_on_is_not_told() -> None:
    fit = Fit("s", (candidate(train_mfu=0.1), candidate(train_mfu=0.19, prefill_mfu=0.07)))
    assert fit.untold(("train_mfu", "prefill_mfu")) == ("prefill_mfu",)  # 0.03 to 0.07
    assert "train_mfu" in shipped_fits()["chat"].untold(("train_mfu", "decode_counts"))


def test_a_fit_is_read_as_it_was_written() -> None:
    fit = Fit("s", (candidate(), candidate(most=16, prefill_mfu=None, accepted=False)))
    assert read("s", written(fit)) == fit
    with pytest.raises(ValueError, match=r"^s.csv: most = 'many': cannot be read"):
        read("s", written(fit).replace(",8,", ",many,"))


def test_a_protocol_keeps_its_stages_in_order() -> None:
    protocol: Protocol = shipped_protocol()
    assert [stage.name for stage in protocol.stages] == ["chat", "gsm8k", "opencoder"]

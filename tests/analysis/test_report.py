"""The page says what its numbers say, and shows findings only with their figures."""

import json
from pathlib import Path

import pytest

from oppo_sim.analysis.claim_figures import COLOURS, workloads
from oppo_sim.analysis.fits import registered_fit, shipped_fits
from oppo_sim.analysis.intervals import Mean
from oppo_sim.analysis.paper import Outcome, paper_rows
from oppo_sim.analysis.report import CLAIMS, read_findings, report


def page(**simulated: float) -> dict[str, str]:
    """The verdict of each claim, if these rows come out so, with narrow intervals."""
    outcomes = [
        Outcome(row=row, simulated=Mean(mean, 0.999 * mean, 1.001 * mean))
        for row in paper_rows()
        if (mean := simulated.get(row.id.replace("-", "_"))) is not None
    ]
    text = report(outcomes, shipped_fits(), registered_fit(), [], "5 seeds")
    sections = {part.split("\n", 1)[0]: part for part in text.split("\n## ")}
    return {claim.rows[0]: sections[claim.says].split("**")[1] for claim in CLAIMS}


def test_a_claim_of_numbers_agrees_where_every_row_that_was_not_fitted_is_near() -> None:
    near = {"T1a": 1.80, "T1b": 2.4, "T1c": 2.4, "T1d": 2.7}
    assert page(**near)["T1a"].startswith("Agrees: ")
    assert page(**near | {"T1d": 2.0})["T1a"] == "Agrees in part: off are T1d (-29 %)."
    assert page(**near | {"T1c": 1.0})["T1a"].startswith("Agrees: ")  # it is fitted
    assert page(C1=490, C1o=50)["C1"] == "Agrees in part: off are C1o (-90 %)."


def test_a_claim_without_numbers_is_decided_by_its_condition_and_not_by_other_rows() -> None:
    assert page(T1a=1.85, D4=1.6, D8=1.7)["D4"].startswith(
        "Holds here: stackexchange-7b: dynamic D"
    )
    assert page(T1a=1.85, D4=1.6, D8=1.9)["D4"].startswith("Does not hold here: ")
    assert page(T1a=1.85)["D4"].startswith("Not decided")
    assert page(Q1_0=0.8, Q1_1=0.19, Q1_2=0.01)["Q1-0"].startswith("Holds here: Q1: most at once")
    assert page(Q1_0=0.4, Q1_1=0.5, Q1_2=0.1)["Q1-0"].startswith("Does not hold here: ")


def test_lateness_is_shown_of_the_papers_workloads_in_colours_that_differ() -> None:
    outcomes = [Outcome(row=row, simulated=None) for row in paper_rows()]
    assert workloads(outcomes) == {
        "stackexchange-7b",
        "stackexchange-3b",
        "opencoder-3b",
        "gsm8k-7b",
    }
    assert len(set(COLOURS)) == len(COLOURS) >= 4


FINDING = {"question": "Why?", "paragraph": "So.", "name": "why", "figure": "why.png"}


def test_findings_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "why.png").write_bytes(b"")
    for name in ("b", "a"):
        (tmp_path / f"{name}.json").write_text(json.dumps({**FINDING, "question": name}))
    assert [finding["question"] for finding in read_findings(tmp_path)] == ["a", "b"]


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"figure": "missing.png"}, "must be a file beside it"),
        ({"figure": "../outside.png"}, "must be a file beside it"),
        ({"figure": 3}, "is no finding"),
    ],
)
def test_a_finding_without_its_figure_is_refused_before_anything_runs(
    tmp_path: Path, changed: dict[str, object], match: str
) -> None:
    folder = tmp_path / "findings"
    folder.mkdir()
    (tmp_path / "outside.png").write_bytes(b"")
    (folder / "why.json").write_text(json.dumps({**FINDING, **changed}))
    with pytest.raises(ValueError, match=match):
        read_findings(folder)


def test_a_folder_without_findings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no findings"):
        read_findings(tmp_path)

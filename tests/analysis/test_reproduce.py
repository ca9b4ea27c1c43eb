"""The reproduction writes what it says, the same bytes twice, and goes on after a kill."""

import csv
import re
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.container import BarContainer

from oppo_sim.analysis import figures, measures
from oppo_sim.analysis import reproduce as module
from oppo_sim.analysis.bars import bars, orderings
from oppo_sim.analysis.intervals import Mean
from oppo_sim.analysis.paper import Outcome, PaperRow, null_value, paper_rows
from oppo_sim.analysis.reproduce import Reproduction, reproduce
from oppo_sim.runs import RunError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("reproduction")
    reproduce(out, seeds=(0, 1), steps=4, jobs=1)
    return out


def contents(folder: Path) -> dict[str, bytes]:
    files = [file for file in folder.rglob("*") if file.is_file()]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


# fmt: off
IDS = [
    "A1", "A2", "A3", "A4", "T1a", "T1b", "T1c", "T1d", "T2", "T2b", "T2c", "V1",
    "V1b", "V2", "V2b",
    "M1a", "M1b", "M1a-s",
    "U1b", "U1o", "U2b", "U2o", "U3b", "U3o", "U4b", "U4o",
    "C1", "C1o", "D4", "D8", "Q1-0", "Q1-1", "Q1-2",
    "R1a", "R1b", "R2a", "R2b",
]
# fmt: on
COLUMNS = "id,quantity,paper,simulated,low,high,error_pct,role,null_error_pct\n"


def outcome(schedule: str, mean: float, paper: float | None = 2.0) -> Outcome:
    row = PaperRow(
        id="X",
        quantity="",
        measure="speedup",
        at="",
        scenario="s",
        baseline="trl",
        schedule=schedule,
        paper=paper,
        role="assumed",
        null="",
        source="",
    )
    return Outcome(row=row, simulated=Mean(mean, mean - 0.1, mean + 0.1))


def test_the_papers_values_are_those_of_its_minutes() -> None:
    """Minutes to reward as the paper reports them; T1a: the mean of its two figures."""
    found = {row.id: row.paper for row in paper_rows() if row.id in IDS[:9]}
    assert found == {
        "A1": 1.2,
        "A2": pytest.approx(4200 / 2700, abs=5e-4),
        "A3": 1.3,
        "A4": pytest.approx(13000 / 6300, abs=5e-3),
        "T1a": pytest.approx((4200 / 2300 + 4300 / 2300) / 2, abs=5e-3),
        "T1b": 2.5,
        "T1c": 2.4,
        "T1d": 2.8,
        "T2": pytest.approx(498.30 / 111.08, abs=5e-3),
    }
    assert all(row.source for row in paper_rows())


def test_null_models_are_those_of_the_protocol() -> None:
    """T1 = intra x inter: 0 to +2 % (7B), +7 % (3B); a U = the mean of the others: 1, -4, 8, -5."""
    rows = paper_rows()
    errors = {
        row.id: Outcome(row=row, simulated=None, null=null_value(row, rows)).null_error_pct
        for row in rows
    }
    expected = {"T1a": 1, "T1b": 7, "U1o": 1, "U2o": -4, "U3o": 8, "U4o": -5}
    assert {name: round(errors[name] or 0.0) for name in expected} == expected
    assert errors["A3"] == pytest.approx(100 * (1.2 / 1.3 - 1))  # as much as the 7B gains
    assert errors["A1"] is None


def test_the_table_has_the_agreed_columns(folder: Path) -> None:
    with (folder / "paper_rows.csv").open() as lines:
        assert lines.readline() == COLUMNS
    with (folder / "paper_rows.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert [row["id"] for row in rows] == IDS
    too_short = {row["id"] for row in rows if not row["simulated"]}
    assert too_short == {"M1a", "M1b", "M1a-s", "R1a", "R1b", "R2a", "R2b"}  # 4 steps
    for row in rows:
        if row["id"] in too_short:
            assert row["low"] == row["high"] == row["error_pct"] == ""
            continue
        assert float(row["low"]) <= float(row["simulated"]) <= float(row["high"])
        if not row["paper"]:
            assert row["error_pct"] == ""
            continue
        error = (float(row["simulated"]) / float(row["paper"]) - 1) * 100
        assert float(row["error_pct"]) == pytest.approx(error, abs=0.1)


def test_everything_assumed_is_listed_in_one_place(folder: Path) -> None:
    readme = (folder / "README.md").read_text()
    result = reproduce(seeds=(0,), steps=2, jobs=1)
    for scenario in result.scenarios:
        assert scenario.assumptions
        for assumption in scenario.assumptions:
            assert assumption in readme
    for words in ("4 steps, seeds 0, 1", "oppo-testbed", "comes from the simulator", "arXiv"):
        assert words in readme


def test_the_figures_are_pngs(folder: Path) -> None:
    pictures = ("paper_rows", "utilisation", "time_to_reward", "chunk_sweep", "lateness")
    for name in (*pictures, "fixed_or_dynamic_d", "two_nodes"):
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_the_page_has_every_row_and_needs_nothing_else(folder: Path) -> None:
    text = (folder / "report" / "report.md").read_text()
    for name in IDS:
        assert f"| {name} | " in text
    assert "Simulated: 2 seeds, runs of 4 steps." in text
    page = (folder / "report" / "index.html").read_text()
    assert page.count("data:image/png;base64,") == text.count("![") >= 7
    assert "<table>" in page
    assert not re.search(r'(src|href)="(?!data:)', page)


def test_the_figure_groups_the_rows_by_scenario_and_claims_nothing() -> None:
    rows = [outcome("intra", 1.1), outcome("intra", 1.2), outcome("oppo", 1.5)]
    rows[1] = replace(rows[1], row=replace(rows[1].row, scenario="other"))
    assert figures.by_scenario(rows) == [rows[0], rows[2], rows[1]]
    title = figures._title("speed-ups", rows)
    assert title == "OPPO's speed-ups, paper and simulation (all rows assumed: none is evidence)"


def test_error_bars_are_as_long_as_the_interval() -> None:
    skewed = replace(outcome("oppo", 2.0), simulated=Mean(2.0, 1.5, 3.0))
    assert figures._reach(skewed) == (0.5, 1.0)
    assert figures._reach(replace(skewed, simulated=Mean(2.0, None, None))) == (0, 0)


def test_a_figure_has_the_papers_bar_and_one_of_each_measure() -> None:
    busy = [outcome("trl", 0.5, paper=0.4), outcome("oppo", 0.8, paper=0.7)]
    weighted = [outcome("trl", 0.3, paper=0.4), outcome("oppo", 0.6, paper=0.7)]
    figure, axes = figures._bars_of({"busy": busy, "weighted": weighted}, 5)
    bars = [drawn for drawn in axes.containers if isinstance(drawn, BarContainer)]
    assert [[bar.get_height() for bar in each] for each in bars] == [
        [0.4, 0.7],
        [0.5, 0.8],
        [0.3, 0.6],
    ]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["paper", "busy", "weighted"]


def test_the_same_seeds_give_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    reproduce(tmp_path, seeds=(0, 1), steps=4, jobs=2)
    assert contents(tmp_path) == contents(folder)


def test_a_killed_reproduction_goes_on(folder: Path, tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    def kill(done: int, total: int) -> None:
        if done == 5:
            raise Killed

    with pytest.raises(Killed):
        reproduce(tmp_path, seeds=(0, 1), steps=4, jobs=1, progress=kill)
    assert len(list((tmp_path / "parts").iterdir())) == 5
    with pytest.raises(RunError, match="is not empty"):
        reproduce(tmp_path, seeds=(0, 1), steps=4, jobs=1)
    reproduce(tmp_path, resume=True, seeds=(0, 1), steps=4, jobs=1)
    assert contents(tmp_path) == contents(folder)


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(RunError, match="holds something else"):
        reproduce(tmp_path, resume=True, seeds=(0,), steps=1, jobs=1)
    assert contents(tmp_path) == {"thesis.tex": b"mine"}


def test_the_orderings_are_checked_and_not_taken_for_granted() -> None:
    right = [outcome("intra", 1.2), outcome("inter", 1.5), outcome("oppo", 1.5)]
    assert [holds for _, holds in orderings(right)] == [True, True]
    wrong = [outcome("intra", 1.2), outcome("inter", 1.1), outcome("oppo", 1.05)]
    assert [holds for _, holds in orderings(wrong)] == [False, False]
    assert orderings(right[:1]) == []


def test_a_row_without_a_paper_value_or_a_simulated_one_has_no_error() -> None:
    wordy = outcome("oppo", 0.9, paper=None)
    assert wordy.error_pct is None
    assert wordy.cells() == ("-", "0.90", "0.800 to 1.000", "-", "-")
    unknown = replace(outcome("oppo", 1.0), simulated=None)
    assert unknown.error_pct is None
    assert unknown.cells() == ("2.00", "-", "-", "-", "-")
    assert orderings([unknown]) == []


def test_an_error_is_relative_to_the_paper() -> None:
    assert outcome("oppo", 1.8, paper=2.0).error_pct == pytest.approx(-10)


@pytest.mark.parametrize(
    ("cell", "value", "message"),
    [
        ("role", "guessed", "must be one of assumed, fitted, held_out, scenario"),
        ("measure", "speed", "must be one of speedup, fixed_d, minutes, utilisation"),
        ("paper", "-1", "above 0"),
    ],
)
def test_a_bad_row_is_refused(cell: str, value: str, message: str) -> None:
    from oppo_sim.analysis.paper import _row

    good = {
        "id": "X",
        "quantity": "q",
        "measure": "speedup",
        "at": "",
        "scenario": "s",
        "baseline": "trl",
        "schedule": "oppo",
        "paper": "2",
        "role": "assumed",
        "null": "",
        "source": "",
    }
    with pytest.raises(ValueError, match=message):
        _row({**good, cell: value})


def test_nothing_is_written_without_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = module.reproduce(seeds=(0,), steps=2, jobs=1)
    assert isinstance(result, Reproduction)
    assert list(tmp_path.iterdir()) == []


def held(name: str, paper: float, mean: float, **changed: str) -> Outcome:
    one = outcome("oppo", mean, paper)
    return replace(one, row=replace(one.row, id=name, role="held_out", **changed))


def test_bars_hold_what_was_asked_of_held_out_rows() -> None:
    good = [held("T1a", 2, 2.1), held("T1b", 2, 1.9), held("A3", 2, 2.0), held("A4", 2, 2.0)]
    assert [bar.holds for bar in bars(good)] == [True, True]  # worst 5 %, median 2.5 %
    late = [*good[:2], held("A3", 2, 2.3), held("A4", 2, 2.2)]
    assert [bar.holds for bar in bars(late)] == [False, False]  # worst 15 %, median 7.5 %
    assert bars(good[:3]) == []
    busy = held("U2b", 0.4, 0.45, measure="utilisation")
    assert [bar.holds for bar in bars([busy])] == [False]  # 12.5 %
    band = replace(held("T1d", 2.8, 2.5), simulated=Mean(2.5, 2.0, 2.81))
    assert [bar.holds for bar in bars([band])] == [True]
    assert [bar.holds for bar in bars([replace(band, simulated=Mean(2.5, 2.0, 2.7))])] == [False]


@pytest.mark.parametrize(("best", "holds"), [(200, True), (1000, True), (100, False)])
def test_the_best_chunk_is_asked_to_lie_inside(best: int, holds: bool) -> None:
    chunk = held("C1", 500, best, measure="chunk")
    assert [bar.holds for bar in bars([chunk])] == [holds]


def test_late_shares_and_brackets() -> None:
    late = [held(f"Q1-{n}", 0.1, share) for n, share in enumerate((0.85, 0.13, 0.02))]
    assert [bar.holds for bar in bars(late)] == [True]
    later = [held(f"Q1-{n}", 0.1, share) for n, share in enumerate((0.80, 0.10, 0.10))]
    assert [bar.holds for bar in bars(later)] == [False]
    inside = [held("V1", 1.26, 1.5), held("V1b", 1.26, 0.9)]
    assert [bar.holds for bar in bars(inside)] == [True]
    assert [bar.holds for bar in bars([inside[1], held("V1", 1.26, 1.2)])] == [False]


def test_an_interval_adds_seeds_and_candidates_in_quadrature() -> None:
    widened = measures._widened(Mean(2.0, 1.7, 2.3), (1.6, 2.4))
    assert widened == pytest.approx((2.0, 1.5, 2.5))  # 3-4-5
    assert measures._widened(Mean(2.0, None, None), (2.2, 2.4)) == pytest.approx((2.0, 2.0, 2.4))
    assert measures._widened(Mean(2.0, 1.9, 2.1), None) == (2.0, 1.9, 2.1)

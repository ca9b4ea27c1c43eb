"""The paper's rows: what was published, from where, and what plays which part in comparing."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from math import isfinite

from oppo_sim.analysis.intervals import Mean

ROLES = ("assumed", "fitted", "held_out", "scenario")
MEASURES = ("speedup", "minutes", "busy", "weighted", "chunk", "late", "reward")


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperRow:
    """A published number, and the run that it is held against.

    role: "fitted" where the scenario was fitted to it, "held_out" where it was kept for checking,
    "assumed" where its numbers were chosen by hand with the paper's rows in view: agreement is then
    no evidence. "scenario": by a mechanism that the scenario states, not a prediction.

    measure: what is compared, and what `at` says about it. "speedup": of `schedule` over
    `baseline`, in mean step time (at: the baseline's scenario, where it is another). "minutes": the
    ratio of minutes to the reward `at`. "busy": the share of the time that devices work.
    "weighted": so, but a decoding device by the share of its rollouts that still run. "chunk": the
    fastest of `measures.CHUNKS`. "late": the share of rollouts trained `at` steps late; 2
    stands for more, too. "reward": at step `at`. `paper` is None where words are all there is.
    """

    id: str
    quantity: str
    measure: str
    scenario: str
    baseline: str
    schedule: str
    at: str
    paper: float | None
    role: str
    source: str

    def shown(self, value: float | None, digits: int = 2) -> str:
        """A value of this row as text; chunks are whole."""
        if value is None:
            return "-"
        return f"{value:.0f}" if self.measure == "chunk" else f"{value:.{digits}f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A row next to what was simulated, with its 95 % interval over the seeds.

    `simulated` None: the runs were too short to say.
    """

    row: PaperRow
    simulated: Mean | None

    @property
    def error_pct(self) -> float | None:
        if self.simulated is None or self.row.paper is None:
            return None
        return (self.simulated.mean / self.row.paper - 1) * 100

    def as_dict(self) -> dict[str, str | float | None]:
        """The columns of paper_rows.csv."""
        mean, low, high = self.simulated or (None, None, None)
        return {
            "id": self.row.id,
            "quantity": self.row.quantity,
            "paper": self.row.paper,
            "simulated": _rounded(mean, 4),
            "low": _rounded(low, 4),
            "high": _rounded(high, 4),
            "error_pct": _rounded(self.error_pct, 1),
            "role": self.row.role,
        }

    def cells(self) -> tuple[str, str, str, str]:
        """As text: paper, simulated, interval, error."""
        mean, low, high = self.simulated or (None, None, None)
        shown, error = self.row.shown, self.error_pct
        interval = "-" if low is None or high is None else f"{shown(low, 3)} to {shown(high, 3)}"
        percent = "-" if error is None else f"{round(error):+d} %"
        return shown(self.row.paper), shown(mean), interval, percent


def paper_rows() -> tuple[PaperRow, ...]:
    """The shipped rows, in the order of their file; ValueError names a bad cell."""
    with (files("oppo_sim") / "data" / "paper_rows.csv").open(encoding="utf-8") as lines:
        return tuple([_row(cells) for cells in csv.DictReader(lines)])


def speedups(outcomes: Sequence[Outcome]) -> list[tuple[PaperRow, Mean]]:
    """The rows that are the speed-up of one schedule over another on one scenario."""
    return [
        (outcome.row, outcome.simulated)
        for outcome in outcomes
        if outcome.row.measure == "speedup" and outcome.simulated and not outcome.row.at
    ]


def orderings(outcomes: Sequence[Outcome]) -> list[tuple[str, bool]]:
    """What the paper finds beyond its numbers, per scenario: in words, and whether it holds here.

    Speed-ups are means over the seeds.
    """
    by_scenario: dict[str, dict[str, float]] = {}
    for row, simulated in speedups(outcomes):
        by_scenario.setdefault(row.scenario, {})[row.schedule] = simulated.mean
    return [
        (f"{scenario}: {text}", holds)
        for scenario, found in by_scenario.items()
        if {"intra", "inter", "oppo"} <= found.keys()
        for text, holds in (
            ("inter > intra > 1", found["inter"] > found["intra"] > 1),
            ("oppo >= inter", found["oppo"] >= found["inter"]),
        )
    ]


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _row(cells: Mapping[str, str]) -> PaperRow:
    where = f"paper_rows.csv: {cells['id']}"
    for column, allowed in (("role", ROLES), ("measure", MEASURES)):
        if cells[column] not in allowed:
            raise ValueError(
                f"{where}: {column} = {cells[column]!r}: must be one of {', '.join(allowed)}"
            )
    paper = float(cells["paper"]) if cells["paper"] else None
    if paper is not None and (not isfinite(paper) or paper <= 0):
        raise ValueError(f"{where}: paper = {paper}: must be finite and above 0")
    return PaperRow(**{**cells, "paper": paper})  # type: ignore[arg-type]

"""The paper's rows: what was published, from where, and what plays which part in comparing."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from math import isfinite

from oppo_sim.analysis.intervals import Mean

ROLES = ("assumed", "fitted", "held_out")


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperRow:
    """A published speed-up of `schedule` over `baseline`.

    role: "fitted" where the scenario was fitted to it, "held_out" where it was kept for checking,
    "assumed" where its numbers were chosen by hand with the paper's rows in view: agreement is then
    no evidence.
    """

    id: str
    quantity: str
    scenario: str
    baseline: str
    schedule: str
    paper: float
    role: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A row next to what was simulated, with its 95 % interval over the seeds."""

    row: PaperRow
    simulated: Mean

    @property
    def error_pct(self) -> float:
        return (self.simulated.mean / self.row.paper - 1) * 100

    def as_dict(self) -> dict[str, str | float | None]:
        """The columns of paper_rows.csv."""
        return {
            "id": self.row.id,
            "quantity": self.row.quantity,
            "paper": self.row.paper,
            "simulated": round(self.simulated.mean, 4),
            "low": None if self.simulated.low is None else round(self.simulated.low, 4),
            "high": None if self.simulated.high is None else round(self.simulated.high, 4),
            "error_pct": round(self.error_pct, 1),
            "role": self.row.role,
        }


def paper_rows() -> tuple[PaperRow, ...]:
    """The shipped rows, in the order of their file; ValueError names a bad cell."""
    with (files("oppo_sim") / "data" / "paper_rows.csv").open(encoding="utf-8") as lines:
        return tuple([_row(cells) for cells in csv.DictReader(lines)])


def orderings(outcomes: Sequence[Outcome]) -> list[tuple[str, bool]]:
    """What the paper finds beyond its numbers, per scenario: in words, and whether it holds here.

    Speed-ups are means over the seeds.
    """
    by_scenario: dict[str, dict[str, float]] = {}
    for outcome in outcomes:
        speedups = by_scenario.setdefault(outcome.row.scenario, {})
        speedups[outcome.row.schedule] = outcome.simulated.mean
    return [
        (f"{scenario}: {text}", holds)
        for scenario, speedups in by_scenario.items()
        if {"intra", "inter", "oppo"} <= speedups.keys()
        for text, holds in (
            ("inter > intra > 1", speedups["inter"] > speedups["intra"] > 1),
            ("oppo >= inter", speedups["oppo"] >= speedups["inter"]),
        )
    ]


def _row(cells: Mapping[str, str]) -> PaperRow:
    where = f"paper_rows.csv: {cells['id']}"
    if cells["role"] not in ROLES:
        raise ValueError(f"{where}: role = {cells['role']!r}: must be one of {', '.join(ROLES)}")
    paper = float(cells["paper"])
    if not isfinite(paper) or paper <= 0:
        raise ValueError(f"{where}: paper = {paper}: must be finite and above 0")
    return PaperRow(**{**cells, "paper": paper})  # type: ignore[arg-type]

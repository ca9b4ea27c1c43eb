"""The paper's rows: what was published, from where, and what plays which part in comparing."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from math import isfinite, prod
from statistics import fmean

from oppo_sim.analysis.intervals import Mean

ROLES = ("assumed", "fitted", "held_out", "scenario")
MEASURES = ("speedup", "fixed_d", "minutes", "utilisation", "chunk", "late", "reward")
NULLS: dict[str, Callable[[Sequence[float]], float]] = {
    "product": prod,
    "mean": fmean,
}  # of the paper's values of other rows
CONFIDENCE = 0.8  # of a row's interval


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperRow:
    """A published number, and the run that it is held against.

    role: "fitted" where the scenario was fitted to it, "held_out" where it was kept for checking,
    "assumed" where what comes out was put in. "scenario": by a mechanism that the scenario states,
    not a prediction.

    null: what would be expected of the row with no simulator, from the paper's values of other
    rows: "product A1 A2" or "mean U1b U3b"; may be empty.

    measure: what is compared, and what `at` says about it. "speedup": of `schedule` over
    `baseline`, in mean step time (at: the baseline's scenario, where it is another). "fixed_d":
    the same with `at` rollouts beyond the batch. "minutes": the ratio of minutes to the reward
    `at`. "utilisation": of the devices, as fitted (see `fits`).
    "chunk": the fastest of `measures.CHUNKS`. "late": the share of rollouts trained `at` steps
    late; 2 stands for more, too. "reward": at step `at`. `paper` is None where words are all.
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
    null: str
    source: str

    def shown(self, value: float | None, digits: int = 2) -> str:
        """A value of this row as text; chunks are whole."""
        if value is None:
            return "-"
        return f"{value:.0f}" if self.measure == "chunk" else f"{value:.{digits}f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A row next to what was simulated, with an 80 % interval over seeds and accepted candidates.

    `simulated` None: the runs were too short to say. `null`: the value expected without a
    simulator; None where nothing says.
    """

    row: PaperRow
    simulated: Mean | None
    null: float | None = None

    @property
    def error_pct(self) -> float | None:
        if self.simulated is None or self.row.paper is None:
            return None
        return (self.simulated.mean / self.row.paper - 1) * 100

    @property
    def null_error_pct(self) -> float | None:
        if self.null is None or self.row.paper is None:
            return None
        return (self.null / self.row.paper - 1) * 100

    @property
    def is_covered(self) -> bool | None:
        """Whether the interval holds the paper's value; None where one of them is missing."""
        if self.simulated is None or self.simulated.low is None or self.row.paper is None:
            return None
        return self.simulated.includes(self.row.paper)

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
            "null_error_pct": _rounded(self.null_error_pct, 1),
        }

    def cells(self) -> tuple[str, str, str, str, str]:
        """As text: paper, simulated, interval, error, the null model's error."""
        mean, low, high = self.simulated or (None, None, None)
        shown = self.row.shown
        interval = "-" if low is None or high is None else f"{shown(low, 3)} to {shown(high, 3)}"
        errors = _percent(self.error_pct), _percent(self.null_error_pct)
        return shown(self.row.paper), shown(mean), interval, *errors


def paper_rows() -> tuple[PaperRow, ...]:
    """The shipped rows, in the order of their file; ValueError names a bad cell."""
    with (files("oppo_sim") / "data" / "paper_rows.csv").open(encoding="utf-8") as lines:
        rows = tuple([_row(cells) for cells in csv.DictReader(lines)])
    values = {row.id for row in rows if row.paper is not None}
    for row in rows:
        kind, *others = row.null.split() or ("mean", row.id)
        if row.null and (kind not in NULLS or not others or not values.issuperset(others)):
            raise ValueError(
                f"paper_rows.csv: {row.id}: null = {row.null!r}: must be product or mean, and then "
                "rows that have a value"
            )
    return rows


def null_value(row: PaperRow, rows: Sequence[PaperRow]) -> float | None:
    """What the paper's values of other rows would let one expect of this one."""
    if not row.null:
        return None
    kind, *others = row.null.split()
    values = [other.paper for other in rows if other.id in others and other.paper is not None]
    return NULLS[kind](values)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{round(value):+d} %"


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

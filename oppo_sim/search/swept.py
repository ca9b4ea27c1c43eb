"""What a folder of a sweep, or of a search, has found, as it is drawn."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from oppo_sim.analysis.claims import HEADER
from oppo_sim.runs import RunError
from oppo_sim.search.table import COLUMNS, PARQUET

KINDS = ("sweep", "search")


class Swept(NamedTuple):
    """The points that did not fail, one a row, and what they are points of."""

    scenario: str
    baseline: str | None
    axes: tuple[str, ...]
    table: pd.DataFrame

    @property
    def numeric(self) -> tuple[str, ...]:
        """The axes of numbers, of which there are several."""
        return tuple(
            axis
            for axis in self.axes
            if is_numeric_dtype(self.table[axis])
            and not is_bool_dtype(self.table[axis])
            and self.table[axis].nunique() > 1
        )


def is_swept(folder: Path) -> bool:
    """Whether a folder, done or not, is of many points rather than of one run."""
    return (folder / HEADER).is_file()


def read_swept(folder: Path) -> Swept:
    """RunError where there is nothing to draw."""
    try:
        header: dict[str, Any] = json.loads((folder / HEADER).read_bytes())
        if header["kind"] not in KINDS:
            raise ValueError
        name, baseline = header["scenario"]["name"], header["baseline"]
        order = tuple(map(str, header["order"]))
    except (OSError, ValueError, KeyError, TypeError):
        raise RunError(f"{folder} is not the folder of a sweep or a search") from None
    kept = _table(folder, header["kind"], order)
    if kept.empty:
        raise RunError(f"{folder}: all points failed, so there is nothing to draw")
    return Swept(name, baseline, order, kept)


def _table(folder: Path, kind: str, axes: Sequence[str]) -> pd.DataFrame:
    """The points that did not fail."""
    remedy = f"run the {kind} again with --resume, which writes it"
    if not (folder / PARQUET).is_file():
        raise RunError(f"{folder} has no {PARQUET} yet: {remedy}")
    try:
        table = pd.read_parquet(folder / PARQUET)
        if not {"point", *axes, *(name for name, _ in COLUMNS)} <= set(table.columns):
            raise ValueError
        return table[table["status"] == "ok"].reset_index(drop=True)
    except (OSError, ValueError):
        raise RunError(f"{folder / PARQUET} is damaged: {remedy}") from None

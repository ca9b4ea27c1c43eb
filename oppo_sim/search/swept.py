"""What a folder of a sweep, or of a search, has found, as it is drawn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from oppo_sim.analysis.claims import HEADER
from oppo_sim.runs import RunError
from oppo_sim.search.table import PARQUET

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
    return (folder / PARQUET).is_file() and (folder / HEADER).is_file()


def read_swept(folder: Path) -> Swept:
    """RunError where there is nothing to draw."""
    try:
        header: dict[str, Any] = json.loads((folder / HEADER).read_bytes())
        if header["kind"] not in KINDS:
            raise ValueError
        name, order, baseline = header["scenario"]["name"], header["order"], header["baseline"]
        table = pd.read_parquet(folder / PARQUET)
    except (OSError, ValueError, KeyError, TypeError):
        raise RunError(f"{folder} is not the folder of a sweep or a search") from None
    kept = table[table["status"] == "ok"].reset_index(drop=True)
    if kept.empty:
        raise RunError(f"{folder}: all points failed, so there is nothing to draw")
    return Swept(name, baseline, tuple(order), kept)

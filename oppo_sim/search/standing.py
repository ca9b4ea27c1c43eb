"""Which points of a search may win, and which one did, by its folder and its table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from oppo_sim.analysis.claims import HEADER
from oppo_sim.analysis.intervals import Mean
from oppo_sim.config import ConfigError
from oppo_sim.runs import RunError
from oppo_sim.search.goals import read_goals
from oppo_sim.search.result import Result

Mask = NDArray[np.bool_]


class Standing(NamedTuple):
    """By row of a table."""

    keeps: Mask  # all constraints
    is_whole: Mask  # has all its seeds: it was not given up
    winner: int | None  # the point

    @property
    def may_win(self) -> Mask:
        return self.keeps & self.is_whole


def of_sweep(table: pd.DataFrame) -> Standing:
    """No point is out, and none has won."""
    every = np.ones(len(table), dtype=bool)
    return Standing(every, every, None)


def read_standing(folder: Path, table: pd.DataFrame) -> Standing:
    """Of the points in the table of a folder. RunError where the folder does not say."""
    try:
        header: dict[str, Any] = json.loads((folder / HEADER).read_bytes())
        if header["kind"] != "search":
            return of_sweep(table)
        least, has_baseline = len(header["seeds"]), header["baseline"] is not None
        file = str(folder / HEADER)
        goals = read_goals(file, header["objectives"], header["constraints"], has_baseline)
    except (OSError, ValueError, KeyError, TypeError, ConfigError) as error:
        raise RunError(f"{folder / HEADER} is damaged: {error}; run the search again") from None
    results = [_result(row) for row in table.replace({np.nan: None}).to_dict("records")]
    keeps = np.array([goals.keeps_bounds(result) for result in results], dtype=bool)
    is_whole = (table["seeds"] >= least).to_numpy(dtype=bool)
    front = goals.front([one for one, is_one in zip(results, is_whole, strict=True) if is_one])
    return Standing(keeps, is_whole, front[0].point if front else None)


def _result(row: dict[Any, Any]) -> Result:
    """As far as goals read it."""
    means = [
        None if row[mean] is None else Mean(row[mean], row[low], row[high])
        for mean, low, high in (
            ("step_s", "step_low_s", "step_high_s"),
            ("speedup", "speedup_low", "speedup_high"),
        )
    ]
    return Result(
        point=int(row["point"]),
        values={},
        status="ok",
        seeds=int(row["seeds"]),
        step_s=means[0],
        speedup=means[1],
        staleness=row["staleness"],
        length_bias=row["length_bias"],
        kv_peak_tokens=row["kv_peak_tokens"],
    )

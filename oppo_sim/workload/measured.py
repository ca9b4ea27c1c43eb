"""Lengths that somebody measured: a file of any size becomes counts, a chunk at a time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from oppo_sim.config.bounds import MOST_TOKENS
from oppo_sim.workload.effects import Drift
from oppo_sim.workload.moments import ByKey, drift_between, share_between
from oppo_sim.workload.samples import Sample
from oppo_sim.workload.tabular import MOST, TELLS_BYTES, chunks, missing, quiet

COLUMNS = ("response_tokens", "prompt_tokens", "prompt_id", "step")


@dataclass(frozen=True)
class Measured:
    """What a file of lengths says, under the cap given for it."""

    sample: Sample
    prompts: Sample | None
    prompt_effect: float | None  # None: no prompt was answered twice
    drift: Drift | None  # None: too few steps


def read_measured(
    path: Path, cap_tokens: int | None = None, progress: TELLS_BYTES = quiet
) -> Measured:
    """The lengths of a .csv with a header or a .jsonl of objects.

    Needs `response_tokens`; `prompt_tokens`, `prompt_id` and `step` are used where they are.
    Cells beyond the header's are not looked at. Memory grows with the number of different lengths,
    prompts and steps, not with that of rows.
    ValueError names the file, the row, the value and the remedy.
    """
    tally = _Tally(path, cap_tokens)
    for chunk in chunks(path, COLUMNS, progress):
        tally.add(chunk)
    return tally.result()


def whole_numbers(
    path: Path, chunk: pd.DataFrame, column: str, least: int, most: int = MOST_TOKENS
) -> np.ndarray:
    """A column as whole numbers; ValueError names the first row that has none."""
    cells = chunk[column]
    if pd.api.types.is_integer_dtype(cells) and not cells.isna().any():
        numbers = cells.to_numpy(dtype=np.float64)
    else:
        numbers = np.array([_number(cell) for cell in cells.tolist()])
    good = (numbers >= least) & (numbers <= most) & (numbers == np.floor(numbers))
    if not good.all():
        place = int(np.flatnonzero(~good)[0])
        cell = str(cells.iloc[place])
        allowed = f"at most {most:,}" if numbers[place] > most else f">= {least}"
        raise ValueError(
            f"{path}, row {chunk.index[place] + 1}: {column} must be a whole number {allowed}, "
            f"not {cell[:40]!r}; correct the value or drop the row"
        )
    return numbers.astype(np.int64)


def _number(cell: object) -> float:
    """NaN for what is no number, true and false included."""
    if isinstance(cell, bool | np.bool_) or cell is None:
        return np.nan
    try:
        return float(cell)  # type: ignore[arg-type]
    except OverflowError:  # a whole number that no float can hold
        return np.inf
    except (TypeError, ValueError):
        return np.nan


def _hashes(names: pd.Series[Any]) -> np.ndarray:
    """64 bits that stand for each name, whether it was written as a number or as a text."""
    return np.asarray(pd.util.hash_array(names.astype(str).to_numpy(dtype=object)))


class _Tally:
    """Counts and sums of the chunks so far."""

    def __init__(self, path: Path, cap_tokens: int | None) -> None:
        self._path, self._cap = path, cap_tokens
        self._responses, self._prompts = ByKey(), ByKey()
        self._by_prompt, self._by_step = ByKey(), ByKey()
        self._rows = self._with_prompts = 0

    def add(self, chunk: pd.DataFrame) -> None:
        if "response_tokens" not in chunk:
            raise ValueError(missing(self._path, "response_tokens"))
        tokens = whole_numbers(self._path, chunk, "response_tokens", 1)
        self._rows += len(tokens)
        self._responses.count(tokens)
        if "prompt_tokens" in chunk:
            self._with_prompts += len(tokens)
            self._prompts.count(whole_numbers(self._path, chunk, "prompt_tokens", 1))
        if self._with_prompts not in (0, self._rows):
            raise ValueError(
                f"{self._path}, row {chunk.index[0] + 1}: give prompt_tokens in every row, or in "
                "none"
            )
        logs = np.log(tokens if self._cap is None else np.minimum(tokens, self._cap))
        if "prompt_id" in chunk:
            self._by_prompt.add(_hashes(chunk["prompt_id"]), logs)
        if "step" in chunk:
            self._by_step.add(whole_numbers(self._path, chunk, "step", 0, MOST), logs)

    def result(self) -> Measured:
        if not self._rows:
            raise ValueError(f"{self._path} holds no lengths: it needs one row per response")
        try:
            sample = Sample(*self._responses.counts(), self._cap)
        except ValueError as error:
            raise ValueError(f"{self._path}: {error}") from None
        return Measured(
            sample=sample,
            prompts=Sample(*self._prompts.counts()) if self._with_prompts else None,
            prompt_effect=share_between(self._by_prompt),
            drift=drift_between(self._by_step),
        )

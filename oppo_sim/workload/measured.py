"""Lengths that somebody measured: a file of any size becomes counts, a chunk at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from oppo_sim.config.bounds import MOST_TOKENS
from oppo_sim.workload.effects import Drift
from oppo_sim.workload.moments import ByKey, drift_between, share_between
from oppo_sim.workload.samples import Sample

COLUMNS = ("response_tokens", "prompt_tokens", "prompt_id", "step")
CHUNK_ROWS = 1 << 18
CHUNK_BYTES = 1 << 23
MOST = 2**53  # beyond, floats are not whole numbers any more
TELLS_BYTES = Callable[[int, int], None]


@dataclass(frozen=True)
class Measured:
    """What a file of lengths says, under the cap given for it."""

    sample: Sample
    prompts: Sample | None
    prompt_effect: float | None  # None: no prompt was answered twice
    drift: Drift | None  # None: too few steps


def quiet(done: int, total: int) -> None:
    """Tell nobody."""


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


def chunks(
    path: Path, columns: tuple[str, ...], progress: TELLS_BYTES = quiet
) -> Iterator[pd.DataFrame]:
    """The wanted columns, some rows at a time, numbered from 0; ValueError if it is no table."""
    readers = {".csv": _csv, ".jsonl": _jsonl}
    if path.suffix.lower() not in readers:
        raise ValueError(f"{path}: lengths are read from a .csv or a .jsonl file")
    try:
        yield from readers[path.suffix.lower()](path, columns, progress)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text; save it as UTF-8") from error


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


def _csv(path: Path, columns: tuple[str, ...], progress: TELLS_BYTES) -> Iterator[pd.DataFrame]:
    total = path.stat().st_size
    with path.open("rb") as source:
        try:
            reader = pd.read_csv(
                source,
                usecols=lambda name: str(name).strip() in columns,
                dtype={"prompt_id": str},
                skipinitialspace=True,
                index_col=False,
                chunksize=CHUNK_ROWS,
                low_memory=False,
            )
            for chunk in reader:
                progress(min(source.tell(), total), total)
                named = chunk.rename(columns=str.strip)
                yield named.loc[:, ~named.columns.duplicated()]
        except pd.errors.EmptyDataError:
            raise ValueError(f"{path} is empty: it needs a header and a row per response") from None
        except pd.errors.ParserError as error:
            reason = str(error).removeprefix("Error tokenizing data. ").strip()
            raise ValueError(f"{path} is not a CSV table: {reason}") from error


def _jsonl(path: Path, columns: tuple[str, ...], progress: TELLS_BYTES) -> Iterator[pd.DataFrame]:
    total, first_row, first_line = path.stat().st_size, 0, 1
    with path.open("rb") as source:
        while lines := source.readlines(CHUNK_BYTES):
            rows = _objects(path, lines, first_line)
            first_line += len(lines)
            progress(source.tell(), total)
            if rows:
                cells = {name: [row.get(name) for row in rows] for name in columns}
                known = {n: v for n, v in cells.items() if any(cell is not None for cell in v)}
                index = range(first_row, first_row + len(rows))
                yield pd.DataFrame(
                    {
                        name: pd.Series(values, index, _kind(values))
                        for name, values in known.items()
                    },
                    index=index,
                )
                first_row += len(rows)


def _kind(values: list[Any]) -> str:
    return "int64" if all(type(v) is int and abs(v) <= MOST for v in values) else "object"


def _objects(path: Path, lines: list[bytes], first_line: int) -> list[dict[str, Any]]:
    """The objects of some lines: parsed at once, which is quick, or one by one to name the bad."""
    texts = [line.strip() for line in lines]
    if first_line == 1 and texts:
        texts[0] = texts[0].removeprefix(b"\xef\xbb\xbf")
    full = [text for text in texts if text]
    try:
        rows = json.loads(b"[%s]" % b",".join(full))
    except (ValueError, RecursionError):
        rows = None
    if rows is not None and len(rows) == len(full) and all(type(row) is dict for row in rows):
        return list(rows)
    found = []
    for line, text in enumerate(texts, first_line):
        if text:
            found.append(_object(f"{path}, line {line}", text))
    return found


def _object(where: str, text: bytes) -> dict[str, Any]:
    try:
        row = json.loads(text)
    except UnicodeDecodeError:
        raise ValueError(f"{where} is not UTF-8 text; save it as UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{where} is not JSON: {error.msg}") from None
    except (ValueError, RecursionError):
        raise ValueError(f"{where} is JSON too deep or with a number too long to read") from None
    if not isinstance(row, dict):
        shown = text[:40].decode(errors="replace")
        raise ValueError(f"{where} must be an object, not {shown}")
    return row


def first_columns(path: Path) -> tuple[str, ...]:
    """The names in a CSV's header, or in the first hundred objects of a JSONL file."""
    try:
        with path.open("rb") as source:
            if path.suffix.lower() == ".csv":
                header = source.readline(1 << 20).decode("utf-8-sig", errors="replace")
                return tuple(name.strip().strip('"') for name in header.split(","))
            rows = _objects(path, list(islice(source, 100)), 1)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    return tuple(dict.fromkeys(name for row in rows for name in row))


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
            raise ValueError(
                f"{self._path}: no column response_tokens; it needs one row per response with it"
            )
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

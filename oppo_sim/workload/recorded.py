"""Lengths that a user measured: a CSV or JSONL file, read into a replay."""

import csv
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from oppo_sim.config.bounds import MOST_TOKENS
from oppo_sim.workload.lengths import Replay

Row = tuple[int, dict[str, object]]  # line of the file, its cells
COLUMNS = ("response_tokens", "prompt_tokens")


def read_lengths(path: Path | str, cap_tokens: int | None = None) -> Replay:
    """The recorded lengths of `path`, a .csv with a header or a .jsonl of objects, in file order.

    Needs `response_tokens` in every row; `prompt_tokens` in every row or in none; other columns are
    left alone. For an exact replay give the scenario's `cap_tokens`, which no row may exceed; for a
    distribution pass the result's fields to QuantileTable.from_samples. ValueError names the file,
    the line, the value and the remedy.
    """
    path = Path(path)
    columns: dict[str, list[int]] = {column: [] for column in COLUMNS}
    count = 0
    for line, row in _rows(path):
        count += 1
        for column in COLUMNS:
            if column in row:
                columns[column].append(_tokens(f"{path}, line {line}: {column}", row[column]))
            elif column == "response_tokens" or columns[column]:
                raise ValueError(_missing(path, line, column, row))
        if len(columns["prompt_tokens"]) not in (0, count):
            raise ValueError(
                f"{path}, line {line}: prompt_tokens starts here; give it in every row or in none"
            )
        _check_cap(f"{path}, line {line}", columns["response_tokens"][-1], cap_tokens)
    if not count:
        raise ValueError(f"{path} holds no lengths: it needs one row per response")
    responses, prompts = (tuple(columns[column]) for column in COLUMNS)
    return Replay(responses, prompts or None, name=str(path))


def _rows(path: Path) -> Iterator[Row]:
    readers = {".csv": _csv_rows, ".jsonl": _jsonl_rows}
    suffix = path.suffix.lower()
    if suffix not in readers:
        raise ValueError(f"{path}: lengths are read from a .csv or a .jsonl file")
    try:
        with path.open(encoding="utf-8-sig", newline="") as text:
            yield from readers[suffix](path, text)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    except csv.Error as error:
        raise ValueError(f"{path} is not a CSV table: {error}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text; save it as UTF-8") from error


def _csv_rows(path: Path, text: TextIO) -> Iterator[Row]:
    reader = csv.DictReader(text, skipinitialspace=True)
    for row in reader:
        yield reader.line_num, {key: cell for key, cell in row.items() if key is not None}


def _jsonl_rows(path: Path, text: TextIO) -> Iterator[Row]:
    for line, record in enumerate(text, start=1):
        if not record.strip():
            continue
        try:
            row = json.loads(record)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {line} is not JSON: {error.msg}") from error
        except (ValueError, RecursionError):
            raise ValueError(
                f"{path}, line {line} is JSON too deep or with a number too long to read"
            ) from None
        if not isinstance(row, dict):
            raise ValueError(f"{path}, line {line} must be an object, not {record.strip()[:40]}")
        yield line, row


def _tokens(where: str, cell: object) -> int:
    """A cell as a whole number of tokens."""
    try:
        number = float(str(cell))
    except ValueError:
        number = math.nan
    if 1 <= number <= MOST_TOKENS and number == math.floor(number):
        return int(number)
    shown = repr(cell) if len(repr(cell)) <= 40 else f"{repr(cell)[:37]}..."
    if number > MOST_TOKENS:
        raise ValueError(
            f"{where} must be a whole number at most {MOST_TOKENS:,}, not {shown}; "
            "correct the value or drop the row"
        )
    remedy = (
        "even an empty response has its end token, so drop the row or count that token"
        if number < 1
        else "correct the value or drop the row"
    )
    raise ValueError(f"{where} must be a whole number >= 1, not {shown}; {remedy}")


def _missing(path: Path, line: int, column: str, row: dict[str, object]) -> str:
    return f"{path}, line {line}: no {column} among {sorted(row)}; every row needs it"


def _check_cap(where: str, tokens: int, cap_tokens: int | None) -> None:
    if cap_tokens is not None and tokens > cap_tokens:
        raise ValueError(
            f"{where}: response_tokens is {tokens}, above cap_tokens = {cap_tokens}; a record is"
            f" never clipped: raise cap_tokens to {tokens} or more, or drop the row"
        )

"""Results as one table, Parquet and CSV: the same bytes for the same results."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from oppo_sim.runs import RunError
from oppo_sim.search.axes import Axis, Range
from oppo_sim.search.result import Result

PARQUET, CSV = "results.parquet", "results.csv"
ROWS = 4096  # of a group: what is held in memory at once

_FLOAT, _INT, _TEXT = pa.float64(), pa.int64(), pa.string()
COLUMNS = (
    ("seeds", _INT),
    ("step_s", _FLOAT),
    ("step_low_s", _FLOAT),
    ("step_high_s", _FLOAT),
    ("speedup", _FLOAT),
    ("speedup_low", _FLOAT),
    ("speedup_high", _FLOAT),
    ("staleness", _FLOAT),
    ("deferred_share", _FLOAT),
    ("length_bias", _FLOAT),
    ("busy", _FLOAT),
    ("wasted_share", _FLOAT),
    ("kv_peak_tokens", _INT),
    ("status", _TEXT),
    ("error", _TEXT),
)


def write_tables(folder: Path, axes: Sequence[Axis], results: Iterable[Result]) -> None:
    """results.parquet and results.csv, each there completely or as it was before.

    RunError where they cannot be written.
    """
    parquet, text = (folder / f".{name}.part" for name in (PARQUET, CSV))
    try:
        try:
            _write(parquet, text, axes, results)
            parquet.replace(folder / PARQUET)
            text.replace(folder / CSV)
        finally:
            for part in (parquet, text):
                part.unlink(missing_ok=True)
    except OSError as error:  # Arrow's has a number and no words
        said = os.strerror(error.errno) if error.errno else str(error)
        raise RunError(
            f"cannot write {folder / PARQUET} and {CSV}: {said}; what is simulated stays, --resume "
            "writes them"
        ) from None


def _write(parquet: Path, text: Path, axes: Sequence[Axis], results: Iterable[Result]) -> None:
    kinds = {axis.path: _kind(axis) for axis in axes}
    schema = pa.schema([("point", _INT), *kinds.items(), *COLUMNS])
    with ExitStack() as stack:
        writer = stack.enter_context(pq.ParquetWriter(parquet, schema))
        lines = csv.writer(stack.enter_context(text.open("w", newline="", encoding="utf-8")))
        lines.writerow(schema.names)
        for group in _cut(results):
            rows = [_row(result, kinds) for result in group]
            writer.write_table(pa.Table.from_pylist(rows, schema=schema), row_group_size=ROWS)
            lines.writerows([[row[name] for name in schema.names] for row in rows])


def _cut(results: Iterable[Result]) -> Iterator[list[Result]]:
    source = iter(results)
    while group := list(islice(source, ROWS)):
        yield group


def _row(result: Result, kinds: dict[str, pa.DataType]) -> dict[str, Any]:
    row: dict[str, Any] = {"point": result.point}
    for path, kind in kinds.items():
        value = result.values[path]
        row[path] = _text(value) if kind == _TEXT else float(value) if kind == _FLOAT else value
    for name, mean in (("step", result.step_s), ("speedup", result.speedup)):
        unit = "_s" if name == "step" else ""
        row[f"{name}{unit}"] = None if mean is None else mean.mean
        row[f"{name}_low{unit}"] = None if mean is None else mean.low
        row[f"{name}_high{unit}"] = None if mean is None else mean.high
    rest = [name for name, _ in COLUMNS if name not in row]
    return {**row, **{name: getattr(result, name) for name in rest}}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _kind(axis: Axis) -> pa.DataType:
    """The narrowest that holds all its values; tables, lists and mixtures are JSON."""
    if isinstance(axis.choices, Range):
        values: Sequence[Any] = (axis.choices.low, axis.choices.high)
    else:
        values = axis.choices
    types = {type(value) for value in values}
    if types == {bool}:
        return pa.bool_()
    if types == {int} and all(abs(value) < 2**63 for value in values):
        return _INT
    return _FLOAT if types <= {int, float} else _TEXT

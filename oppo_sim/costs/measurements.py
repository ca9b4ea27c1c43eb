"""A file of measured times: a CSV with a TOML header in comments, and what its rows may hold.

    # machine = "4 x A100-80 SXM, tensor parallel"
    # versions = "vLLM 0.6.3, CUDA 12.4"
    # date = "2024-10-01"
    # source = "measured by ..."
    task,batch,context_tokens,tokens,seconds
    decode,8,9216,,0.0312
    prefill,1,0,512,0.0713

`tokens` are the new tokens of a call, `context_tokens` what its rows hold before it, each summed
over the `batch` of rows. Of decode, whose new tokens are its batch, a row is one iteration.

What `oppo profile` writes says `grouped` in its header: calls of score and train are single
forwards (see `forwards`), `update` is what an update takes besides, `pause` what it takes to put
rollouts' caches aside and to bring them back, and `decode+score` an iteration beside a score, with
the others alike.
"""

from __future__ import annotations

import csv
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from oppo_sim.config.errors import nearest, short
from oppo_sim.costs import checks
from oppo_sim.costs.own import is_path, read_text

BESIDE = (
    "decode+score",
    "score+decode",
    "decode+decode",
    "decode+train",
    "train+decode",
    "score+train",
    "train+score",
)
TASKS = ("decode", "prefill", "score", "train", "sync", "handoff", "update", "pause", *BESIDE)
COLUMNS = ("task", "batch", "context_tokens", "tokens", "seconds")
LEAST_S, MOST_S = 1e-9, 1e9  # beyond it is a mistake of units
PROVENANCE = ("machine", "versions", "date", "source")
_CONTEXT = ("batch", "context_tokens")
_NEEDED: Mapping[str, tuple[str, ...]] = {  # of the others: tokens
    "decode": _CONTEXT,
    "decode+score": _CONTEXT,
    "decode+decode": _CONTEXT,
    "decode+train": _CONTEXT,
    "pause": _CONTEXT,
    "sync": (),
    "update": (),
}


class Row(NamedTuple):
    """One measured call; one iteration of decode."""

    task: str
    batch: int
    context_tokens: int
    tokens: int
    seconds: float

    @property
    def attention(self) -> float:
        """Query-key pairs, its rows being equally long: as `attention_pairs`, summed."""
        return self.tokens * (self.context_tokens + 0.5 * self.tokens) / self.batch


@dataclass(frozen=True)
class Measurements:
    """Rows and where they are from; decode is among them."""

    name: str
    rows: tuple[Row, ...]
    provenance: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        for n, row in enumerate(self.rows):
            owner = f"{self.name}: rows[{n}]"
            checks.one_of(owner, TASKS, task=row.task)
            checks.count(owner, 1, batch=row.batch)
            checks.count(owner, 0, context_tokens=row.context_tokens, tokens=row.tokens)
            checks.positive(owner, seconds=row.seconds)
            if not LEAST_S <= row.seconds <= MOST_S:
                raise ValueError(
                    f"{owner}.seconds is {row.seconds!r}; at least {LEAST_S}, at most {MOST_S}"
                )
        if not self.of("decode"):
            raise ValueError(f"{self.name}: has no row of decode; measure one iteration at least")

    def of(self, task: str) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.task == task)

    def said_s(self, key: str) -> float | None:
        """Seconds that the header says; None where it does not. ValueError for something else."""
        text = self.provenance.get(key)
        if text is None:
            return None
        try:
            seconds = float(text)
        except ValueError:
            seconds = -1.0
        if not 0.0 <= seconds <= MOST_S:
            raise ValueError(f"{self.name}: {key} is {short(text)}; it must be seconds, at least 0")
        return seconds


def measurements(name: str, folder: Path = Path()) -> Measurements:
    """Shipped ones by name, or those in a CSV file; `folder` is what its path is relative to.

    ValueError names the file, the row, the field and what it must be.
    """
    if is_path(name):
        file = folder / name
        try:
            return parse_measurements(file.stem, read_text(file))
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error
    if name not in measurement_names():
        raise ValueError(
            f"unknown table of times {name!r}; {nearest(name, measurement_names())}; "
            "or give the path of a CSV file"
        )
    shelf = files("oppo_sim") / "data" / "costs"
    return parse_measurements(name, (shelf / f"{name}.csv").read_text(encoding="utf-8"))


def measurement_names() -> list[str]:
    shelf = files("oppo_sim") / "data" / "costs"
    names = [entry.name for entry in shelf.iterdir()]
    return sorted(name.removesuffix(".csv") for name in names if name.endswith(".csv"))


def parse_measurements(name: str, text: str) -> Measurements:
    """From the text of a file; ValueError as in `measurements`, but for the file's name."""
    lines = text.removeprefix("\ufeff").splitlines()
    comments = [line.strip().removeprefix("#") for line in lines if line.strip().startswith("#")]
    provenance = _provenance("\n".join(comment.strip() for comment in comments))
    numbered = [
        (n, line)
        for n, line in enumerate(lines, 1)
        if line.strip() and not line.strip().startswith("#")
    ]
    if not numbered:
        raise ValueError(f"has no rows; its first must be {','.join(COLUMNS)}")
    columns = _cells(*numbered[0])
    if sorted(columns) != sorted(COLUMNS):
        raise ValueError(
            f"line {numbered[0][0]}: columns {short(','.join(columns))}; they must be "
            f"{','.join(COLUMNS)}"
        )
    rows = tuple(_row(n, columns, _cells(n, line)) for n, line in numbered[1:])
    return Measurements(name, rows, provenance)


def as_text(table: Measurements) -> str:
    """The file of a table: a header of comments, then the rows."""
    head = [f"# {key} = {json.dumps(value)}" for key, value in table.provenance.items()]
    lines = []
    for row in table.rows:
        tokens = "" if _NEEDED.get(row.task) == _CONTEXT else row.tokens
        lines.append(f"{row.task},{row.batch},{row.context_tokens},{tokens},{row.seconds:.6g}")
    return "\n".join([*head, ",".join(COLUMNS), *lines]) + "\n"


def _provenance(header: str) -> dict[str, str]:
    try:
        found = tomllib.loads(header)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(
            f"its comments must be TOML, such as # date = '2024-10-01': {error}"
        ) from error
    for key in PROVENANCE:
        if key not in found:
            raise ValueError(f"{key} is missing: say it in a comment at the top, # {key} = '...'")
    for key, value in found.items():
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{key} is {short(value)}; it must be a text in quotes")
    return found


def _cells(n: int, line: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line], strict=True))]
    except (csv.Error, StopIteration) as error:
        raise ValueError(f"line {n}: is no row of a CSV file: {error}") from error


def _row(n: int, columns: list[str], cells: list[str]) -> Row:
    if len(cells) != len(columns):
        raise ValueError(f"line {n}: has {len(cells)} cells; it must have {len(columns)}")
    row = dict(zip(columns, cells, strict=True))
    task = row["task"]
    if task not in TASKS:
        raise ValueError(f"line {n}: task is {short(task)}; {nearest(task, list(TASKS))}")
    for column in _NEEDED.get(task, ("tokens",)):
        if not row[column]:
            raise ValueError(f"line {n}: {column} of {task} is missing; add it")
    batch = _whole(n, "batch", row, 1, 1)
    is_decode = _NEEDED.get(task) == _CONTEXT
    if is_decode and row["tokens"] not in ("", str(batch)):
        raise ValueError(
            f"line {n}: tokens is {short(row['tokens'])}; leave it out: an iteration of decode "
            "makes one for each of the batch"
        )
    least = 0 if task in ("sync", "update") else 1
    tokens = batch if is_decode else _whole(n, "tokens", row, least, 0)
    context = _whole(n, "context_tokens", row, 0, 0)
    return Row(task, batch, context, tokens, _seconds(n, row["seconds"]))


def _whole(n: int, column: str, row: Mapping[str, str], least: int, missing: int) -> int:
    text = row[column]
    if not text:
        return missing
    is_whole = text.isascii() and text.isdigit() and len(text) < 19
    if not is_whole or int(text) < least:
        raise ValueError(
            f"line {n}: {column} is {short(text)}; it must be a whole number, at least {least}"
        )
    return int(text)


def _seconds(n: int, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not LEAST_S <= seconds <= MOST_S:
        raise ValueError(
            f"line {n}: seconds is {short(text)}; it must be a number from {LEAST_S} to {MOST_S}"
        )
    return seconds

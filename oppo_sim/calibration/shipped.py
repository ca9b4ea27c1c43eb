"""The public training logs that are shipped, and where each is from."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path


@dataclass(frozen=True)
class Provenance:
    name: str
    about: str
    repository: str
    commit: str
    path: str
    licence: str


def shipped_logs() -> dict[str, Provenance]:
    """By name; logs without a licence are not among them."""
    with (_FOLDER / "provenance.csv").open(encoding="utf-8") as lines:
        return {row["name"]: Provenance(**row) for row in csv.DictReader(lines)}


@contextmanager
def shipped_log(name: str) -> Iterator[Path]:
    """A file to read it from."""
    with as_file(_FOLDER / f"{name}.csv") as path:
        yield path


_FOLDER = files("oppo_sim") / "data" / "logs"

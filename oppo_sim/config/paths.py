"""Where a key stands in the tables of a document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from oppo_sim.config.fields import Table


def paths_of(table: type[Table], key: str) -> list[str]:
    """The dotted paths that end with the key, the shortest first."""
    found = dict.fromkeys(path for path in _paths(table) if path.rpartition(".")[2] == key)
    return sorted(found, key=lambda path: path.count("."))


def _paths(table: type[Table]) -> Iterator[str]:
    for name, field in table.model_fields.items():
        own = field.alias or name
        yield own
        for inner in _tables(field.annotation):
            yield from (f"{own}.{path}" for path in _paths(inner))


def _tables(annotation: object) -> Iterator[type[Table]]:
    """The tables that a value of that type may be."""
    if isinstance(annotation, type) and issubclass(annotation, Table):
        yield annotation
    for part in get_args(annotation):
        yield from _tables(part)

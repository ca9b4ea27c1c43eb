"""The measured length tables that come with the package, and where each is from."""

import csv
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from oppo_sim.workload.tables import QuantileTable


@dataclass(frozen=True)
class Provenance:
    """One row of provenance.csv: what a table is, where it is from, and what its source cut.

    `at_cap` of the `n` responses reach `source_cap_tokens` (see QuantileTable for the rule);
    `max_below_cap` is the longest of the others. Both caps are None where nothing was cut.
    """

    name: str
    about: str
    repository: str
    commit: str
    path: str
    licence: str
    tokenizer: str
    decoding: str
    n: int
    source_cap_tokens: int | None
    at_cap: int
    max_below_cap: int | None
    cap_basis: str


def shipped() -> tuple[str, ...]:
    """The names that `load` takes, in alphabetical order."""
    return tuple(sorted(row["name"] for row in _rows(_folder() / "provenance.csv")))


@cache  # every run of a scenario asks for it
def load(name: str) -> QuantileTable:
    """The shipped table called `name`; ValueError with the nearest name if there is none."""
    source = provenance(name)
    rows = _rows(_folder() / f"{name}.csv")
    prompts = [row["prompt_tokens"] for row in rows if "prompt_tokens" in row]
    cut = source.source_cap_tokens is not None
    return QuantileTable(
        name=name,
        q=tuple(float(row["q"]) for row in rows),
        response_tokens=tuple(float(row["response_tokens"]) for row in rows),
        prompt_tokens=tuple(map(float, prompts)) or None,
        cap_tokens=source.source_cap_tokens,
        cap_share=source.at_cap / source.n if cut else None,
        max_below_cap=source.max_below_cap,
    )


def provenance(name: str) -> Provenance:
    """Where the shipped table called `name` is from."""
    for row in _rows(_folder() / "provenance.csv"):
        if row["name"] == name:
            return _provenance(row)
    near = get_close_matches(name, shipped(), n=1, cutoff=0)
    raise ValueError(
        f"no shipped lengths are called {name!r}: did you mean {near[0]!r}?"
        f" `oppo lengths list` shows all {len(shipped())}"
    )


def _provenance(row: dict[str, str]) -> Provenance:
    numbers = ("n", "source_cap_tokens", "at_cap", "max_below_cap")
    texts = {key: text for key, text in row.items() if key not in numbers}
    return Provenance(
        **texts,
        n=int(row["n"]),
        at_cap=int(row["at_cap"]),
        source_cap_tokens=_optional(row["source_cap_tokens"]),
        max_below_cap=_optional(row["max_below_cap"]),
    )


def _optional(cell: str) -> int | None:
    return int(cell) if cell else None


def _folder() -> Traversable:
    return files("oppo_sim") / "data" / "lengths"


def _rows(path: Traversable) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))

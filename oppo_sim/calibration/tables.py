"""Cost tables of `oppo profile` on disk: which goes with some runs, and several made one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path

from oppo_sim.costs import measurements
from oppo_sim.costs.identity import SLOWED
from oppo_sim.costs.measurements import as_text
from oppo_sim.runs import write_whole

TABLE = "costs.csv"


def probe_s(table: Path) -> float:
    """Of the cores while a table was measured; without end where it does not say."""
    return measurements(str(table.resolve())).said_s("probe_s") or inf


def joined(parts: Sequence[Path], table: Path) -> Path:
    """One table of all rounds' measurements: each point's times count alike, but for those of
    rounds in which the cores were slow."""
    fastest_s = min([probe_s(part) for part in parts])
    quiet = [part for part in parts if probe_s(part) <= SLOWED * fastest_s]
    found = [measurements(str(part.resolve())) for part in quiet]
    rows = tuple([row for one in found for row in one.rows])
    words = f"{len(quiet)} of {len(parts)}, one before each round; those of slow cores are left out"
    said = {**found[-1].provenance, "parts": words}
    write_whole(table, as_text(replace(found[-1], rows=rows, provenance=said)))
    return table


def table_of(source: Path, costs: Path | None) -> Path:
    """The table that is named, or the one beside the runs. ValueError where there is none."""
    beside = [folder / TABLE for folder in (source, source.parent, source.parent.parent)]
    places = [costs] if costs else beside
    for place in places:
        if place.is_file():
            return place
    raise ValueError(
        f"{places[0]}: no such cost table; measure one with `oppo profile`, and name it: "
        "--costs FILE"
    )


def about(name: str, table: Path) -> dict[str, str]:
    """A scenario, and on what, when and with what its costs were measured."""
    said = measurements(str(table.resolve())).provenance
    keys = ("machine", "versions", "threads", "date", "digest")
    return {"scenario": name, **{key: said[key] for key in keys if key in said}}

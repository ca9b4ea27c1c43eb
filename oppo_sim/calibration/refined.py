"""A table of isolated measurements, scaled by what one whole run took for each kind of task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from oppo_sim.analysis.fidelity import Fidelity, Pair
from oppo_sim.costs import Measurements, measurements
from oppo_sim.costs.measurements import LEAST_S

# No task is scaled by more, or less than its inverse: then the table is of something else.
CAP = 1.5
KIND_OF = {"decode": "decode", "prefill": "decode", "score": "score", "train": "train"}
KIND_OF |= {"update": "train", "sync": "sync"}


def factors(pair: Pair, warmup: int) -> dict[str, float]:
    """By kind of span: recorded over simulated seconds, within CAP; 1 where there was none."""
    found = {}
    one = Fidelity(pairs=[pair], warmup=warmup)
    for kind, both in one.kinds(pair.schedule).items():
        ratio = both.real_s / both.sim_s if both.real_s and both.sim_s else 1.0
        found[kind] = min(CAP, max(1 / CAP, ratio))
    return found


def in_words(by: Mapping[str, float]) -> str:
    """The factors, and which are cut to what is allowed."""
    return ", ".join(
        f"{kind} x {factor:.3f}" + (" (cut)" if factor in (CAP, 1 / CAP) else "")
        for kind, factor in by.items()
    )


def refined(table: Path, by: Mapping[str, float], run: str) -> Measurements:
    """The table with every kind's factor."""
    said = {"refined": f"with the run {run}: {in_words(by)}"}
    return scaled(measurements(str(table.resolve())), by, said)


def scaled(table: Measurements, by: Mapping[str, float], said: Mapping[str, str]) -> Measurements:
    """Every row times its kind's factor, 1 if there is none: those beside other work as well, so
    that stretches stay. `said`: what the header says besides."""
    rows = []
    for row in table.rows:
        factor = by.get(KIND_OF.get(row.task.partition("+")[0], ""), 1.0)
        rows.append(row._replace(seconds=max(LEAST_S, row.seconds * factor)))
    return replace(table, rows=tuple(rows), provenance={**table.provenance, **said})

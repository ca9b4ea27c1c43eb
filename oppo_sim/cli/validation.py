"""What `oppo validate` prints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from oppo_sim.cli import console

if TYPE_CHECKING:
    from rich.table import Table


SMALL = 0.05  # of a step: how wrong less of it is says little


def validation(document: dict[str, Any], out: Path | None) -> None:
    """The grade, a row per schedule, its errors by command and stage, and what must be known."""
    from oppo_sim.analysis.fidelity_page import percent

    table, parts = _tables(document["schedules"])
    console.show(
        f"{document['scenario']}: {_verdict(document)}",
        table,
        parts,
        f"Real seconds were measured on {document['measured_on']}, {document['steps']} steps in "
        "all; simulated with the lengths that they had. error: simulated / real - 1, above 0 the "
        "simulator was too slow; |error|: median over steps; spread: of a run's repeats; drawn: "
        f"error with lengths of the fitted law ({document['law']}). The second table has the "
        "errors by command and by stage; what takes less than 5 % of a step is left out.",
    )
    scaling = document.get("rescaled")
    if scaling is not None:
        words = ", ".join(f"{kind} {factor:.2f}" for kind, factor in scaling.items())
        console.show(f"The table is of other models, scaled by their products: {words}.")
    again = document.get("refined")
    if again is not None:
        console.show(
            f"Refined with {again['with']} ({again['factors']}), the other {again['runs']} runs: "
            f"median {percent(again['isolated']['median_abs_error'])} -> "
            f"{percent(again['refined']['median_abs_error'])}, worst schedule "
            f"{percent(again['isolated']['worst_abs_error'])} -> "
            f"{percent(again['refined']['worst_abs_error'])}, speed-ups "
            f"{percent(again['isolated']['speedup_error'])} -> "
            f"{percent(again['refined']['speedup_error'])} (isolated -> refined)."
        )
    for note in document["notes"]:
        console.show(f"Note: {note}.")
    if out is not None:
        console.show(f"Written to {out}: validation.json, steps.csv, page.html, trace.json.")


def _verdict(document: dict[str, Any]) -> str:
    """The grade and what it is made of; a single schedule has no speed-up and no ranking."""
    from oppo_sim.analysis.fidelity_page import percent, plain

    steps = (
        f"Median absolute error of a step {percent(document['median_abs_error'])}, worst schedule "
        f"{percent(document['worst_abs_error'])}"
    )
    if document["speedup_error"] is None:
        return f"grade {document['grade']}, of its steps alone: there is one schedule. {steps}."
    spread = document["repeat_spread"]
    pairs = "pairs of single runs" if spread is None else "pairs that the runs tell apart"
    repeats = "" if spread is None else f" Repeats of a step differ by {percent(spread)}."
    return (
        f"grade {document['grade']}. {steps}; speed-ups within "
        f"{percent(document['speedup_error'])}; tau {plain(document['tau'])} over "
        f"{document['pairs']} {pairs}.{repeats}"
    )


def _tables(schedules: list[dict[str, Any]]) -> tuple[Table, Table]:
    from rich.box import SIMPLE
    from rich.table import Table

    from oppo_sim.analysis.fidelity_page import percent, step_cells

    table = Table(box=SIMPLE, pad_edge=False)
    columns = ("schedule", "real s", "sim s", "error", "|error|", "spread", "speed-up")
    for column in (*columns, "sim", "error", "drawn"):
        table.add_column(column, justify="left" if column == "schedule" else "right")
    parts = Table(box=SIMPLE, pad_edge=False)
    for column in ("error of", "decode", "score", "train", "generation", "scoring exposed"):
        parts.add_column(column, justify="left" if column == "error of" else "right")
    for one in schedules:
        speedup, drawn = one["speedup"], one["drawn"]
        table.add_row(
            *step_cells(one),
            f"{speedup['real']:.2f}",
            f"{speedup['simulated']:.2f}",
            percent(speedup["error"], signed=True),
            percent(None if drawn is None else drawn["error"], signed=True),
        )
        commands, stages = one["commands"], one["stages"]
        cells = [commands[kind] for kind in ("decode", "score", "train")]
        cells += [stages["generation"], stages["scoring"]]
        large = [both["real_s"] >= SMALL * one["real_s"] for both in cells]
        errors = [
            both["error"] if is_large else None for both, is_large in zip(cells, large, strict=True)
        ]
        parts.add_row(one["schedule"], *[percent(error, signed=True) for error in errors])
    return table, parts

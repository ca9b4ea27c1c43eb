"""`oppo profile`: what the tasks of a real scenario cost on this machine, each by itself."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oppo_sim.cli import console
from oppo_sim.cli.real import real_module

if TYPE_CHECKING:
    from oppo_sim.config import Scenario
    from oppo_sim.policies import Schedule

Schedules = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,C",
        help="Names or files; the scenario's real.schedules if not given. Speed-ups are over the "
        "first.",
    ),
]
Budget = Annotated[
    float,
    typer.Option(min=5, max=3600, metavar="S", help="Seconds that measuring may take, about."),
]
BUDGET_S = 150.0


def profile(
    scenario: Annotated[
        str, typer.Argument(metavar="CONFIG", help="A scenario file with a [real] table.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The table to write; <name>-costs.csv if not given."),
    ] = None,
    schedules: Schedules = None,
    budget: Budget = BUDGET_S,
    sets: console.Sets = None,
    as_json: console.AsJson = False,
) -> None:
    """Measure what each task costs on this machine, into a cost table for the simulator.

    Decoding over batch and context, prefill, scoring over rows, tokens and context, an update over
    tokens, weights and news on their way, and decoding beside scoring: the lanes of `oppo train`
    do them one by one, with their threads, in passes over all of them while there is time. No step
    is timed. Use the machine for nothing else meanwhile. Needs the extra [real].

    \b
    Example:
      oppo profile experiments/configs/real/cpu-small.toml --out costs.csv
      oppo validate experiments/configs/real/cpu-small.toml --costs costs.csv --out small
    """
    from oppo_sim.config import load_scenario, load_schedules
    from oppo_sim.runs import write_whole

    loaded = load_scenario(scenario, console.overrides(sets))
    file = Path(f"{loaded.name}-costs.csv") if out is None else out
    if file.suffix.lower() != ".csv":
        raise ValueError(f"--out {file}: a cost table is a .csv file")
    if file.exists():
        raise ValueError(f"--out {file}: is there already: name another, or delete it")
    chosen = load_schedules(schedules, loaded)
    file.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(file.parent, os.W_OK):
        raise ValueError(f"--out {file}: {file.parent} cannot be written in: name another folder")
    found = measured(loaded, chosen, budget)
    write_whole(file, found.text())
    document = _document(found, file)
    if as_json:
        console.emit(document)
    else:
        _print(document, file)


def measured(scenario: Scenario, schedules: list[Schedule], budget_s: float) -> Any:
    """The profile, progress on stderr."""
    module = real_module("profile.measure", "profiling")

    def say(task: str) -> None:
        print(f"{scenario.name}: measuring {task}", file=sys.stderr, flush=True)

    return module.profile(scenario, schedules, budget_s=budget_s, progress=say)


def _document(found: Any, file: Path) -> dict[str, Any]:
    from oppo_sim.costs import Measured

    costs = Measured(measurements=found.table)
    return {
        "role": "measured",
        "file": str(file),
        "seconds": found.seconds,
        "header": dict(found.table.provenance),
        "contention": {} if costs.by_row is None else costs.by_row.sharing.stretches,
        "rows": [
            {**row._asdict(), "error": error}
            for row, error in zip(found.table.rows, found.errors, strict=True)
        ],
    }


def _print(document: dict[str, Any], file: Path) -> None:
    from rich.box import SIMPLE
    from rich.table import Table

    table = Table(box=SIMPLE, pad_edge=False)
    for column in ("task", "points", "seconds, least to most", "worst standard error"):
        table.add_column(column, justify="left" if column == "task" else "right")
    tasks = dict.fromkeys(row["task"] for row in document["rows"])
    for task in tasks:
        rows = [row for row in document["rows"] if row["task"] == task]
        seconds = [row["seconds"] for row in rows]
        spread = max(row["error"] for row in rows)
        table.add_row(
            task, str(len(rows)), f"{min(seconds):.3g} to {max(seconds):.3g}", f"{spread:.1%}"
        )
    sharing = ", ".join(f"{name} = {value:.2f}" for name, value in document["contention"].items())
    machine = document["header"]["machine"]
    console.show(
        f"Measured on this machine ({machine}) in {document['seconds']:.0f} s.",
        table,
        f"In a scenario: costs = {{ model = 'table', file = '{file}' }} and [cluster.contention] "
        f"with shared_host = true, {sharing}.",
    )
    console.show(f"Written to {file}.")

"""`oppo scenarios` and `oppo schedules`: what there is to choose from."""

from __future__ import annotations

from textwrap import fill
from typing import Annotated, Any

import typer

from oppo_sim.cli import console


def scenarios(
    name: Annotated[
        str | None,
        typer.Argument(metavar="SCENARIO", help="A shipped name, or the path of a TOML file."),
    ] = None,
    as_json: console.AsJson = False,
) -> None:
    """List the shipped scenarios, or say of one what it assumes and where its file is."""
    from oppo_sim.config import load_scenario, shipped_scenarios

    if name is not None:
        _scenario(name, as_json)
        return
    found = [load_scenario(name) for name in shipped_scenarios()]
    if as_json:
        console.emit({s.name: {"about": s.about, "steps": s.steps} for s in found})
        return
    _print([(s.name, f"{s.about} Assumed: {len(s.assumptions)}.") for s in found])
    console.show("\n`oppo scenarios SCENARIO` says what one assumes, and where its file is.")


def _scenario(name: str, as_json: bool) -> None:
    from oppo_sim.analysis.why import count
    from oppo_sim.config import load_scenario, scenario_path

    found, file = load_scenario(name), scenario_path(name)
    schedule = found.schedule().name
    if as_json:
        document = {
            "name": found.name,
            "about": found.about,
            "steps": found.steps,
            "seed": found.seed,
            "schedule": schedule,
            "file": str(file),
            "assumptions": list(found.assumptions),
        }
        console.emit(document)
        return
    console.show(
        " ".join(filter(None, (f"{found.name}:", found.about))),
        f"If nothing else is asked for: schedule {schedule}, {count(found.steps, 'step')}, seed "
        f"{found.seed}. Its file:",
    )
    print(file)  # as it is: a wrapped line would not be a path
    console.show("\nAssumed:" if found.assumptions else "\nIt names nothing that is assumed.")
    for text in found.assumptions:
        console.show(fill(text, console.width(), initial_indent="  - ", subsequent_indent="    "))


def schedules(as_json: console.AsJson = False) -> None:
    """List the schedules: what each does, where it is from, what sets it apart from trl.

    A scenario may set axes anew (its [schedule] table), and so may a schedule file.
    """
    from oppo_sim.analysis.documents import schedule_document
    from oppo_sim.policies.catalog import ABOUT, CATALOG

    documents = {name: schedule_document(schedule) for name, schedule in CATALOG.items()}
    if as_json:
        console.emit({name: {**ABOUT[name]._asdict(), **row} for name, row in documents.items()})
        return
    plain = documents["trl"]
    rows = []
    for name, document in documents.items():
        axes = [f"{k} = {_short(v)}" for k, v in document.items() if k != "name" and v != plain[k]]
        about = ABOUT[name]
        rows.append((name, "\n".join([f"{about.idea} ({about.source})", *_joined(axes)])))
    _print(rows)


def _joined(axes: list[str]) -> list[str]:
    return [", ".join(axes)] if axes else []


def _print(rows: list[tuple[str, str]]) -> None:
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for row in rows:
        table.add_row(*row)
    console.show(table)


def _short(value: Any) -> str:
    if not isinstance(value, dict):
        return str(value)
    return f"{value['of_batch']:g} x batch" if "of_batch" in value else str(value["policy"])

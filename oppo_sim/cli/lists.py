"""`oppo scenarios` and `oppo schedules`: what there is to choose from."""

from __future__ import annotations

from typing import Any

from oppo_sim.cli import console


def scenarios(as_json: console.AsJson = False) -> None:
    """List the shipped scenarios."""
    from oppo_sim.config import load_scenario, shipped_scenarios

    found = [load_scenario(name) for name in shipped_scenarios()]
    if as_json:
        console.emit({s.name: {"about": s.about, "steps": s.steps} for s in found})
        return
    _print([(s.name, f"{s.about} Assumed: {len(s.assumptions)}, see its file.") for s in found])


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

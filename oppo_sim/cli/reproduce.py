"""`oppo reproduce`: the paper's rows, simulated."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oppo_sim.cli import console

if TYPE_CHECKING:
    from oppo_sim.analysis.reproduce import Reproduction


def reproduce(
    out: console.Out = None,
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Runs per schedule.")] = 5,
    steps: console.Steps = None,
    seed: Annotated[int, typer.Option(min=0, help="The first seed; the others follow it.")] = 0,
    jobs: console.Jobs = None,
    resume: console.Resume = False,
    as_json: console.AsJson = False,
) -> None:
    """Simulate the paper's speed-ups, and say why.

    With --out: paper_rows.csv, paper_rows.png, README.md with everything that is assumed, and each
    finished run under parts/. --resume keeps finished runs that the same code made.
    """
    from oppo_sim.analysis import reproduce as analysis

    console.need_out(out, resume=resume)
    with console.Meter("simulating the paper's rows", "runs") as meter:
        found = analysis.reproduce(
            out,
            resume=resume,
            seeds=range(seed, seed + seeds),
            steps=steps,
            jobs=jobs,
            progress=meter,
        )
    if as_json:
        console.emit(found.as_dict())
    else:
        _print(found, out)


def _print(found: Reproduction, out: Path | None) -> None:
    from oppo_sim.cli.tables import paper_table

    conditions = [
        f"{comparison.scenario}: {comparison.steps} steps, {len(comparison.seeds)} seeds"
        for comparison in found.comparisons
    ]
    console.show(
        f"{_verdict(found)}\n\n"
        "OPPO's speed-ups over TRL: the paper's, and simulated ones with 95 % intervals over the "
        f"seeds ({'; '.join(conditions)}).",
        paper_table(found.outcomes),
        "role: assumed = numbers chosen by hand, with the paper's rows in view, so agreement is no "
        "evidence; fitted = fitted to this row; held_out = kept for checking.",
        *(f"{text}: {'holds' if holds else 'DOES NOT HOLD'}" for text, holds in found.orderings()),
    )
    for comparison in found.comparisons:
        console.show(f"\nWhy, on {comparison.scenario} (simulated):")
        console.show(*(f"- {text}" for text in comparison.why()))
    if out is not None:
        console.show(
            f"\nWritten to {out}: paper_rows.csv, paper_rows.png, and README.md with everything "
            "that is assumed."
        )
    else:
        console.show("\nWhat is assumed is listed with --out DIR and with --json.")


def _verdict(found: Reproduction) -> str:
    """Who is faster, and by how much, in a sentence."""
    rows = [outcome for outcome in found.outcomes if outcome.row.schedule == "oppo"]
    simulated = [f"{o.simulated.mean:.2f}x on {o.row.scenario}" for o in rows]
    papers = [f"{o.row.paper:.2f}x" for o in rows]
    return (
        f"Simulated, OPPO is faster than TRL: {', '.join(simulated)} (the paper: "
        f"{', '.join(papers)})."
        if all(o.simulated.mean > 1 for o in rows)
        else f"Simulated, OPPO is NOT faster than TRL throughout: {', '.join(simulated)}."
    )

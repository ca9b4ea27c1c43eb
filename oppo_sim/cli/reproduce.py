"""`oppo reproduce`: the paper's rows, simulated."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oppo_sim.cli import console

if TYPE_CHECKING:
    from oppo_sim.analysis.fits import Fit
    from oppo_sim.analysis.reproduce import Reproduction


def reproduce(
    out: console.Out = None,
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Runs per schedule.")] = 5,
    steps: console.Steps = None,
    seed: Annotated[int, typer.Option(min=0, help="The first seed; the others follow it.")] = 0,
    jobs: console.Jobs = None,
    resume: console.Resume = False,
    refit: Annotated[
        bool,
        typer.Option("--refit", help="Fit anew first, in DIR/fit, instead of the shipped fits."),
    ] = False,
    findings: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Experiments (`make figures`) that the page shows, too."),
    ] = None,
    as_json: console.AsJson = False,
) -> None:
    """Simulate the paper's results, and say why.

    With --out: paper_rows.csv, figures, report/ (one page, Markdown and HTML), README.md with
    everything that is assumed, and each finished run under parts/. --resume keeps finished runs
    that the same code made.
    """
    from oppo_sim.analysis import reproduce as analysis
    from oppo_sim.analysis.report import read_findings

    console.need_out(out, resume=resume, refit=refit, findings=findings is not None)
    if findings is not None:
        read_findings(findings)  # before anything is simulated
    fits = changes = None
    if refit and out is not None:
        fits, changes = _refit(out / "fit", resume, jobs)
    with console.Meter("simulating the paper's rows", "runs") as meter:
        found = analysis.reproduce(
            out,
            resume=resume,
            seeds=range(seed, seed + seeds),
            steps=steps,
            jobs=jobs,
            progress=meter,
            fits=fits,
            changes=changes,
            findings=findings,
        )
    if as_json:
        console.emit(found.as_dict())
    else:
        _print(found, out)


def _refit(
    out: Path, resume: bool, jobs: int | None
) -> tuple[dict[str, Fit], dict[str, dict[str, object]]]:
    from oppo_sim.analysis.parts import cores
    from oppo_sim.calibration import refit
    from oppo_sim.calibration.protocol import shipped_protocol

    protocol = shipped_protocol()
    with console.Meter("fitting the paper's rows", "candidates") as meter:
        fits = refit.refit(protocol, out, resume=resume, jobs=jobs or cores(), progress=meter)
    return fits, refit.changes(protocol, fits)


def _print(found: Reproduction, out: Path | None) -> None:
    from oppo_sim.analysis.why import count
    from oppo_sim.cli.tables import paper_table

    conditions = [
        f"{comparison.scenario}: {count(comparison.steps, 'step')}, "
        f"{count(len(comparison.seeds), 'seed')}"
        for comparison in found.comparisons
    ]
    console.show(
        f"{_verdict(found)}\n\n"
        "The paper's numbers, and simulated ones with 80 % intervals over seeds and accepted fits "
        f"({'; '.join(conditions)}).",
        paper_table(found.outcomes, console.width()),
        "role: fitted = the scenario was fitted to this row; held_out = kept for checking; assumed "
        "= what comes out was put in; scenario = by a mechanism that the scenario states, not a "
        "prediction. null: the error of what the paper's other rows would let one expect.",
        "",
        *(f"{text}: {'holds' if holds else 'DOES NOT HOLD'}" for text, holds in found.bars()),
        *(
            f"{text}: {'holds' if holds else 'DOES NOT HOLD'} (means over the seeds)"
            for text, holds in found.orderings()
        ),
    )
    for comparison in found.comparisons:
        console.show(f"\nWhy, on {comparison.scenario} (simulated):")
        for reasons in comparison.why():
            console.show_why(reasons)
    if out is not None:
        console.show(
            f"\nWritten to {out}: report/ (the page), paper_rows.csv, figures, and README.md with "
            "everything that is assumed."
        )
    else:
        console.show("\nWhat is assumed is listed with --out DIR and with --json.")


def _verdict(found: Reproduction) -> str:
    """Who is faster, and by how much, in a sentence: of the rows that are no stated mechanism's."""
    from oppo_sim.analysis.bars import speedups
    from oppo_sim.analysis.paper import CONFIDENCE
    from oppo_sim.analysis.why import times

    rows = [
        (row, mean)
        for row, mean in speedups(found.outcomes)
        if row.schedule == "oppo" and row.role != "scenario"
    ]
    simulated = [f"{times(row.baseline, mean, CONFIDENCE)} on {row.scenario}" for row, mean in rows]
    if any(mean.includes(1) for _, mean in rows):
        return (
            f"Not decided whether OPPO is faster: {'; '.join(simulated)}: an interval includes 1; "
            "use more seeds or steps."
        )
    if not all(mean.mean > 1 for _, mean in rows):
        return f"Simulated, OPPO is NOT faster throughout: {'; '.join(simulated)}."
    papers = [f"{row.shown(row.paper)}x" for row, _ in rows]
    return f"Simulated, OPPO is faster: {'; '.join(simulated)}. The paper: {', '.join(papers)}."

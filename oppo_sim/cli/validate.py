"""`oppo validate`: schedules run for real, simulated with measured costs, and compared."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oppo_sim.cli import console, profile
from oppo_sim.cli.real import real_module
from oppo_sim.cli.validation import validation

if TYPE_CHECKING:
    from oppo_sim.config import Scenario
    from oppo_sim.policies import Schedule

RUNS, SIMULATED = "runs", "simulated"


def validate(
    scenario: Annotated[
        str | None, typer.Argument(metavar="CONFIG", help="A scenario file with a [real] table.")
    ] = None,
    schedules: profile.Schedules = None,
    repeats: Annotated[int, typer.Option(min=1, metavar="N", help="Rounds of all schedules.")] = 3,
    steps: console.Steps = None,
    warmup: Annotated[
        int, typer.Option(min=0, metavar="N", help="First steps of a run that do not count.")
    ] = 1,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="RUN", help="Real runs that are there; nothing is run anew."
        ),
    ] = None,
    costs: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A table of `oppo profile`; else one is measured."),
    ] = None,
    refine: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Scale the table by the first run of this schedule as well, and say how that "
            "predicts the others.",
        ),
    ] = None,
    rescale: Annotated[
        bool,
        typer.Option(
            "--rescale",
            help="The table is of other models: scale it by the products of a token with their "
            "weights.",
        ),
    ] = False,
    budget: profile.Budget = profile.BUDGET_S,
    out: console.Out = None,
    resume: console.Resume = False,
    sets: console.Sets = None,
    as_json: console.AsJson = False,
) -> None:
    """Run schedules on this machine, simulate the same, and say how wrong the simulator was.

    Costs are measured task by task (`oppo profile`), never on the runs, a part before each round,
    since a machine is not always as fast. Schedules take turns for some rounds; then each run is
    simulated with the lengths that it had, and with lengths drawn from the law that fits them.
    Errors are by command, stage, step and run, of speed-ups and of the ranking, beside how much the
    machine differs from itself, with a grade. A run during which other processes took more than 5 %
    of the machine, or its cores were more than 10 % slower than at their best, is timed again,
    twice at most, and left out if its schedule has others:

    \b
      grade   median |error| of a step   worst schedule   speed-ups   tau
      A              5 %                     10 %            4 %      1.0
      B              8 %                     15 %            6 %      0.9
      C             12 %                     20 %           10 %      0.8
      D             20 %                     30 %           15 %      0.6
      E             35 %                     50 %           25 %      0.3

    The grade is the worst of the four; a median need not be below the repeats' spread, if that is
    at most 10 %. --out gets validation.json, steps.csv, page.html, trace.json (for
    https://ui.perfetto.dev), the table and all runs; --resume keeps those that are done. --from
    takes a folder of `oppo train`, or --out of another validation, and needs no torch.

    \b
    Example:
      oppo validate experiments/configs/real/cpu-small.toml --out small
      oppo validate --from small/runs/oppo-0
    """
    from oppo_sim.calibration.tables import table_of
    from oppo_sim.calibration.validated import check_refining
    from oppo_sim.config import load_scenario, load_schedules
    from oppo_sim.costs import measurements
    from oppo_sim.runs import claim_folder

    if (scenario is None) == (source is None):
        raise ValueError("name a CONFIG to run, or --from RUN that was run before: one of the two")
    order: list[str] = []
    if source is None:
        assert scenario is not None
        loaded = load_scenario(scenario, console.overrides(sets))
        real_module("rounds", "running for real").real_of(loaded)
        chosen = load_schedules(schedules, loaded)
        names = [schedule.name for schedule in chosen]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"--schedules: {twice!r} is there twice: rename one, or leave it out")
        if refine is not None:
            check_refining(refine, names * repeats)
        if costs is not None:
            measurements(str(costs.resolve()))
        if out is None:
            raise ValueError("--out DIR is missing: name a folder for the runs and the report")
        claim_folder(out, resume=resume)
        table = _run(loaded, chosen, repeats, steps, costs, budget, out)
        source, order = out, names
    else:
        given = {"--schedules": schedules, "--steps": steps, "--set": sets}
        idle = next((name for name, value in given.items() if value), None)
        if idle is not None:
            raise ValueError(
                f"{idle} changes nothing of runs that are there: leave it or --from out"
            )
        table = table_of(source, costs)
        if out is not None:
            claim_folder(out, resume=resume)
    document = _compared(source, order, table, warmup, refine, rescale, out)
    if as_json:
        console.emit(document)
    else:
        validation(document, out)


def _compared(
    source: Path,
    order: list[str],
    table: Path,
    warmup: int,
    refine: str | None,
    rescale: bool,
    out: Path | None,
) -> dict[str, Any]:
    """What `--json` prints; with `out`, all else that is written."""
    from oppo_sim.calibration.realruns import real_runs, settled
    from oppo_sim.calibration.tables import about
    from oppo_sim.calibration.validated import (
        check_refining,
        notes_of,
        refined_document,
        rescaled_table,
        validated,
        write,
    )

    with ExitStack() as stack:
        runs, left_out = settled(real_runs(source, order), table)
        if refine is not None:
            check_refining(refine, [real.schedule for real in runs])
        place = out if out is not None else Path(stack.enter_context(TemporaryDirectory()))
        scaling = None
        if rescale:
            table, scaling = rescaled_table(runs, table, place)
        simulated = _cleared(place / SIMULATED, [real.folder for real in runs])
        meter = stack.enter_context(console.Meter("simulating", "runs"))
        fidelity, beyond = validated(runs, table, simulated, warmup, meter)
        said = about(str(runs[0].recorded.run.header.scenario["name"]), table)
        notes = [*left_out, *notes_of(runs, table, fidelity), *beyond]
        measured_on = runs[0].machine.get("machine", "a machine that nobody noted")
        found = fidelity.as_dict()
        document = {**said, "measured_on": measured_on, **found, "notes": notes}
        if scaling is not None:
            document["rescaled"] = scaling
        if refine is not None:
            document["refined"] = refined_document(runs, table, place, fidelity, refine)
        if out is not None:
            write(out, runs, fidelity, document, simulated, said)
    return document


def _run(
    loaded: Scenario,
    schedules: list[Schedule],
    repeats: int,
    steps: int | None,
    costs: Path | None,
    budget: float,
    out: Path,
) -> Path:
    """All rounds, into out/runs; the table that goes with them."""
    from oppo_sim.analysis.documents import header_of
    from oppo_sim.calibration.tables import TABLE, joined, probe_s

    rounds = real_module("rounds", "running for real")
    chosen = {schedule.name: schedule for schedule in schedules}
    parts: list[Path] = []
    fastest_s = inf
    for name, repeat in rounds.rounds([*chosen], repeats):
        if costs is None and repeat == len(parts):
            part = out / f"costs-{repeat}.csv"
            _measure(loaded, [*chosen.values()], budget / repeats, part)
            parts.append(part)
            fastest_s = min(fastest_s, probe_s(part))
        header = header_of(
            loaded, chosen[name], seed=None, steps=steps, spans=True, role="measured"
        )
        folder = out / RUNS / f"{name}-{repeat}"
        if rounds.is_done(folder, header):
            continue
        run = rounds.undisturbed(loaded, chosen[name], header, folder, fastest_s)
        words = (
            f", {run.elsewhere:.0%} of the machine taken by others" if run.elsewhere > 0.01 else ""
        )
        if run.probe_s > 1.02 * fastest_s:
            words += f", cores {run.probe_s / fastest_s - 1:.0%} slower than at their best"
        fastest_s = min(fastest_s, run.probe_s)
        print(
            f"{loaded.name}: {name}, round {repeat + 1} of {repeats}: {run.step_s:.2f} s per step"
            f"{words}",
            file=sys.stderr,
            flush=True,
        )
    return joined(parts, out / TABLE) if costs is None else costs


def _measure(scenario: Scenario, schedules: list[Schedule], budget_s: float, table: Path) -> None:
    """A part of the table, unless there is one of this machine and these models."""
    from oppo_sim.costs import measurements
    from oppo_sim.costs.identity import differences
    from oppo_sim.runs import write_whole

    if table.exists():
        here = real_module("profile.measure", "profiling").described(scenario)
        other = differences(measurements(str(table.resolve())).provenance, here)
        if not other:
            return
        print(f"{table} is measured again: {'; '.join(other)}", file=sys.stderr)
    write_whole(table, profile.measured(scenario, schedules, budget_s).text())


def _cleared(folder: Path, runs: list[Path]) -> Path:
    """Simulations are made anew: they take no time. What is none stays, and is refused."""
    import shutil

    whole = folder.resolve()
    mine = [
        entry
        for entry in folder.glob("*")
        if not (entry / "run.json").is_file() and not (entry.is_dir() and not any(entry.iterdir()))
    ]
    mine += [run for run in runs if run.resolve().is_relative_to(whole)]
    if mine:
        raise ValueError(f"{mine[0]}: {folder} is made anew, and this is no simulation: move it")
    shutil.rmtree(folder, ignore_errors=True)
    return folder

"""`oppo compare`: schedules against each other on common random numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oppo_sim.cli import console, notes

if TYPE_CHECKING:
    from oppo_sim.analysis.compare import Comparison

FILE = "comparison.json"


def compare(
    scenario: console.Scenario,
    schedules: Annotated[
        str,
        typer.Option(
            metavar="A,B,...", help="Names or files; the others are compared with the first."
        ),
    ] = "trl,intra,inter,oppo",
    seeds: Annotated[
        int, typer.Option(min=1, max=10_000, metavar="N", help="Runs per schedule.")
    ] = 5,
    steps: console.Steps = None,
    seed: console.Seed = None,
    sets: console.Sets = None,
    jobs: console.Jobs = None,
    out: console.Out = None,
    resume: console.Resume = False,
    as_json: console.AsJson = False,
) -> None:
    """Say which schedule is faster, by how much, and why.

    Seed by seed, rollout i has the same prompt, length and reward noise under every schedule.
    Speed-up: the ratio of mean step times, their geometric mean over the seeds, with a 95 %
    interval paired by seed.
    With --out: comparison.json, and each finished run under parts/, which --resume keeps. A folder
    takes no other comparison, but this one with more seeds.
    """
    from oppo_sim.analysis import claims
    from oppo_sim.analysis import compare as analysis
    from oppo_sim.config import load_scenario, load_schedule
    from oppo_sim.simulate import check, remarks

    console.need_out(out, resume=resume)
    loaded = load_scenario(scenario, console.overrides(sets))
    chosen = [load_schedule(name.strip(), loaded) for name in schedules.split(",") if name.strip()]
    first = loaded.seed if seed is None else seed
    its_seeds = range(first, first + seeds)
    analysis.check_comparable([(loaded, chosen)], its_seeds)
    for schedule in chosen:
        check(loaded, schedule, loaded.steps if steps is None else steps)
    notes.say(remarks(loaded, chosen))
    keep = None
    if out is not None:
        header = claims.comparison(loaded, chosen, its_seeds, steps)
        keep = claims.claim(out, header, resume=resume)
    with console.Meter(f"comparing on {loaded.name}", "runs") as meter:
        comparison = analysis.compare(
            loaded,
            chosen,
            its_seeds,
            steps,
            jobs,
            keep=keep,
            progress=meter,
        )
    if out is not None:
        _write(out, comparison)
    if as_json:
        console.emit(comparison.as_dict())
    else:
        _print(comparison, out)


def _write(out: Path, comparison: Comparison) -> None:
    from oppo_sim.runs import write_whole

    write_whole(out / FILE, json.dumps(comparison.as_dict(), indent=2, allow_nan=False) + "\n")


def _print(comparison: Comparison, out: Path | None) -> None:
    from oppo_sim.analysis.why import count
    from oppo_sim.cli.tables import LEGEND, comparison_table

    console.show(
        f"{comparison.verdict()}\n",
        f"{comparison.called}: {count(comparison.steps, 'step')}, "
        f"{count(len(comparison.seeds), 'seed')}, common random numbers. Every number is "
        "simulated.",
        comparison_table(comparison, console.width()),
        LEGEND,
        f"speed-up: over {comparison.standings[0].name}; ±: half of the 95 % interval over the "
        "seeds, paired for the speed-up.",
    )
    for reasons in comparison.why():
        console.show("")
        console.show_why(reasons)
    if out is not None:
        console.show(f"\nWritten to {out / FILE}")

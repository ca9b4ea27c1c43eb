"""`oppo sweep`: many settings of a scenario, against a baseline."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oppo_sim.cli import console, notes

if TYPE_CHECKING:
    from oppo_sim.search.result import Result
    from oppo_sim.search.spec import Sweep
    from oppo_sim.search.summary import Summary


class Backend(StrEnum):
    loky = "loky"
    ray = "ray"
    dask = "dask"


SOME_FAILED = 1  # exit code
MOST_DRAWN = 100_000  # points


def sweep(
    file: Annotated[
        str, typer.Argument(metavar="SWEEP", help="A TOML file: scenario, axes, seeds, method.")
    ],
    seeds: console.PointSeeds = None,
    steps: console.Steps = None,
    sets: console.Sets = None,
    jobs: console.Jobs = None,
    out: console.Out = None,
    resume: console.Resume = False,
    keep_runs: Annotated[
        bool, typer.Option("--keep-runs", help="Leave a run folder for each run, under runs/.")
    ] = False,
    page: Annotated[
        bool,
        typer.Option("--page", help="Leave an interactive page, sweep.html (extra [pages])."),
    ] = False,
    backend: Annotated[
        Backend,
        typer.Option(help="Whose processes: this machine's (loky), a Ray or Dask cluster's."),
    ] = Backend.loky,
    address: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Of a cluster that runs, such as auto or tcp://n1:8786"
        ),
    ] = None,
    as_json: console.AsJson = False,
) -> int | None:
    """Simulate every point of a sweep, and say what each gains over the baseline.

    Seed by seed, all points and the baseline have the same prompts, lengths and reward noise; a
    baseline that points have in common is simulated once. Axes are dotted paths, as of --set, or
    `schedule`, by names and files.
    With --out: results.parquet and results.csv, a row per point, the same bytes whatever --jobs and
    however often it was stopped, and journal.jsonl, from which --resume goes on; heatmap.png, where
    two axes are numbers, and front.png, as of `oppo plot`. A point that fails is a row with its
    error, the others go on, and the exit code is 1.
    """
    from oppo_sim.config import value_of
    from oppo_sim.search.spec import load_sweep

    console.need_out(out, resume=resume, page=page, **{"keep-runs": keep_runs})
    if address is not None and backend is Backend.loky:
        raise ValueError(f"--address {address}: only --backend ray and dask have one")
    overrides = {path: value_of(text) for path, text in console.overrides(sets).items()}
    loaded = load_sweep(file, overrides=overrides, steps=steps, seeds=seeds)
    remark(loaded)
    if out is not None:
        from oppo_sim.search import folder

        folder.claim(out, loaded, resume=resume, keep_runs=keep_runs)
        if keep_runs:
            runs = (out / folder.RUNS).resolve()
            loaded = replace(loaded, problem=replace(loaded.problem, keep=runs))
    with or_temporary(out) as place:
        summary = _run(loaded, place, jobs, backend, address)
    if out is not None:
        _draw(loaded, summary, out, page)
    if as_json:
        console.emit({**summary.as_dict(loaded), "results": None if out is None else str(out)})
    else:
        _print(loaded, summary, out)
    return SOME_FAILED if summary.failed else None


def remark(of: Sweep) -> None:
    """On the first values of all axes, if they go together."""
    from oppo_sim.simulate import remarks

    first = {axis.path: axis.listed()[0] for axis in of.axes}
    try:
        scenario, schedule = of.problem.built("point", first)
    except ValueError:
        return
    notes.say(remarks(scenario, [schedule]))


@contextmanager
def or_temporary(out: Path | None) -> Iterator[Path]:
    if out is not None:
        yield out
        return
    with TemporaryDirectory(prefix="oppo-points-") as made:
        yield Path(made)


def _run(
    loaded: Sweep, place: Path, jobs: int | None, backend: str, address: str | None
) -> Summary:
    from oppo_sim.analysis.parts import cores
    from oppo_sim.search.clusters import connected
    from oppo_sim.search.folder import JOURNAL
    from oppo_sim.search.journal import Journal
    from oppo_sim.search.summary import Summary
    from oppo_sim.search.sweep import Driver
    from oppo_sim.search.table import write_tables
    from oppo_sim.search.workers import Workers

    summary, began = Summary(), monotonic()
    with Journal(place / JOURNAL, len(loaded.design()), loaded.seeds) as journal:
        driver = Driver(loaded, journal)
        with (
            connected(backend, address, jobs or cores()) as connection,
            console.Meter(
                f"sweeping {loaded.problem.document['name']}", "runs", says_left=True
            ) as meter,
        ):
            many = jobs or (-1 if address else cores())
            driver.run(Workers(loaded.problem, many, connection), meter)
        write_tables(place, loaded.axes, summary.watch(driver.results()))
    summary.runs, summary.wall_s = driver.ran, monotonic() - began
    return summary


def _draw(loaded: Sweep, summary: Summary, out: Path, page: bool) -> None:
    """Pictures of a sweep that is not too large for them, and its page on request."""
    if not summary.ok or summary.ok + summary.failed > MOST_DRAWN:
        return
    from oppo_sim.runs import write_whole
    from oppo_sim.search import pictures
    from oppo_sim.search.page import PAGE
    from oppo_sim.search.page import page as page_of
    from oppo_sim.search.swept import read_swept

    swept = read_swept(out)
    for kind in pictures.PICTURES:
        if kind != "heatmap" or len(swept.numeric) > 1:
            write_whole(out / f"{kind}.png", pictures.draw(swept, kind, "png"))
    if page:
        write_whole(out / PAGE, page_of(swept, loaded.problem, loaded.design(), loaded.seeds.first))


def _print(loaded: Sweep, summary: Summary, out: Path | None) -> None:
    from oppo_sim.analysis.why import count
    from oppo_sim.search.table import PARQUET

    points = summary.ok + summary.failed
    failed = f", {summary.failed} failed" if summary.failed else ""
    console.show(
        f"{loaded.problem.document['name']}: {count(points, 'point')}{failed}, "
        f"{count(summary.runs, 'run')} simulated in {summary.wall_s:.0f} s, common random numbers. "
        "Every number is simulated.",
    )
    if summary.best:
        console.show(points_table(loaded, summary.best))
        base = loaded.problem.baseline
        said = f"speed-up: over {base}; ±: half of the 95 % interval over the seeds, paired."
        console.show(said if base else "±: half of the 95 % interval over the seeds.")
    for result in summary.errors:
        at = ", ".join(f"{path} = {value}" for path, value in result.values.items())
        console.show(f"Point {result.point} failed ({at}): {result.error}")
    if len(summary.errors) < summary.failed:
        console.show(f"... and {summary.failed - len(summary.errors)} more")
    if out is not None:
        console.show(f"\nWritten to {out / PARQUET}, and the same as CSV.")


def points_table(loaded: Sweep, best: list[Result]) -> Any:
    """Points in the order in which they come."""
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    from oppo_sim.analysis.why import plain
    from oppo_sim.search.axes import last_names

    table = Table(box=SIMPLE, pad_edge=False, collapse_padding=True)
    paths = [axis.path for axis in loaded.axes]
    speedup = [] if loaded.problem.baseline is None else ["speed-up", "± x"]
    shown = [
        "point",
        *last_names(tuple(paths)).values(),
        "step s",
        "± s",
        *speedup,
        "stale",
        "seeds",
    ]
    for number, name in enumerate(shown):
        table.add_column(Text(name), justify="left" if 0 < number <= len(paths) else "right")
    for result in best:
        cells = [str(result.point), *(str(result.values[path]) for path in paths)]
        for mean in (result.step_s, result.speedup):
            if mean is not None:
                half = None if mean.low is None or mean.high is None else mean.high - mean.low
                cells += [plain(mean.mean, 4), "-" if half is None else plain(half / 2, 2)]
        cells += [plain(result.staleness or 0.0, 2), str(result.seeds)]
        table.add_row(*map(Text, cells))  # brackets in names are no markup
    return table

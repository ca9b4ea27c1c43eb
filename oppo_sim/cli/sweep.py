"""`oppo sweep`: many settings of a scenario, against a baseline."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from oppo_sim.cli import Interrupted, console, notes
from oppo_sim.cli.points import points_table, show_summary

if TYPE_CHECKING:
    from oppo_sim.search.spec import Sweep
    from oppo_sim.search.summary import Summary


class Backend(StrEnum):
    loky = "loky"
    ray = "ray"
    dask = "dask"


__all__ = ["or_temporary", "points_table", "remark", "sweep"]

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
    baseline that points have in common is simulated once.

    \b
    A sweep file, such as:
      scenario = "tiny"
      steps = 20
      seeds = 3
      [axes]
      schedule = ["oppo", "response"]
      "schedule.chunk" = { low = 25, high = 100, log = true, count = 3 }

    \b
    Its keys, all but scenario and axes optional:
      scenario     a shipped name, or a file; paths are relative to the sweep file
      axes         by dotted paths, as of --set, and `schedule` by names and files:
                   a list, or { low, high, log, count }; count is a grid's
      set          keys of the scenario, the same at all points
      schedule     of all points; else the scenario's
      baseline     what speed-ups are over; "trl" if not given, "none" for none
      steps        PPO steps; else the scenario's
      seed, seeds  the first; how many runs a point has, 5 if not given
      enough       such as 0.02: more seeds until half of the interval is below
                   this share of the mean, max_seeds at most
      method       "grid", or "random" or "latin", which take `points` values,
                   drawn with draw_seed
      about        a note of your own

    \b
    Columns of the results, means over the seeds:
      step_s          seconds per step; step_low_s, step_high_s: 95 % interval
      speedup         over the baseline, paired by seed; _low, _high: as above
      staleness       versions from a rollout's oldest token to its training
      deferred_share  of the trained rollouts, carried over at least once
      length_bias     trained over admitted tokens, less 1; < 0: long ones lack
      busy            devices' share of the time
      wasted_share    of the decoded tokens, thrown away
      kv_peak_tokens  in the KV memory of one lane, the most of all seeds
      status, error   ok, or failed and why

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
        summary = _run(loaded, place, jobs, backend, address, out is not None)
    drawn: list[str] = []
    if out is not None:
        drawn = _draw(loaded, summary, out, page)
    if as_json:
        console.emit({**summary.as_dict(loaded), "results": None if out is None else str(out)})
    else:
        show_summary(loaded, summary, out, drawn)
    return SOME_FAILED if summary.failed else None


def remark(of: Sweep) -> None:
    """What is odd at its points: of each kind the first, and how many points it is true of.

    Of a search, which has no points yet, where its axes begin and end.
    """
    from oppo_sim.analysis.why import count
    from oppo_sim.search.spec import SEARCH
    from oppo_sim.simulate import remarks

    said: dict[str, list[str]] = {}
    looked_at = 0
    for looked_at, values in enumerate(of.some(), 1):  # noqa: B007
        try:
            scenario, schedule = of.problem.built("point", values)
        except (ValueError, OverflowError):
            continue
        for text in remarks(scenario, [schedule]):
            said.setdefault(_kind(text), []).append(text)
    if of.method == SEARCH:
        notes.say(texts[0] for texts in said.values())
        return
    notes.say(
        f"{texts[0]} (so at {len(texts)} of {count(looked_at, 'point')})" for texts in said.values()
    )


def _kind(remark: str) -> str:
    """The same for remarks that differ in who they are about, or in numbers."""
    return re.sub(r"[\d.,% ]+", " ", remark.rpartition(": ")[0].partition(": ")[2] or remark)


@contextmanager
def or_temporary(out: Path | None) -> Iterator[Path]:
    if out is not None:
        yield out
        return
    with TemporaryDirectory(prefix="oppo-points-") as made:
        yield Path(made)


def _run(
    loaded: Sweep,
    place: Path,
    jobs: int | None,
    backend: str,
    address: str | None,
    is_kept: bool,
) -> Summary:
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
            connected(backend, address, jobs) as connection,
            console.Meter(
                f"sweeping {loaded.problem.document['name']}", "runs", says_left=True
            ) as meter,
        ):
            try:
                driver.run(Workers(loaded.problem, connection), meter)
            except KeyboardInterrupt:
                raise Interrupted(_stopped(meter, is_kept)) from None
        write_tables(place, loaded.axes, summary.watch(driver.results()))
        summary.decide(driver.speeds)
    summary.runs, summary.wall_s = driver.ran, monotonic() - began
    return summary


def _stopped(meter: console.Meter, is_kept: bool) -> str:
    done, total = meter.done or (0, 0)
    after = f" after {done} of {total} runs" if total else ""
    goes_on = "the same command with --resume goes on" if is_kept else "--out DIR would keep them"
    return f"interrupted{after}; {goes_on}"


def _draw(loaded: Sweep, summary: Summary, out: Path, page: bool) -> list[str]:
    """Pictures of a sweep that is not too large for them, and its page on request; their names."""
    if not summary.ok or summary.ok + summary.failed > MOST_DRAWN:
        return []
    from oppo_sim.runs import write_whole
    from oppo_sim.search import pictures
    from oppo_sim.search.page import PAGE
    from oppo_sim.search.page import page as page_of
    from oppo_sim.search.swept import read_swept

    swept, written = read_swept(out), []
    for kind in pictures.PICTURES:
        if kind != "heatmap" or len(swept.numeric) > 1:
            written.append(f"{kind}.png")
            write_whole(out / written[-1], pictures.draw(swept, kind, "png"))
    if page:
        written.append(PAGE)
        write_whole(out / PAGE, page_of(swept, loaded.problem, loaded.design(), loaded.seeds.first))
    return written

"""The points of a sweep as a table, and what is said around it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oppo_sim.cli import console

if TYPE_CHECKING:
    from oppo_sim.search.result import Result
    from oppo_sim.search.spec import Sweep
    from oppo_sim.search.summary import Summary


def show_summary(loaded: Sweep, summary: Summary, out: Path | None, drawn: list[str]) -> None:
    """How many points, the best of them with what to know of it, and what failed.

    `drawn`: the files in `out` beside the tables.
    """
    from oppo_sim.analysis.why import count
    from oppo_sim.search.table import CSV, PARQUET

    points = summary.ok + summary.failed
    failed = f", {summary.failed} failed" if summary.failed else ""
    console.show(
        f"{loaded.problem.document['name']}: {count(points, 'point')}{failed}, "
        f"{count(summary.runs, 'run')} simulated in {summary.wall_s:.0f} s, common random numbers. "
        "Every number is simulated.",
    )
    if summary.best:
        console.show(points_table(loaded, [row.shown(loaded.axes) for row in summary.best]))
        for line in _below(loaded, summary, out):
            console.show(line)
    for result in summary.errors:
        at = ", ".join(f"{path} = {value}" for path, value in result.values.items())
        console.show(f"Point {result.point} failed ({at}): {result.error}")
    if len(summary.errors) < summary.failed:
        console.show(f"... and {summary.failed - len(summary.errors)} more")
    if out is not None:
        console.show(f"\nWritten to {out}: {', '.join([PARQUET, CSV, *drawn])}")


def _below(loaded: Sweep, summary: Summary, out: Path | None) -> Iterator[str]:
    """What the table of the best does not say itself."""
    from oppo_sim.analysis.why import count
    from oppo_sim.search.table import CSV

    more = summary.ok - sum(row.count for row in summary.best)
    if more:
        where = "--out DIR writes them all" if out is None else f"in {CSV}"
        yield f"{count(more, 'more point')}: {where}."
    if any(row.count > 1 for row in summary.best):
        yield (
            "any, or several values of an axis: points with the same numbers, where the axis "
            "changes nothing."
        )
    base, its_seeds = loaded.problem.baseline, {row.first.seeds for row in summary.best}
    many = count(its_seeds.pop(), "seed") if len(its_seeds) == 1 else "seeds"
    half = f"±: half of the 95 % interval over the {many}"
    yield f"speed-up: over {base}; {half}, paired." if base else f"{half}."
    yield (
        "stale: mean staleness, in versions. Seconds per step only: what late rollouts cost in "
        "learning is not in it."
    )
    yield from filter(None, (summary.decided(), summary.edges(loaded.axes)))


def points_table(loaded: Sweep, best: list[Result]) -> Any:
    """Points in the order in which they come; their seeds where these differ."""
    from rich.box import SIMPLE
    from rich.table import Table

    from oppo_sim.analysis.why import plain
    from oppo_sim.search.axes import last_names

    table = Table(box=SIMPLE, pad_edge=False, collapse_padding=True)
    paths = [axis.path for axis in loaded.axes]
    speedup = [] if loaded.problem.baseline is None else ["speed-up", "± x"]
    its_seeds = ["seeds"] if len({result.seeds for result in best}) > 1 else []
    names = last_names(tuple(paths)).values()
    shown = ["point", *names, "step s", "± s", *speedup, "stale", *its_seeds]
    for number, name in enumerate(shown):
        table.add_column(name, justify="left" if 0 < number <= len(paths) else "right")
    for result in best:
        cells = [str(result.point), *(str(result.values[path]) for path in paths)]
        cells += mean_cells(result)
        cells += [plain(result.staleness or 0.0, 2), *([str(result.seeds)] if its_seeds else [])]
        table.add_row(*cells)
    return table


def mean_cells(result: Result) -> list[str]:
    """Step time and speed-up, as far as there are, each with half of its interval."""
    from oppo_sim.analysis.why import plain

    cells: list[str] = []
    for mean in (result.step_s, result.speedup):
        if mean is not None:
            half = None if mean.low is None or mean.high is None else mean.high - mean.low
            cells += [plain(mean.mean, 4), "-" if half is None else plain(half / 2, 2)]
    return cells

"""What a search found, for the screen: the best points beside the schedule as it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oppo_sim.search.result import Result
    from oppo_sim.search.sought import Search

EXTRA = {"length_bias": "length bias", "kv_peak": "KV peak"}  # shown where they are asked for
FITS = {True: "yes", False: "no"}


def table(loaded: Search, best: list[Result], reference: Result) -> Any:
    """Points in the order in which they come, and below them the schedule as it stands.

    `fits`: keeps all constraints.
    """
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    from oppo_sim.search.axes import last_names
    from oppo_sim.search.winner import as_it_stands

    paths = [axis.path for axis in loaded.space.axes]
    extra = [name for name in loaded.goals.asked if name in EXTRA]
    shown = [
        *("point", *last_names(tuple(paths)).values(), "step s", "± s"),
        *([] if loaded.space.problem.baseline is None else ["speed-up", "± x"]),
        *("stale", *(EXTRA[name] for name in extra), "seeds"),
        *(["fits"] if loaded.goals.bounds else []),
    ]
    made = Table(box=SIMPLE, pad_edge=False, collapse_padding=True)
    for number, name in enumerate(shown):
        made.add_column(Text(name), justify="left" if 0 < number <= len(paths) else "right")
    for result in best:
        values = [str(result.values[path]) for path in paths]
        made.add_row(*map(Text, _row(loaded, extra, result, str(result.point), values)))
    if reference.is_ok:
        made.add_section()
        values = [as_it_stands(loaded.space.problem, path) for path in paths]
        made.add_row(*map(Text, _row(loaded, extra, reference, "as is", values)))
    return made


def _row(
    loaded: Search, extra: list[str], result: Result, name: str, values: list[str]
) -> list[str]:
    from oppo_sim.analysis.why import plain
    from oppo_sim.cli.points import mean_cells
    from oppo_sim.search.goals import told

    cells = [name, *values, *mean_cells(result)]
    cells += [plain(result.staleness or 0.0, 2)]
    cells += [told(metric, result, unit=False) for metric in extra]
    cells += [str(result.seeds)]
    return [*cells, *([FITS[loaded.goals.keeps_bounds(result)]] if loaded.goals.bounds else [])]


def against(loaded: Search, best: Result | None, reference: Result) -> str:
    """The winner, if there is one, beside the schedule as it stands."""
    from oppo_sim.search.goals import told

    goals = loaded.goals
    first = goals.objectives[0]
    own = "The schedule as it stands"
    if not reference.is_ok:
        return f"{own} fails: {reference.error}"
    name = loaded.space.problem.built("point", {})[1].name
    said = f"{own} ({name}) has {first} {told(first, reference)}"
    broken = [f"{bound} ({told(bound.metric, reference)})" for bound in goals.broken(reference)]
    if broken:
        said += f", but breaks {' and '.join(broken)}"
    elif goals.bounds:
        said += ", and keeps all constraints"
    if best is None:
        return f"{said}."
    said = f"Point {best.point} has {first} {told(first, best)}. {said}."
    if not broken and goals.losses(reference)[0] <= goals.losses(best)[0]:
        said += " No point that was tried is better than it: try more (--trials), or keep it."
    return said


def nearest(loaded: Search, results: list[Result]) -> list[str]:
    """Of each constraint that no point keeps, the point that came nearest."""
    from oppo_sim.search.goals import told

    lines = []
    for bound in loaded.goals.bounds:
        closest = min(results, key=bound.excess, default=None)
        if closest is not None and bound.excess(closest) > 0:
            side = "least" if bound.is_most else "most"
            value = told(bound.metric, closest)
            lines.append(f"{bound.metric}: the {side} seen was {value} (point {closest.point}).")
    return lines

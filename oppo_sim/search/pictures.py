"""Pictures of a sweep or a search: speed-up over two axes, and what staleness buys."""

from __future__ import annotations

from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from oppo_sim.analysis import canvas
from oppo_sim.config.errors import nearest
from oppo_sim.runs import RunError
from oppo_sim.search.axes import last_names
from oppo_sim.search.standing import Standing, of_sweep
from oppo_sim.search.swept import Swept

PICTURES = ("heatmap", "front")
MOST_CELLS = 30  # along an axis
MOST_TOLD = 144  # cells that are wide enough for their numbers
FILLED = 0.5  # share of the cells that have a point: fewer, as of a random design, are dots
LABELLED = 12  # points of a front
OUT = "breaks a constraint, or was given up after fewer seeds"


def draw(
    swept: Swept,
    kind: str,
    form: str,
    axes: tuple[str, str] | None = None,
    standing: Standing | None = None,
) -> bytes:
    """A picture in one of `canvas.FORMATS`; the same bytes for the same table."""
    if kind not in PICTURES:
        raise RunError(f"--kind {kind}: no such picture of a sweep; {nearest(kind, PICTURES)}")
    if kind == "front" and axes is not None:
        raise RunError(f"--axes {','.join(axes)}: only a heatmap has them; leave it out")
    with canvas.style():
        figure = front(swept, standing) if kind == "front" else heatmap(swept, axes, standing)
        return canvas.encode(figure, form)


def heatmap(
    swept: Swept, axes: tuple[str, str] | None = None, standing: Standing | None = None
) -> Figure:
    """Speed-up, or step time, over two axes of numbers; of the others the best value each.

    What may not win is hatched, or a cross, and is not the best as long as another may.
    """
    x, y = _two(swept, axes)
    standing = standing or of_sweep(swept.table)
    name = "speedup" if swept.baseline else "step_s"
    ascending = name == "step_s"
    best = swept.table.assign(may_win=standing.may_win)
    best = best.sort_values(["may_win", name], ascending=[False, ascending], kind="stable")
    best = best.drop_duplicates([x, y])
    figure = canvas.figure(8.0, 5.2)
    panel = figure.add_subplot()
    across, up = np.sort(best[x].unique()), np.sort(best[y].unique())
    is_grid = max(len(across), len(up)) <= MOST_CELLS
    image: AxesImage | PathCollection
    if is_grid and len(best) >= FILLED * len(across) * len(up):
        image = _cells(panel, best, (x, y, name), across, up)
    else:
        image = _dots(panel, best, (x, y, name))
    is_winner = swept.table["point"] == standing.winner
    marked = best[best["may_win"]] if standing.winner is None else swept.table[is_winner]
    if len(marked) and (isinstance(image, AxesImage) or is_winner.any()):
        at_x, at_y = marked[x].iloc[0], marked[y].iloc[0]
        if isinstance(image, AxesImage):
            at_x, at_y = np.searchsorted(across, at_x), np.searchsorted(up, at_y)
        panel.plot(at_x, at_y, "s", markersize=26 if isinstance(image, AxesImage) else 14,
                   markerfacecolor="none", markeredgecolor=canvas.VERMILION,
                   markeredgewidth=2)  # fmt: skip
    names = last_names(swept.axes)
    panel.set_xlabel(names[x])
    panel.set_ylabel(names[y])
    what = f"speed-up over {swept.baseline}" if swept.baseline else "seconds per step"
    figure.colorbar(image, ax=panel, label=what)
    rest = [names[axis] for axis in swept.axes if axis not in (x, y)]
    of_best = f"; the best {', '.join(rest)} each" if rest else ""
    of_out = "" if best["may_win"].all() else f"\nHatched, or a cross: {OUT}"
    _title(panel, f"{what.capitalize()} (± half of the 95 % interval){of_best}{of_out}", swept)
    return figure


def _two(swept: Swept, axes: tuple[str, str] | None) -> tuple[str, str]:
    for axis in axes or ():
        if axis not in swept.numeric:
            known = ", ".join(swept.numeric) or "none"
            raise RunError(f"--axes {axis}: is no axis of several numbers; those are: {known}")
    if axes is not None and axes[0] == axes[1]:
        raise RunError(f"--axes {axes[0]},{axes[1]}: names the same axis twice; name two")
    if axes is not None:
        return axes
    if len(swept.numeric) < 2:
        raise RunError(
            "a heat map needs two axes of several numbers, and this sweep has "
            f"{len(swept.numeric)}; try --kind front"
        )
    return swept.numeric[0], swept.numeric[1]


def _cells(
    panel: Axes,
    best: pd.DataFrame,
    columns: tuple[str, str, str],
    across: NDArray[Any],
    up: NDArray[Any],
) -> AxesImage:
    x, y, name = columns
    values = np.full((len(up), len(across)), np.nan)
    low, high = (
        ("step_low_s", "step_high_s") if name == "step_s" else (f"{name}_low", f"{name}_high")
    )
    is_told = values.size <= MOST_TOLD
    scale = best[name].min(), best[name].max()
    for _, row in best.iterrows():
        place = np.searchsorted(across, row[x]), np.searchsorted(up, row[y])
        values[place[1], place[0]] = row[name]
        if is_told:
            half = (row[high] - row[low]) / 2
            text = f"{row[name]:.3g}" + ("" if np.isnan(half) else f"\n± {half:.2g}")
            share = (row[name] - scale[0]) / ((scale[1] - scale[0]) or 1)
            panel.text(*place, text, ha="center", va="center", size=7,
                       color="black" if share > 0.55 else "white")  # fmt: skip
    panel.set_xticks(range(len(across)), [f"{each:g}" for each in across], rotation=45)
    panel.set_yticks(range(len(up)), [f"{each:g}" for each in up])
    image = panel.imshow(values, origin="lower", aspect="auto", cmap="cividis")
    for _, row in best[~best["may_win"]].iterrows():
        place = np.searchsorted(across, row[x]), np.searchsorted(up, row[y])
        panel.add_patch(Rectangle((place[0] - 0.5, place[1] - 0.5), 1, 1, fill=False, hatch="///",
                                  edgecolor=canvas.GREY, linewidth=0))  # fmt: skip
    return image


def _dots(panel: Axes, best: pd.DataFrame, columns: tuple[str, str, str]) -> PathCollection:
    """Crosses where a point may not win, in the same colours."""
    x, y, name = columns
    scale = {"cmap": "cividis", "vmin": best[name].min(), "vmax": best[name].max()}
    may, out = best[best["may_win"]], best[~best["may_win"]]
    if len(out):
        panel.scatter(out[x], out[y], c=out[name], s=30, marker="x", linewidths=1.2, **scale)
    return panel.scatter(may[x], may[y], c=may[name], s=42, edgecolors="black", linewidths=0.4,
                         **scale)  # fmt: skip


def front(swept: Swept, standing: Standing | None = None) -> Figure:
    """Step time against staleness; of what may win, what nothing beats in both is joined."""
    standing = standing or of_sweep(swept.table)
    table, names = swept.table[standing.may_win], last_names(swept.axes)
    figure = canvas.figure(8.0, 5.2)
    panel = figure.add_subplot()
    panel.plot(table["step_s"], table["staleness"], "o", color=canvas.GREY, markersize=4,
               label="points")  # fmt: skip
    _out(panel, swept.table[~standing.keeps], "o", "break a constraint")
    _out(panel, swept.table[standing.keeps & ~standing.is_whole], "x", "given up after fewer seeds")
    best = on_front(table)
    half = np.nan_to_num(np.vstack([best["step_s"] - best["step_low_s"],
                                    best["step_high_s"] - best["step_s"]]))  # fmt: skip
    panel.errorbar(best["step_s"], best["staleness"], xerr=half, fmt="-o", color=canvas.BLUE,
                   capsize=2, linewidth=1.2, label="beaten by none in both")  # fmt: skip
    every = max(1, -(-len(best) // LABELLED))
    for _, row in best.iloc[::every].iterrows():
        text = ", ".join(f"{names[axis]} {_short(row[axis])}" for axis in swept.axes)
        panel.annotate(fill(text, 40), (row["step_s"], row["staleness"]), (5, 4),
                       textcoords="offset points", size=7)  # fmt: skip
    won = table[table["point"] == standing.winner]
    if len(won):
        panel.plot(won["step_s"], won["staleness"], "*", color=canvas.VERMILION, markersize=13,
                   zorder=3, label="winner")  # fmt: skip
    panel.set_xlabel("seconds per step")
    panel.set_ylabel("mean staleness of trained rollouts (versions)")
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.legend(loc="upper right")
    _title(panel, "Step time against staleness (bars: 95 % interval)", swept)
    return figure


def _out(panel: Axes, table: pd.DataFrame, marker: str, label: str) -> None:
    """Points that may not win."""
    if len(table):
        panel.plot(table["step_s"], table["staleness"], marker, color=canvas.GREY, markersize=4,
                   markerfacecolor="none", label=label)  # fmt: skip


def on_front(table: pd.DataFrame) -> pd.DataFrame:
    """The rows that no other beats in step time or staleness without losing in the other."""
    ordered = table.sort_values(["step_s", "staleness", "point"], kind="stable")
    before = ordered["staleness"].cummin().astype(float).shift(fill_value=np.inf)
    return ordered[ordered["staleness"] < before]


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _title(panel: Axes, text: str, swept: Swept) -> None:
    seeds = swept.table["seeds"]
    span = f"{seeds.min()}" if seeds.min() == seeds.max() else f"{seeds.min()} to {seeds.max()}"
    panel.set_title(
        f"{text}\n{swept.scenario}, {len(swept.table)} points, {span} seeds each (simulated)",
        loc="left",
    )

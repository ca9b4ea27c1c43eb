"""Pictures of a sweep: speed-up over two of its axes, and what staleness buys."""

from __future__ import annotations

from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from oppo_sim.analysis import canvas
from oppo_sim.config.errors import nearest
from oppo_sim.runs import RunError
from oppo_sim.search.axes import last_names
from oppo_sim.search.swept import Swept

PICTURES = ("heatmap", "front")
MOST_CELLS = 30  # along an axis
MOST_TOLD = 144  # cells that are wide enough for their numbers
FILLED = 0.5  # share of the cells that have a point: fewer, as of a random design, are dots
LABELLED = 12  # points of a front


def draw(swept: Swept, kind: str, form: str, axes: tuple[str, str] | None = None) -> bytes:
    """A picture in one of `canvas.FORMATS`; the same bytes for the same table."""
    if kind not in PICTURES:
        raise RunError(f"--kind {kind}: no such picture of a sweep; {nearest(kind, PICTURES)}")
    if kind == "front" and axes is not None:
        raise RunError(f"--axes {','.join(axes)}: only a heatmap has them; leave it out")
    with canvas.style():
        figure = front(swept) if kind == "front" else heatmap(swept, axes)
        return canvas.encode(figure, form)


def heatmap(swept: Swept, axes: tuple[str, str] | None = None) -> Figure:
    """Speed-up, or step time, over two axes of numbers; of the others the best value each."""
    x, y = _two(swept, axes)
    name = "speedup" if swept.baseline else "step_s"
    ascending = name == "step_s"
    best = swept.table.sort_values(name, ascending=ascending, kind="stable")
    best = best.drop_duplicates([x, y])
    figure = canvas.figure(8.0, 5.2)
    panel = figure.add_subplot()
    across, up = np.sort(best[x].unique()), np.sort(best[y].unique())
    is_grid = max(len(across), len(up)) <= MOST_CELLS
    image: AxesImage | PathCollection
    if is_grid and len(best) >= FILLED * len(across) * len(up):
        image = _cells(panel, best, (x, y, name), across, up)
    else:
        image = panel.scatter(best[x], best[y], c=best[name], cmap="cividis", s=42,
                              edgecolors="black", linewidths=0.4)  # fmt: skip
    names = last_names(swept.axes)
    panel.set_xlabel(names[x])
    panel.set_ylabel(names[y])
    what = f"speed-up over {swept.baseline}" if swept.baseline else "seconds per step"
    figure.colorbar(image, ax=panel, label=what)
    rest = [names[axis] for axis in swept.axes if axis not in (x, y)]
    of_best = f"; the best {', '.join(rest)} each" if rest else ""
    _title(panel, f"{what.capitalize()} (± half of the 95 % interval){of_best}", swept)
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
    best_place = np.unravel_index(
        np.nanargmin(values) if name == "step_s" else np.nanargmax(values), values.shape
    )
    panel.plot(best_place[1], best_place[0], "s", markersize=26, markerfacecolor="none",
               markeredgecolor=canvas.VERMILION, markeredgewidth=2)  # fmt: skip
    return image


def front(swept: Swept) -> Figure:
    """Step time against staleness; what nothing beats in both is joined."""
    table, names = swept.table, last_names(swept.axes)
    figure = canvas.figure(8.0, 5.2)
    panel = figure.add_subplot()
    panel.plot(table["step_s"], table["staleness"], "o", color=canvas.GREY, markersize=4,
               label="points")  # fmt: skip
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
    panel.set_xlabel("seconds per step")
    panel.set_ylabel("mean staleness of trained rollouts (versions)")
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.legend(loc="upper right")
    _title(panel, "Step time against staleness (bars: 95 % interval)", swept)
    return figure


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

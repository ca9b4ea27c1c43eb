"""What the figures have in common: lines that grey can tell apart, and a caption below."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from oppo_sim.analysis import canvas

COLOURS = (
    canvas.BLUE,
    canvas.VERMILION,
    canvas.GREEN,
    canvas.PURPLE,
    canvas.ORANGE,
    canvas.SKY,
    "black",
)
MARKERS = "osD^vPX"


def panels(count: int, width: float = 10.0, height: float = 4.6, **how: Any) -> tuple[Figure, Any]:
    """A figure and its axes, side by side."""
    figure = canvas.figure(width, height)
    return figure, figure.subplots(1, count, **how)


def grid(rows: int, columns: int, width: float, height: float) -> tuple[Figure, Any]:
    """A figure and its axes, in rows."""
    figure = canvas.figure(width, height)
    return figure, figure.subplots(rows, columns)


def line(axes: Axes, place: int, x: Sequence[float], y: Sequence[float], **how: Any) -> None:
    """The `place`-th line of a panel."""
    looks = {"color": COLOURS[place], "marker": MARKERS[place], "markersize": 4, "linewidth": 1.5}
    axes.plot(x, y, **{**looks, **how})


def caption(figure: Figure, text: str, width: int = 150, *, measured: bool = False) -> None:
    """What is shown and under which assumptions, below the panels."""
    role = "Measured on CPUs." if measured else "Simulated, not measured."
    figure.supxlabel(fill(f"{role} {text}", width), size=8, x=0.01, ha="left")


def tokens_axis(axes: Axes, ticks: Sequence[int], label: str) -> None:
    """A logarithmic axis with these ticks and no others."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks], rotation=45, size=8)
    axes.minorticks_off()
    axes.set_xlabel(label)

"""How pictures of a run look: colours and hatches, titles, and the same bytes for the same run."""

from __future__ import annotations

import io
from textwrap import fill
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from oppo_sim.runs import Header

FORMATS = ("png", "svg", "pdf")
_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
# Okabe and Ito's colours, safe for colour blindness; hatches tell them apart in grey.
BLUE, SKY, GREEN, ORANGE, VERMILION, PURPLE, GREY = (
    "#0072B2",
    "#56B4E9",
    "#009E73",
    "#E69F00",
    "#D55E00",
    "#CC79A7",
    "#BBBBBB",
)
Look = dict[str, Any]
DECODE: Look = {"facecolor": SKY, "hatch": ""}
SCORE: Look = {"facecolor": ORANGE, "hatch": "////"}
WAIT: Look = {"facecolor": "white", "hatch": "...."}
TRAIN: Look = {"facecolor": GREEN, "hatch": "\\\\\\\\"}
SYNC: Look = {"facecolor": PURPLE, "hatch": "xxxx"}
_STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.4,
    "legend.frameon": False,
    "svg.hashsalt": "oppo",
}


def style() -> Any:
    """The context in which every picture is drawn and saved."""
    return matplotlib.rc_context(_STYLE)


def figure(width: float, height: float) -> Figure:
    made = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(made)
    return made


def title(axes: Axes, text: str, header: Header, span: str) -> None:
    """What is shown, that it is simulated, and of which run."""
    run = f"{header.called}, schedule {header.schedule.get('name')}, seed {header.seed}, {span}"
    axes.set_title(
        f"{text} ({header.role})\n{fill(run, 100)}",
        loc="left",
    )


def encode(made: Figure, form: str) -> bytes:
    out = io.BytesIO()
    made.savefig(out, format=form, metadata=_METADATA[form])
    return out.getvalue()

"""A window of a run as a Gantt chart: what every device does, and when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from oppo_sim.analysis import canvas
from oppo_sim.analysis.tracks import natural
from oppo_sim.records import Span, StepRecord
from oppo_sim.runs import Header

_LOOKS = {
    "decode": canvas.DECODE,
    "score": canvas.SCORE,
    "train": canvas.TRAIN,
    "sync": canvas.SYNC,
}
_NAMES = {"decode": "decode, cut where a round ends"}  # where the kind does not say it
_MARKS = {"taken": "v", "scored": "D", "trained": "o"}
_THICK = 0.76  # of a row
_LABELS = 16  # that fit side by side
_LABEL = {"facecolor": "white", "edgecolor": "none", "pad": 1}
Bars = list[tuple[float, float]]


def gantt(header: Header, steps: Sequence[StepRecord], spans: Iterable[Span], span: str) -> Figure:
    """Draw the spans that touch these steps; a device is a row, two where it scores and decodes."""
    start_s, end_s = steps[0].start_s, steps[-1].end_s
    bars, idle = _bars(spans, start_s, end_s)
    rows = sorted({row for row, _ in bars} | idle, key=lambda row: (natural(row[0]), row[1]))
    figure = canvas.figure(9.5, 1.9 + 0.34 * len(rows))
    axes = figure.add_subplot()
    places = {row: place for place, row in enumerate(rows)}
    for (row, kind), intervals in bars.items():
        where = (places[row] - _THICK / 2, _THICK)
        axes.broken_barh(
            intervals, where, label=kind, edgecolor="black", linewidth=0.4, **_LOOKS[kind]
        )
    axes.set_yticks(range(len(rows)), [f"{device} {part}".strip() for device, part in rows])
    axes.set_ylim(len(rows) - 0.4, -1.5)
    axes.set_xlim(start_s, end_s)
    axes.set_xlabel("seconds since the run began")
    axes.set_ylabel("device")
    _milestones(axes, steps)
    _legend(axes, {kind for _, kind in bars})
    canvas.title(axes, "What every device does", header, span)
    return figure


Row = tuple[str, str]  # a device, and the half of it


def _bars(
    spans: Iterable[Span], start_s: float, end_s: float
) -> tuple[dict[tuple[Row, str], Bars], set[Row]]:
    """Bars by row and kind, and the rows of devices that do nothing in the window."""
    work: dict[tuple[str, str], Bars] = {}
    kinds: dict[str, set[str]] = {}  # by device, in the whole run
    for span in spans:
        for device in span.devices:
            kinds.setdefault(device, set()).add(span.kind)
            if max(span.start_s, start_s) < min(span.end_s, end_s):
                since_s, until_s = max(span.start_s, start_s), min(span.end_s, end_s)
                work.setdefault((device, span.kind), []).append((since_s, until_s - since_s))
    shared = {device for device, on_it in kinds.items() if {"decode", "score"} <= on_it}
    bars: dict[tuple[Row, str], Bars] = {}
    for kind in _LOOKS:  # a kind is drawn over those before it
        for device in kinds:
            if (device, kind) in work:
                bars[(device, _half(device, kind, shared)), kind] = work[device, kind]
    return bars, {(device, _half(device, "decode", shared)) for device in kinds}


def _half(device: str, kind: str, shared: set[str]) -> str:
    if device not in shared:
        return ""
    return "scores" if kind == "score" else "decodes"


def _milestones(axes: Axes, steps: Sequence[StepRecord]) -> None:
    free_s = steps[0].start_s  # from where there is room for a label
    for record in steps:
        axes.axvline(record.start_s, color="black", linewidth=0.8, linestyle=(0, (4, 2)))
        if record.start_s >= free_s:
            where = (record.start_s, -1.45)
            text = f"step {record.step}"
            axes.annotate(
                text, where, (3, 0), textcoords="offset points", va="top", size=8, bbox=_LABEL
            )
            free_s = record.start_s + (steps[-1].end_s - steps[0].start_s) / _LABELS
        times_s = (record.taken_s, record.scored_s, record.train_end_s)
        for at_s, mark in zip(times_s, _MARKS.values(), strict=True):
            if steps[0].start_s <= at_s <= steps[-1].end_s:
                axes.plot(at_s, -0.62, mark, color="black", markersize=4.5, fillstyle="none",
                          clip_on=False)  # fmt: skip


def _legend(axes: Axes, kinds: set[str]) -> None:
    patches = [
        Patch(edgecolor="black", linewidth=0.4, label=_NAMES.get(kind, kind), **_LOOKS[kind])
        for kind in _LOOKS
        if kind in kinds
    ]
    marks = [
        Line2D([], [], marker=mark, color="black", fillstyle="none", linestyle="",
               markersize=4.5, label=f"batch {name}")
        for name, mark in _MARKS.items()
    ]  # fmt: skip
    axes.figure.legend(
        handles=list(chain(patches, marks)), loc="outside lower center", ncols=4, fontsize=8
    )

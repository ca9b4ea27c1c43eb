"""Pictures of one run, from its folder alone: Gantt chart, steps, staleness, lengths, devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from oppo_sim.analysis import canvas
from oppo_sim.analysis.distributions import lengths, staleness
from oppo_sim.analysis.gantt import gantt
from oppo_sim.analysis.metrics import STAGES, exposed
from oppo_sim.analysis.tracks import natural, no_spans
from oppo_sim.config.errors import nearest
from oppo_sim.records import StepRecord
from oppo_sim.runs import Header, RunError, each_span, each_step, read_header

Floats = NDArray[np.float64]
MOST_BARS = 120  # side by side
MOST_GANTT = 500  # steps
FIRST = 3  # steps that a Gantt chart shows, if it is not told which
KINDS = ("gantt", "steps", "staleness", "lengths", "utilisation")
_STAGE_LOOKS = (canvas.DECODE, canvas.SCORE, canvas.WAIT, canvas.TRAIN, canvas.SYNC)


def plot(folder: Path, kind: str, form: str, window: range | None = None) -> bytes:
    """A picture of a run in one of `canvas.FORMATS`; the same bytes for the same run."""
    with canvas.style():
        return canvas.encode(draw(folder, kind, window), form)


def draw(folder: Path, kind: str, window: range | None = None) -> Figure:
    """A picture of a run, of all steps or of those in `window`; a gantt of the first few.

    Raises RunError where the folder is no run, or has nothing to draw.
    """
    if kind not in KINDS:
        raise RunError(f"--kind {kind}: no such picture; {nearest(kind, KINDS)}")
    header = read_header(folder)
    if kind == "gantt" and window is None:
        window = range(FIRST)
    steps = list(_within(folder, window))
    first, last = steps[0].step, steps[-1].step
    span = f"step {first}" if first == last else f"steps {first} to {last}"
    if kind == "gantt" and len(steps) > MOST_GANTT:
        raise RunError(
            f"--kind gantt: {len(steps):,} steps side by side show nothing; give --steps FROM:TO "
            f"of {MOST_GANTT} or fewer"
        )
    if kind != "gantt":
        return _PICTURES[kind](header, steps, span)
    if next(each_span(folder), None) is None:
        raise RunError(no_spans(folder, header))
    return gantt(header, steps, each_span(folder), span)


def _within(folder: Path, window: range | None) -> Iterator[StepRecord]:
    count, shown = 0, 0
    for record in each_step(folder):
        count += 1
        if window is None or record.step in window:
            shown += 1
            yield record
    if not count:
        raise RunError(f"{folder} has no steps yet: run it again with --resume")
    if not shown and window is not None:
        raise RunError(
            f"--steps {window.start}:{window.stop}: the run has steps 0 to {count - 1}, "
            f"which is --steps 0:{count}"
        )


def _steps(header: Header, steps: Sequence[StepRecord], span: str) -> Figure:
    """Step time in stages, and below it what the policies chose."""
    chunked = any(record.chunk_tokens is not None for record in steps)
    figure = canvas.figure(9.0, 6.2 if chunked else 5.0)
    heights = (3.0, 1.0, 1.0)[: 2 + chunked]
    panels = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False)
    top, below = panels[0, 0], panels[1, 0]
    groups = _Groups(steps)
    stages = groups.means(np.array([exposed(record) for record in steps]))
    base, total_s = np.zeros(len(stages)), stages.sum()
    for stage, seconds, look in zip(STAGES, stages.T, _STAGE_LOOKS, strict=True):
        if seconds.sum() > 1e-9 * total_s:
            top.stairs(
                base + seconds, groups.edges, baseline=base, fill=True, label=stage,
                edgecolor="black", linewidth=0.4, **look,
            )  # fmt: skip
        base = base + seconds
    mean_s = float(np.mean([record.seconds for record in steps]))
    top.axhline(mean_s, color="black", linewidth=1, linestyle="--", label=f"mean {mean_s:.4g} s")
    top.set_ylim(0, 1.05 * max(mean_s, base.max()))
    top.set_ylabel(f"seconds of a step{groups.note}")
    top.legend(loc="upper left", bbox_to_anchor=(1, 1), reverse=True)
    canvas.title(top, "Where the time of a step goes", header, span)
    _choice(below, groups, [record.overcommit for record in steps], "D (rollouts)", canvas.BLUE)
    if chunked:
        chunks = [np.nan if r.chunk_tokens is None else r.chunk_tokens for r in steps]
        _choice(panels[2, 0], groups, chunks, "chunk (tokens)", canvas.VERMILION)
    _step_axis(panels[-1, 0], groups)
    return figure


class _Groups:
    """Steps next to each other, so many to a bar that the bars can be told apart."""

    def __init__(self, steps: Sequence[StepRecord]) -> None:
        each = -(-len(steps) // MOST_BARS)
        self.starts = np.arange(0, len(steps), each)
        self.sizes = np.diff([*self.starts, len(steps)])
        self.edges = steps[0].step + np.array([*self.starts, len(steps)]) - 0.5
        self.note = f", means of {each}" if each > 1 else ""

    def sums(self, values: Floats) -> Floats:
        """By group, along the first axis."""
        sums: Floats = np.add.reduceat(values, self.starts)
        return sums

    def means(self, values: Floats) -> Floats:
        return (self.sums(values).T / self.sizes).T


def _step_axis(axes: Axes, groups: _Groups, label: str = "PPO step") -> None:
    axes.set_xlabel(label)
    axes.set_xlim(groups.edges[0], groups.edges[-1])
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))


def _choice(axes: Axes, groups: _Groups, values: Sequence[float], label: str, colour: str) -> None:
    means = groups.means(np.array(values, dtype=float))
    axes.stairs(means, groups.edges, color=colour, linewidth=1.6, baseline=None)
    most = max(1.0, np.nanmax(values))
    axes.set_ylim(-0.06 * most, 1.15 * most)
    axes.set_ylabel(label)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=4, steps=[1, 2, 5, 10]))


def _utilisation(header: Header, steps: Sequence[StepRecord], span: str) -> Figure:
    """Busy share by device over all steps, and by step; what runs on counts where it ends."""
    devices = sorted(dict.fromkeys(d for record in steps for d in record.busy_s), key=natural)
    seconds = np.array([record.seconds for record in steps])
    busy_s = np.array([[record.busy_s.get(d, 0.0) for record in steps] for d in devices])
    shares = busy_s.sum(axis=1) / seconds.sum()
    figure = canvas.figure(9.0, 2.0 + 0.3 * len(devices))
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(2, 3))
    places = range(len(devices))
    left.barh(places, shares, 0.76, color=canvas.SKY, edgecolor="black", linewidth=0.4)
    for place, share in zip(places, shares, strict=True):
        left.annotate(f"{share:.0%}", (share, place), (4, 0), textcoords="offset points",
                      va="center", size=8)  # fmt: skip
    left.set_yticks(places, devices)
    left.set_ylabel("device")
    left.set_xlim(0, 1.15)
    left.set_xticks((0, 0.25, 0.5, 0.75, 1.0))
    left.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    left.set_xlabel("busy share of the time")
    left.invert_yaxis()
    canvas.title(left, f"Devices busy, {shares.mean():.0%} on average", header, span)
    groups = _Groups(steps)
    by_step = groups.sums(busy_s.T).T / groups.sums(seconds)
    image = right.imshow(
        by_step.clip(0, 1), aspect="auto", cmap="cividis", vmin=0, vmax=1, interpolation="none",
        extent=(groups.edges[0], groups.edges[-1], len(devices) - 0.5, -0.5),
    )  # fmt: skip
    _step_axis(right, groups, f"PPO step (a task counts where it ends{groups.note})")
    bar = figure.colorbar(image, ax=right, format=PercentFormatter(1.0, decimals=0))
    bar.set_label("busy share of the step")
    return figure


Picture = Callable[[Header, Sequence[StepRecord], str], Figure]
_PICTURES: dict[str, Picture] = {
    "steps": _steps,
    "staleness": staleness,
    "lengths": lengths,
    "utilisation": _utilisation,
}

"""Pictures of one run, from its folder alone: Gantt chart, steps, staleness, lengths, devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from oppo_sim.analysis import canvas
from oppo_sim.analysis.gantt import gantt
from oppo_sim.analysis.metrics import STAGES, exposed
from oppo_sim.analysis.tracks import natural, no_spans
from oppo_sim.config.errors import nearest
from oppo_sim.records import StepRecord
from oppo_sim.runs import Header, RunError, each_span, each_step, read_header

Floats = NDArray[np.float64]
MOST_BARS = 120  # side by side
FIRST = 3  # steps that a Gantt chart shows, if it is not told which
KINDS = ("gantt", "steps", "staleness", "lengths", "utilisation")
_PLAIN: canvas.Look = {"facecolor": canvas.SKY}
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
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))


def _choice(axes: Axes, groups: _Groups, values: Sequence[float], label: str, colour: str) -> None:
    means = groups.means(np.array(values, dtype=float))
    axes.stairs(means, groups.edges, color=colour, linewidth=1.6, baseline=None)
    most = max(1.0, np.nanmax(values))
    axes.set_ylim(-0.06 * most, 1.15 * most)
    axes.set_ylabel(label)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=4, steps=[1, 2, 5, 10]))


def _staleness(header: Header, steps: Sequence[StepRecord], span: str) -> Figure:
    figure = canvas.figure(9.0, 3.6)
    left, right = figure.subplots(1, 2, sharey=True)
    late = Counter(value for record in steps for value in record.staleness)
    _shares(left, late, canvas.BLUE, "versions late (staleness)")
    carried = Counter(value for record in steps for value in record.deferrals)
    _shares(right, carried, canvas.ORANGE, "steps carried over (deferrals)", "////")
    left.set_ylabel("share of trained rollouts")
    left.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    left.set_ylim(0, 1.12)
    canvas.title(left, "How late rollouts are trained", header, span)
    right.set_title(f"{sum(late.values()):,} rollouts", loc="right")
    return figure


def _shares(
    axes: Axes, counts: Mapping[int, int], colour: str, label: str, hatch: str = ""
) -> None:
    total = sum(counts.values())
    places = range(max(counts) + 1)
    shares = [counts.get(place, 0) / total for place in places]
    axes.bar(places, shares, 0.8, facecolor=colour, edgecolor="black", linewidth=0.4, hatch=hatch)
    for place, share in zip(places, shares, strict=True):
        if share and len(places) <= 12:
            axes.annotate(
                f"{share:.1%}", (place, share), (0, 3), textcoords="offset points", ha="center",
                size=8,
            )  # fmt: skip
    axes.set_xlabel(label)
    axes.set_xlim(-0.6, max(places[-1], 3) + 0.6)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))


def _lengths(header: Header, steps: Sequence[StepRecord], span: str) -> Figure:
    tokens = np.sort(np.array([t for record in steps for t in record.tokens]))
    workload = header.scenario.get("workload")
    cap = workload.get("max_response_tokens") if isinstance(workload, Mapping) else None
    end = max(int(tokens[-1]), cap or 0)
    figure = canvas.figure(9.0, 5.6)
    top, below = figure.subplots(2, 1, sharex=True)
    bins = min(60, max(20, int(len(tokens) ** 0.5)))
    each = np.full(len(tokens), 1 / len(tokens))
    top.hist(tokens, bins, range=(0, end), weights=each, edgecolor="black", linewidth=0.4, **_PLAIN)
    top.set_ylabel("share of trained rollouts")
    top.yaxis.set_major_formatter(PercentFormatter(1.0))
    canvas.title(top, f"Lengths of {len(tokens):,} trained rollouts", header, span)
    _ecdf(below, tokens, end)
    mean = tokens.mean()
    top.axvline(mean, color="black", linestyle=":", label=f"mean {mean:,.1f} tokens")
    if cap is not None:
        reached = int(np.sum(tokens >= cap))
        label = f"cap {cap:,} tokens, reached by {reached:,} ({reached / len(tokens):.1%})"
        for axes in (top, below):
            axes.axvline(cap, color=canvas.VERMILION, linestyle="--", label=label)
    top.legend(loc="lower right", bbox_to_anchor=(1, 1))
    return figure


def _ecdf(axes: Axes, tokens: Floats, end: int) -> None:
    """The share of the (sorted) lengths that is not longer."""
    # by hand: Axes.ecdf(compress=True) counts only the first of equal lengths
    values, counts = np.unique(tokens, return_counts=True)
    shares = np.array([0, *np.cumsum(counts), len(tokens)]) / len(tokens)
    at = [values[0], *values, end]
    axes.step(at, shares, where="post", color=canvas.BLUE, linewidth=1.6)
    axes.set_ylim(0, 1.02)
    axes.set_ylabel("share not longer")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_xlabel("response tokens")
    axes.set_xlim(0, 1.02 * end)
    for name, share in (("median", 0.5), ("95th percentile", 0.95)):
        x = float(np.quantile(tokens, share, method="inverted_cdf"))
        axes.plot(x, share, "o", color="black", markersize=4)
        side, dx = ("right", -6) if x > end / 2 else ("left", 6)
        axes.annotate(
            f"{name} {x:,.0f}", (x, share), (dx, -12), textcoords="offset points", ha=side, size=8
        )


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
    "staleness": _staleness,
    "lengths": _lengths,
    "utilisation": _utilisation,
}

"""Pictures of a run's trained rollouts: how late they were, and how long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from oppo_sim.analysis import canvas
from oppo_sim.records import StepRecord
from oppo_sim.runs import Header


def staleness(header: Header, steps: Sequence[StepRecord], span: str) -> Figure:
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


def lengths(header: Header, steps: Sequence[StepRecord], span: str) -> Figure:
    tokens = np.sort(np.array([t for record in steps for t in record.tokens]))
    workload = header.scenario.get("workload")
    cap = workload.get("max_response_tokens") if isinstance(workload, Mapping) else None
    end = max(int(tokens[-1]), cap or 0)
    figure = canvas.figure(9.0, 5.6)
    top, below = figure.subplots(2, 1, sharex=True)
    bins = min(60, max(20, int(len(tokens) ** 0.5)))
    each = np.full(len(tokens), 1 / len(tokens))
    top.hist(
        tokens,
        bins,
        range=(0, end),
        weights=each,
        edgecolor="black",
        linewidth=0.4,
        **canvas.DECODE,
    )
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


def _ecdf(axes: Axes, tokens: NDArray[np.int64], end: int) -> None:
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

"""Figures of lengths: a sample against the laws fitted to it, and a log's steps."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from oppo_sim.analysis import canvas
from oppo_sim.workload.fits import Fit
from oppo_sim.workload.samples import Sample
from oppo_sim.workload.steplogs import StepLog

DATA = "dimgrey"
LOOKS = {  # a colour and a dash of its own for each
    "lognormal": (canvas.BLUE, "--"),
    "gamma": (canvas.GREEN, ":"),
    "weibull": (canvas.PURPLE, "-."),
    "mixture": (canvas.VERMILION, "-"),
}
BINS = 60


def sample_figure(title: str, sample: Sample, fits: dict[str, Fit], share: float) -> bytes:
    """Density and survival of a sample and its laws, as a PNG.

    `share` of the responses follow the laws: less than 1 where loops at the cap are kept apart.
    """
    with canvas.style():
        return canvas.encode(_of_sample(title, sample, fits, share), "png")


def log_figure(title: str, log: StepLog) -> bytes:
    """Mean and longest response by step, and the share that idled, as a PNG."""
    with canvas.style():
        return canvas.encode(_of_log(title, log), "png")


def _of_sample(title: str, sample: Sample, fits: dict[str, Fit], share: float) -> Figure:
    figure, (left, right) = _figure(title)
    body = sample.body
    low, high = float(body.tokens[0]), float(body.tokens[-1])
    edges = np.geomspace(max(low - 0.5, 0.5), high + 0.5, BINS + 1)
    edges = np.unique(np.rint(edges - 0.5)) + 0.5  # between whole tokens
    inside, _ = np.histogram(body.tokens, edges, weights=body.counts)
    per_log = np.diff(np.log(edges))
    left.stairs(inside / sample.n / per_log, edges, fill=True, color=DATA, alpha=0.35, label="data")
    right.step(
        sample.under_cap, 1 - sample.cdf(), where="post", color=DATA, linewidth=2.5, label="data"
    )
    x = np.geomspace(edges[0], edges[-1], 400)
    for name, fit in fits.items():
        colour, dash = LOOKS[name]
        density = share * np.exp(fit.law.log_pdf(x)) * x
        label = f"{name}, KS {fit.ks:.3f}"
        left.plot(x, density, color=colour, linestyle=dash, label=label)
        right.plot(x, 1 - share * fit.law.cdf(x), color=colour, linestyle=dash, label=label)
    for axes, what in ((left, "share per unit of log length"), (right, "share that is longer")):
        axes.set_xscale("log")
        axes.set_xlabel("response length (tokens)")
        axes.set_ylabel(what)
        if sample.cap_tokens is not None:
            axes.axvline(sample.cap_tokens, color="black", linewidth=0.8, label="cap")
    right.set_yscale("log")
    right.set_ylim(0.3 / sample.n if sample.n < 1e6 else 1e-6, 1.2)
    left.legend(fontsize=8)
    return figure


def _of_log(title: str, log: StepLog) -> Figure:
    figure, (left, right) = _figure(title)
    left.plot(
        log.steps, log.longest, color=canvas.VERMILION, linestyle="--", label="longest of the step"
    )
    left.plot(log.steps, log.means, color=canvas.BLUE, label="mean of the step")
    left.set_ylim(bottom=0)
    left.set_ylabel("response length (tokens)")
    left.legend(fontsize=8)
    right.plot(log.steps, 1 - log.means / log.longest, color=canvas.BLUE)
    right.set_ylim(0, 1)
    right.set_ylabel("share that waits for the longest")
    for axes in (left, right):
        axes.set_xlabel("step")
    return figure


def _figure(title: str) -> tuple[Figure, tuple[Axes, Axes]]:
    figure = canvas.figure(9.0, 3.8)
    figure.suptitle(title, size=10)
    left, right = figure.subplots(1, 2)
    return figure, (left, right)

"""Figures in the paper's own form beside those of rows: chunks, fixed D, lateness, two nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from oppo_sim.analysis import canvas
from oppo_sim.analysis.canvas import BLUE, GREEN, GREY, ORANGE, VERMILION
from oppo_sim.analysis.compare import Comparison
from oppo_sim.analysis.measures import CHUNKS
from oppo_sim.analysis.paper import Outcome

COLOURS = (BLUE, ORANGE, GREEN, VERMILION, GREY)


def chunk_sweep(outcomes: Sequence[Outcome], sweeps: Sequence[Comparison]) -> bytes:
    """Seconds per step by chunk, for each row that is about chunks, as a PNG."""
    rows = [outcome.row for outcome in outcomes if outcome.row.measure == "chunk"]
    figure = canvas.figure(5.6, 3.4)
    axes = figure.add_subplot()
    for row, sweep, colour in zip(rows, sweeps, (BLUE, VERMILION), strict=True):
        steps = [standing.step_s.mean for standing in sweep.standings]
        relative = [step / min(steps) for step in steps]
        axes.plot(CHUNKS, relative, "o-", color=colour, label=f"{row.schedule}, {row.scenario}")
    axes.axvline(500, color=GREY, linestyle="--", label="the paper's fastest")
    axes.set_xscale("log")
    axes.set_xticks(CHUNKS, [str(chunk) for chunk in CHUNKS], size=7, minor=False)
    axes.minorticks_off()
    axes.set_xlabel("tokens of a round")
    axes.set_ylabel("seconds per step, of the fastest")
    axes.set_title("Chunk size (simulated)", loc="left")
    axes.legend()
    return canvas.encode(figure, "png")


def fixed_or_dynamic(outcomes: Sequence[Outcome]) -> bytes:
    """The speed-ups with D fixed and dynamic, as a PNG."""
    values = {
        f"D = {outcome.row.at}": outcome.simulated.mean
        for outcome in outcomes
        if outcome.row.measure == "fixed_d" and outcome.simulated
    }
    dynamic = {
        outcome.row.scenario: outcome.simulated.mean
        for outcome in outcomes
        if outcome.row.id == "T1a" and outcome.simulated
    }
    shown = {**values, **{f"dynamic ({name})": value for name, value in dynamic.items()}}
    return _bars(shown, "speed-up over TRL (x)", "Fixed and dynamic D (simulated)")


def workloads(outcomes: Sequence[Outcome]) -> set[str]:
    """The scenarios that stand for the paper's workloads on its own machine."""
    rows = [outcome.row for outcome in outcomes]
    return {r.scenario for r in rows if r.measure == "speedup" and r.role != "scenario"}


def lateness(
    outcomes: Sequence[Outcome], comparisons: Sequence[Comparison], schedule: str = "oppo"
) -> bytes:
    """How late the schedule trains rollouts, for each of the paper's workloads, as a PNG."""
    figure = canvas.figure(5.6, 3.4)
    axes = figure.add_subplot()
    named = workloads(outcomes)
    shown = [c for c in comparisons if c.scenario in named]
    width = 0.8 / len(shown)
    for place, comparison in enumerate(shown):
        shares = [0.0, 0.0, 0.0]
        for metrics in comparison[schedule].metrics:
            for late, rollouts in metrics.staleness.items():
                shares[min(late, 2)] += rollouts
        x = [at + width * (place - (len(shown) - 1) / 2) for at in range(3)]
        percent = [100 * share / sum(shares) for share in shares]
        axes.bar(x, percent, width, color=COLOURS[place], label=comparison.scenario)
    axes.set_xticks(range(3), ["at once", "one step late", "two or more"])
    axes.set_ylabel("rollouts trained (%)")
    axes.set_title(f"How late {schedule} trains (simulated)", loc="left")
    axes.legend(fontsize=7)
    return canvas.encode(figure, "png")


def two_nodes(outcomes: Sequence[Outcome], comparisons: Sequence[Comparison]) -> bytes:
    """What each mechanism makes of the two-node speed-up, as a PNG."""
    rows = {outcome.row.id: outcome for outcome in outcomes}
    values: dict[str, float] = {}
    plain = next((c for c in comparisons if c.scenario == rows["T2"].row.scenario), None)
    if plain is not None:
        values["overlap alone"] = plain["oppo"].speedup.mean
    for name, label in _GATHERS:
        simulated = rows[name].simulated
        if simulated is not None:
            values[label] = simulated.mean
    return _bars(
        values, "speed-up over TRL (x)", "Two nodes, by mechanism (simulated)", rows["T2"].row.paper
    )


_GATHERS = (
    ("T2b", "both gather\nweights"),
    ("T2", "only TRL\ngathers"),
    ("T2c", "only TRL,\none network card"),
)


def _bars(values: Mapping[str, float], label: str, title: str, paper: float | None = None) -> bytes:
    figure = canvas.figure(5.6, 3.2)
    axes: Axes = figure.add_subplot()
    axes.bar(range(len(values)), list(values.values()), 0.6, color=BLUE)
    for at, value in enumerate(values.values()):
        axes.annotate(f"{value:.2f}", (at, value), (0, 3), textcoords="offset points", ha="center")
    if paper is not None:
        axes.axhline(paper, color=GREY, linestyle="--", label=f"paper: {paper:.2f}")
        axes.legend()
    axes.set_xticks(range(len(values)), list(values), size=8)
    axes.set_ylabel(label)
    axes.set_title(title, loc="left")
    return canvas.encode(figure, "png")

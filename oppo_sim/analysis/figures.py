"""Figures: each from numbers alone, the same bytes for the same numbers."""

from __future__ import annotations

import io
from collections.abc import Sequence

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from oppo_sim.analysis.paper import Outcome
from oppo_sim.analysis.why import count

GREY, BLUE, VERMILION = "#999999", "#0072B2", "#D55E00"  # Okabe and Ito: safe for colour blindness


def paper_rows(outcomes: Sequence[Outcome], seeds: int) -> bytes:
    """The paper's speed-ups next to the simulated ones, scenario by scenario, as a PNG."""
    outcomes = by_scenario(outcomes)
    figure = Figure(figsize=(8.0, 4.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    width, places = 0.38, range(len(outcomes))
    papers = [outcome.row.paper for outcome in outcomes]
    means = [outcome.simulated.mean for outcome in outcomes]
    axes.bar([p - width / 2 for p in places], papers, width, color=GREY, label="paper")
    axes.bar(
        [p + width / 2 for p in places],
        means,
        width,
        yerr=list(zip(*map(_bars, outcomes), strict=True)),
        capsize=3,
        color=BLUE,
        label=f"simulated, 95 % interval over {count(seeds, 'seed')}",
    )
    tops = [mean + _bars(o)[1] for mean, o in zip(means, outcomes, strict=True)]
    for place, (paper, mean, top) in enumerate(zip(papers, means, tops, strict=True)):
        for x, value, y in ((place - width / 2, paper, paper), (place + width / 2, mean, top)):
            axes.annotate(
                f"{value:.2f}", (x, y), (0, 4), textcoords="offset points", ha="center", size=8
            )
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_xticks(list(places), [_label(outcome) for outcome in outcomes], size=8)
    axes.set_ylabel("speed-up over TRL (x)")
    axes.set_ylim(0, 1.15 * max(*papers, *means))
    axes.set_title(_title(outcomes), size=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper left", frameon=False, fontsize=8, ncols=2)
    out = io.BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()


def by_scenario(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The rows of a scenario side by side; scenarios and their rows in the order they came."""
    scenarios = [outcome.row.scenario for outcome in outcomes]
    return sorted(outcomes, key=lambda outcome: scenarios.index(outcome.row.scenario))


def _bars(outcome: Outcome) -> tuple[float, float]:
    """How far the interval reaches below and above the mean."""
    mean, low, high = outcome.simulated
    return (0.0, 0.0) if low is None or high is None else (mean - low, high - mean)


def _label(outcome: Outcome) -> str:
    row = outcome.row
    return f"{row.id}\n{row.schedule}\n{row.scenario}"


def _title(outcomes: Sequence[Outcome]) -> str:
    roles = list(dict.fromkeys(outcome.row.role for outcome in outcomes))
    if roles == ["assumed"]:
        return "OPPO's speed-ups, paper and simulation (all rows assumed: none is evidence)"
    by_role = [
        f"{role}: {', '.join(o.row.id for o in outcomes if o.row.role == role)}" for role in roles
    ]
    return f"OPPO's speed-ups, paper and simulation ({'; '.join(by_role)})"

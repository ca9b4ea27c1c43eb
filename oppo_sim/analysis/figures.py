"""Figures: each from numbers alone, the same bytes for the same numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from oppo_sim.analysis import canvas
from oppo_sim.analysis.canvas import BLUE, GREY, VERMILION
from oppo_sim.analysis.compare import Comparison
from oppo_sim.analysis.paper import Outcome
from oppo_sim.analysis.time_to_reward import WINDOW, RewardRun
from oppo_sim.analysis.why import count


def paper_rows(outcomes: Sequence[Outcome], seeds: int) -> bytes:
    """The paper's speed-ups next to the simulated ones, scenario by scenario, as a PNG."""
    shown = by_scenario([o for o in _about("speedup", outcomes) if o.row.paper is not None])
    figure, axes = _bars_of({"simulated": shown}, seeds)
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_ylabel("speed-up over TRL (x)")
    axes.set_title(_title("speed-ups", shown), size=10)
    return canvas.encode(figure, "png")


def utilisation(outcomes: Sequence[Outcome], seeds: int) -> bytes:
    """The paper's GPU utilisation next to the simulated one, as a PNG."""
    shown = by_scenario(_about("utilisation", outcomes))
    figure, axes = _bars_of({"simulated": shown}, seeds)
    axes.set_ylabel("GPU utilisation")
    axes.set_title(_title("GPU utilisation", shown), size=10)
    return canvas.encode(figure, "png")


def reward_curves(outcomes: Sequence[Outcome], comparisons: Sequence[Comparison]) -> bytes:
    """Reward over time, for the scenarios that a row has minutes to a reward of, as a PNG."""
    rows = [outcome.row for outcome in outcomes if outcome.row.measure == "minutes"]
    found = {comparison.scenario: comparison for comparison in comparisons}
    figure = canvas.figure(3.2 * len(rows), 3.4)
    for place, row in enumerate(rows):
        axes = figure.add_subplot(1, len(rows), place + 1)
        for name, colour, dashes in ((row.baseline, GREY, "--"), (row.schedule, BLUE, "-")):
            hours, rewards = _curve(found[row.scenario][name].rewards)
            axes.plot(hours, rewards, dashes, color=colour, label=name)
        axes.axhline(float(row.at), color="black", linewidth=0.8, label=f"reward {row.at}")
        axes.set_xlabel("hours (simulated)")
        axes.set_title(row.scenario, size=9)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="lower right", frameon=False, fontsize=8)
    figure.axes[0].set_ylabel(f"reward, mean of {WINDOW} steps")
    figure.suptitle("Reward over time; reward by step is put in (assumed)", size=10)
    return canvas.encode(figure, "png")


def _curve(runs: Sequence[RewardRun]) -> tuple[list[float], list[float]]:
    """Every tenth step: hours, and the moving mean of the reward, both averaged over the runs."""
    hours, rewards = [], []
    for step in range(min(WINDOW, len(runs[0].rewards)) - 1, len(runs[0].rewards), 10):
        last = [run.rewards[max(0, step + 1 - WINDOW) : step + 1] for run in runs]
        hours.append(sum(run.end_s[step] for run in runs) / len(runs) / 3600)
        rewards.append(sum(sum(r) / len(r) for r in last) / len(runs))
    return hours, rewards


def _about(measure: str, outcomes: Sequence[Outcome]) -> list[Outcome]:
    return [o for o in outcomes if o.row.measure == measure and o.simulated is not None]


def _bars_of(series: Mapping[str, Sequence[Outcome]], seeds: int) -> tuple[Figure, Axes]:
    """The paper's bars, and one next to it of each series: the same rows by another measure."""
    rows = next(iter(series.values()))
    figure = canvas.figure(max(8.0, 1.05 * len(rows)), 4.2)
    axes = figure.add_subplot()
    papers = [outcome.row.paper or 0.0 for outcome in rows]
    bars = [("paper", papers, [(0.0, 0.0)] * len(rows), GREY)]
    for (label, own), colour in zip(series.items(), (BLUE, VERMILION), strict=False):
        means = [outcome.simulated.mean for outcome in own if outcome.simulated]
        bars.append((label, means, [_reach(outcome) for outcome in own], colour))
    width, top = 0.76 / len(bars), 1.15 * max(value for _, values, *_ in bars for value in values)
    for place, (label, values, reach, colour) in enumerate(bars):
        x = [at + width * (place - (len(bars) - 1) / 2) for at in range(len(rows))]
        axes.bar(x, values, width, color=colour, label=label)
        if label != "paper":
            below_above = list(zip(*reach, strict=True))
            axes.errorbar(x, values, below_above, fmt="none", capsize=3, ecolor="black")
        for at, value, (_, above) in zip(x, values, reach, strict=True):
            axes.annotate(
                f"{value:.2f}", (at, min(value + above, 0.94 * top)), (0, 4), ha="center",
                textcoords="offset points", size=8 if len(bars) == 2 else 6.5,
            )  # fmt: skip
    axes.set_xticks(list(range(len(rows))), [_label(outcome) for outcome in rows], size=7)
    axes.set_ylim(0, top)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(
        loc="outside lower center", ncols=len(bars), frameon=False, fontsize=8, title_fontsize=8,
        title=f"with 80 % intervals over {count(seeds, 'seed')} and all accepted fits",
    )  # fmt: skip
    return figure, axes


def by_scenario(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The rows of a scenario side by side; scenarios and their rows in the order they came."""
    scenarios = [outcome.row.scenario for outcome in outcomes]
    return sorted(outcomes, key=lambda outcome: scenarios.index(outcome.row.scenario))


def _reach(outcome: Outcome) -> tuple[float, float]:
    """How far the interval reaches below and above the mean."""
    assert outcome.simulated is not None
    mean, low, high = outcome.simulated
    return (0.0, 0.0) if low is None or high is None else (mean - low, high - mean)


def _label(outcome: Outcome) -> str:
    row = outcome.row
    where = row.scenario.replace("-", "-\n", 1)
    return f"{row.id}\n{row.schedule}\n{where}"


def _title(what: str, outcomes: Sequence[Outcome]) -> str:
    """Which rows prove nothing is part of what is shown."""
    roles = list(dict.fromkeys(outcome.row.role for outcome in outcomes))
    if roles == ["assumed"]:
        return f"OPPO's {what}, paper and simulation (all rows assumed: none is evidence)"
    by_role = [
        f"{role}: {', '.join(o.row.id for o in outcomes if o.row.role == role)}" for role in roles
    ]
    return f"OPPO's {what}, paper and simulation\n({'; '.join(by_role)})"

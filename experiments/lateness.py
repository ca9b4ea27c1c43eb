"""How many versions and steps late oppo's rollouts are trained."""

from __future__ import annotations

from collections import Counter

from matplotlib.figure import Figure

from experiments import chart
from experiments.result import Experiment, Finding, Result, Row
from experiments.runs import Runs, Variant, simulated

SCENARIOS = ("stackexchange-7b", "stackexchange-3b")
KINDS = ("staleness", "deferrals")
LAST = 3  # what is later is added up
Shares = dict[tuple[str, str], dict[int, float]]


def run(quick: bool) -> Result:
    found = simulated([Variant(s, "oppo") for s in SCENARIOS], 1 if quick else 3,
                      30 if quick else 400)  # fmt: skip
    shares = {
        (s, kind): _shares(runs, kind)
        for s, runs in zip(SCENARIOS, found, strict=True)
        for kind in KINDS
    }
    rows: list[Row] = [
        {"scenario": s, "schedule": "oppo", "quantity": kind, "late": late, "share": share}
        for (s, kind), histogram in shares.items()
        for late, share in histogram.items()
    ]
    return Result(rows, _draw(shares), _text(shares), judged(shares))


def _shares(runs: Runs, kind: str) -> dict[int, float]:
    counts: Counter[int] = Counter()
    for metrics in runs.metrics:
        counts.update(getattr(metrics, kind))
    total = sum(counts.values())
    return {late: counts[late] / total for late in range(max(counts) + 1)}


def _draw(shares: Shares) -> Figure:
    figure, axes = chart.panels(2, width=9.0, height=4.0, sharey=True)
    titles = ("staleness: weight versions late", "deferrals: steps carried over")
    for panel, kind, title in zip(axes, KINDS, titles, strict=True):
        for place, scenario in enumerate(SCENARIOS):
            binned = _binned(shares[scenario, kind])
            x = [late + 0.4 * (place - 0.5) for late in range(LAST + 1)]
            panel.bar(x, binned, 0.38, color=chart.COLOURS[place], edgecolor="black", lw=0.4,
                      hatch=("", "////")[place], label=scenario)  # fmt: skip
            for at, share in zip(x, binned, strict=True):
                panel.annotate(f"{100 * share:.2g}", (at, share), (0, 2), ha="center", size=7.5,
                               textcoords="offset points")  # fmt: skip
        panel.set_xticks(range(LAST + 1), [*map(str, range(LAST)), f"{LAST} or more"])
        panel.set_title(title, loc="left")
        panel.set_xlabel("versions late" if kind == "staleness" else "steps carried over")
    axes[0].set_ylabel("share of trained rollouts (labels: %)")
    axes[0].set_ylim(0, 1.05)
    axes[1].legend(loc="upper right")
    chart.caption(
        figure,
        f"Scenarios {' and '.join(SCENARIOS)}, schedule oppo: probed chunks, D of at most 16 by "
        "the slope of the reward, first in first out. Lengths of other data stand in for the "
        "paper's.",
        130,
    )
    return figure


def _binned(shares: dict[int, float]) -> list[float]:
    return [shares.get(late, 0.0) for late in range(LAST)] + [
        sum(share for late, share in shares.items() if late >= LAST)
    ]


def _text(shares: Shares) -> list[str]:
    said = ["Trained rollouts of oppo were counted by how late they are."]
    for scenario in SCENARIOS:
        versions = shares[scenario, "staleness"]
        late = 1 - versions[0]
        by_one = versions.get(1, 0.0) / late if late else 1.0
        said.append(
            f"{scenario}: {versions[0]:.1%} are trained in time, {versions.get(1, 0.0):.1%} one "
            f"version late, {late - versions.get(1, 0.0):.2%} later, {max(versions)} at most; of "
            f"the late ones {by_one:.0%} are late by exactly one. Carried over: "
            f"{1 - shares[scenario, 'deferrals'][0]:.1%}."
        )
    finding = judged(shares)
    said.append(
        "So most are not late, and nine in ten or more of the others by one step, as in the paper."
        if finding.verdict == "confirmed"
        else "The paper's words, that most are not late and nearly all others by one step, do not "
        "hold on both."
    )
    said.append("How many are late, and for how long, depends on the tail of the lengths and on D.")
    return said


def judged(shares: Shares) -> Finding:
    """The paper's words. "confirmed": more than half are in time, and of the others 0.9 or more are
    one version late, on both scenarios; else "corrected"."""
    versions = {scenario: own for (scenario, kind), own in shares.items() if kind == "staleness"}
    by_one = {s: own.get(1, 0.0) / (1 - own[0]) if own[0] < 1 else 1.0
              for s, own in versions.items()}  # fmt: skip
    holds = all(own[0] > 0.5 for own in versions.values()) and min(by_one.values()) >= 0.9
    numbers = {f"{s}: share in time": own[0] for s, own in versions.items()}
    numbers |= {f"{s}: of the others, by one version": share for s, share in by_one.items()}
    return Finding(
        "Most rollouts are trained in time, and nearly all others one step late.",
        "confirmed" if holds else "corrected",
        numbers,
    )


EXPERIMENT = Experiment("lateness", "How late are the rollouts that oppo trains on?", 1, run)

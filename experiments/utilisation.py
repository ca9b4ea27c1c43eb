"""Busy devices under trl and oppo, beside the paper's utilisation of GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.figure import Figure

from experiments import chart
from experiments.result import Experiment, Result, Row
from oppo_sim.analysis.fits import shipped_fits
from oppo_sim.analysis.paper import paper_rows
from oppo_sim.analysis.parts import Measured, Part, run_parts
from oppo_sim.config import load_scenario

SCHEDULES = ("trl", "oppo")
PAPER = {  # % of each scenario and schedule
    (row.scenario, row.schedule): round(100 * row.paper, 1)
    for row in paper_rows()
    if row.measure == "utilisation" and row.paper
}
FITTED = shipped_fits()["chat"].shown
SCENARIOS = list(dict.fromkeys(scenario for scenario, _ in PAPER))


class Shares(NamedTuple):
    """In %, of all devices."""

    busy: float
    counted: float  # decoding and waiting count as fitted to U1b, U1o and U2o


def run(quick: bool) -> Result:
    steps = 10 if quick else 200
    shares = dict(zip(PAPER, map(_shares, run_parts(_parts(steps))), strict=True))
    rows: list[Row] = [
        {
            "scenario": scenario,
            "schedule": schedule,
            "paper_pct": PAPER[scenario, schedule],
            "busy_pct": each.busy,
            "counted_pct": each.counted,
        }
        for (scenario, schedule), each in shares.items()
    ]
    return Result(rows, _draw(shares), _text(shares))


def _parts(steps: int) -> list[Part]:
    found = []
    for name, schedule in PAPER:
        scenario = load_scenario(name)
        part = Part(scenario=scenario, schedule=scenario.schedule(schedule), seed=0, steps=steps)
        found.append(part)
    return found


def _shares(measured: Measured) -> Shares:
    assert measured.spent is not None  # no device of these scenarios has two lanes at once
    counted = measured.spent.counted(FITTED.decode_counts, FITTED.wait_counts)
    return Shares(100 * measured.metrics.mean_utilisation, 100 * counted)


def _draw(shares: dict[tuple[str, str], Shares]) -> Figure:
    figure, axes = chart.panels(2, height=4.6, sharey=True)
    for panel, schedule in zip(axes, SCHEDULES, strict=True):
        bars: tuple[tuple[str, Sequence[float]], ...] = (
            ("paper: GPU utilisation", [PAPER[s, schedule] for s in SCENARIOS]),
            ("simulated: busy", [shares[s, schedule].busy for s in SCENARIOS]),
            ("simulated: as fitted", [shares[s, schedule].counted for s in SCENARIOS]),
        )
        for look, (label, values) in enumerate(bars):
            x = [place + 0.27 * (look - 1) for place in range(len(SCENARIOS))]
            colour = ("#BBBBBB", chart.COLOURS[0], chart.COLOURS[4])[look]
            panel.bar(x, values, 0.25, color=colour, edgecolor="black", lw=0.4, label=label,
                      hatch=("", "", "////")[look])  # fmt: skip
            for at, value in zip(x, values, strict=True):
                panel.annotate(f"{value:.0f}", (at, value), (0, 2), ha="center", size=7.5,
                               textcoords="offset points")  # fmt: skip
        panel.set_xticks(range(len(SCENARIOS)), SCENARIOS, size=8)
        panel.set_title(f"schedule {schedule}", loc="left")
    axes[0].set_ylabel("share of all devices' time (%)")
    axes[0].set_ylim(0, 100)
    axes[0].legend(loc="upper left", fontsize=8)
    chart.caption(
        figure,
        "Grey: the paper's measurement, not simulated. Busy: a device has a task. As fitted: "
        f"decoding counts {FITTED.decode_counts:.2f}, waiting for the batch "
        f"{FITTED.wait_counts:.2f}, fitted to Stack-Exchange (7B, and the 3B's oppo).",
    )
    return figure


def _text(shares: dict[tuple[str, str], Shares]) -> list[str]:
    said = [
        "A device is busy here while it has a task: an actor from its first rollout to its last, "
        "however few still decode, a scorer and a trainer from start to end; tasks on one device "
        "count once. The paper reports GPU utilisation and does not say how it was measured; here "
        f"decoding counts {FITTED.decode_counts:.2f} and an actor that waits for the batch "
        f"{FITTED.wait_counts:.2f}, which is fitted to three of these values (U1b, U1o, U2o)."
    ]
    for scenario in SCENARIOS:
        trl, oppo = (shares[scenario, schedule] for schedule in SCHEDULES)
        papers = [PAPER[scenario, schedule] for schedule in SCHEDULES]
        said.append(
            f"{scenario}: paper {papers[0]} -> {papers[1]} %, busy {trl.busy:.1f} -> "
            f"{oppo.busy:.1f} %, as fitted {trl.counted:.1f} -> {oppo.counted:.1f} %."
        )
    rises = [s for s in SCENARIOS if shares[s, "oppo"].counted > shares[s, "trl"].counted]
    said.append(f"The fitted share rises under oppo in {len(rises)} of {len(SCENARIOS)} scenarios.")
    for name in ("busy", "counted"):
        errors = [abs(getattr(shares[key], name) - paper) for key, paper in PAPER.items()]
        said.append(
            f"The {name} share is {sum(errors) / len(errors):.0f} points from the paper's value on "
            f"average, {max(errors):.0f} at most."
        )
    return said


EXPERIMENT = Experiment("utilisation", "How busy are the devices, and by which measure?", 1, run)

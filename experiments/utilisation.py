"""Busy devices under trl and oppo, beside the paper's utilisation of GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from joblib import Parallel, delayed
from matplotlib.figure import Figure

from experiments import chart
from experiments.result import Experiment, Result
from experiments.weighted import Weighted
from oppo_sim.analysis.parts import cores
from oppo_sim.config import load_scenario
from oppo_sim.simulate import lanes, simulate

PAPER = {  # % under TRL and under OPPO: arXiv 2509.25762, from reading notes
    "stackexchange-7b": (50.6, 71.0),
    "stackexchange-3b": (38.7, 73.6),
    "gsm8k-7b": (45.7, 67.3),
    "opencoder-3b": (35.7, 74.1),
}
SCHEDULES = ("trl", "oppo")


class Shares(NamedTuple):
    """In %, of all devices."""

    busy: float
    weighted: float


def run(quick: bool) -> Result:
    steps = 10 if quick else 200
    keys = [(scenario, schedule) for scenario in PAPER for schedule in SCHEDULES]
    found = Parallel(n_jobs=cores())(delayed(_shares)(*key, steps) for key in keys)
    shares = dict(zip(keys, found, strict=True))
    rows = [
        {
            "scenario": scenario,
            "schedule": schedule,
            "paper_pct": PAPER[scenario][SCHEDULES.index(schedule)],
            "busy_pct": each.busy,
            "weighted_pct": each.weighted,
        }
        for (scenario, schedule), each in shares.items()
    ]
    return Result(rows, _draw(shares), _text(shares))


def _shares(name: str, schedule: str, steps: int) -> Shares:
    scenario = load_scenario(name)
    weighted = Weighted(lanes(scenario))
    records = list(
        simulate(scenario, scenario.schedule(schedule), seed=0, steps=steps, listen=weighted)
    )
    devices = len(weighted.busy_s)
    wall_s = records[-1].end_s * devices
    busy_s = sum(sum(record.busy_s.values()) for record in records)
    return Shares(100 * busy_s / wall_s, 100 * sum(weighted.busy_s.values()) / wall_s)


def _draw(shares: dict[tuple[str, str], Shares]) -> Figure:
    figure, axes = chart.panels(2, height=4.6, sharey=True)
    for panel, schedule in zip(axes, SCHEDULES, strict=True):
        bars: tuple[tuple[str, Sequence[float]], ...] = (
            (
                "paper: GPU utilisation",
                [pair[SCHEDULES.index(schedule)] for pair in PAPER.values()],
            ),
            ("simulated: busy", [shares[s, schedule].busy for s in PAPER]),
            ("simulated: decoding weighted", [shares[s, schedule].weighted for s in PAPER]),
        )
        for look, (label, values) in enumerate(bars):
            x = [place + 0.27 * (look - 1) for place in range(len(PAPER))]
            colour = ("#BBBBBB", chart.COLOURS[0], chart.COLOURS[4])[look]
            panel.bar(x, values, 0.25, color=colour, edgecolor="black", lw=0.4, label=label,
                      hatch=("", "", "////")[look])  # fmt: skip
            for at, value in zip(x, values, strict=True):
                panel.annotate(f"{value:.0f}", (at, value), (0, 2), ha="center", size=7.5,
                               textcoords="offset points")  # fmt: skip
        panel.set_xticks(range(len(PAPER)), list(PAPER), size=8)
        panel.set_title(f"schedule {schedule}", loc="left")
    axes[0].set_ylabel("share of all devices' time (%)")
    axes[0].set_ylim(0, 100)
    axes[0].legend(loc="upper left", fontsize=8)
    chart.caption(
        figure,
        "Grey: the paper's measurement, not simulated. Busy: a device has a task. Weighted: an "
        "actor counts by the share of the rollouts, of the most it had in that step, that still "
        "decode. Neither is what a GPU reports; nothing is fitted to these rows.",
    )
    return figure


def _text(shares: dict[tuple[str, str], Shares]) -> list[str]:
    said = [
        "A device is busy here while it has a task: an actor from its first rollout to its last, "
        "however few still decode, a scorer and a trainer from start to end; tasks on one device "
        "count once. The weighted share counts a decoding actor by the rollouts that run, over the "
        "most that it had in the same step. The paper reports GPU utilisation and does not say how "
        "it was measured, so only the direction and the order compare."
    ]
    for scenario, (paper_trl, paper_oppo) in PAPER.items():
        trl, oppo = (shares[scenario, schedule] for schedule in SCHEDULES)
        said.append(
            f"{scenario}: paper {paper_trl} -> {paper_oppo} %, busy {trl.busy:.1f} -> "
            f"{oppo.busy:.1f} %, weighted {trl.weighted:.1f} -> {oppo.weighted:.1f} %."
        )
    rises = [s for s in PAPER if shares[s, "oppo"].weighted > shares[s, "trl"].weighted]
    said.append(f"The weighted share rises under oppo in {len(rises)} of {len(PAPER)} scenarios.")
    for name in ("busy", "weighted"):
        errors = [
            abs(getattr(shares[scenario, schedule], name) - paper)
            for scenario, pair in PAPER.items()
            for schedule, paper in zip(SCHEDULES, pair, strict=True)
        ]
        said.append(
            f"The {name} share is {sum(errors) / len(errors):.0f} points from the paper's value on "
            f"average, {max(errors):.0f} at most."
        )
    return said


EXPERIMENT = Experiment("utilisation", "How busy are the devices, and by which measure?", 1, run)

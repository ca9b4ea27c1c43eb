"""Reward by step of a tiny task that is really trained, in TRL's order and in oppo's."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from experiments import chart
from experiments.result import Experiment, Finding, Result, Row, Verdict
from oppo_sim.runs import each_step

CONFIG = Path(__file__).parent / "configs/real/even-tokens.toml"
SCHEDULES = ("trl", "oppo")
SEEDS = 3
SMOOTH = 5  # steps of a running mean
LAST = 10  # steps whose mean reward is the final one
BAR = 0.8  # of the highest reward, which is 1
Curves = Mapping[str, NDArray[np.float64]]  # schedule -> [seed, step]


def run(quick: bool) -> Result:
    rows: list[Row] = []
    for schedule in SCHEDULES:
        for seed in range(1 if quick else SEEDS):
            rows += _trained(schedule, seed)
    rewards = _table(rows, "reward")
    figure = _draw(rewards, _table(rows, "kl"))
    return Result(rows, figure, _text(rows, rewards), judged(rewards))


def _trained(schedule: str, seed: int) -> list[Row]:
    """One run, in a process of its own, as a user begins it."""
    with TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [
            sys.executable,
            "-c",
            "import sys; from oppo_sim.cli import main; sys.exit(main())",
        ]
        options = ["--schedule", schedule, "--seed", str(seed), "--out", str(out)]
        done = subprocess.run(
            [*command, "train", str(CONFIG), *options], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])
        updates = (out / "updates.jsonl").read_text(encoding="utf-8").splitlines()
        kls = [json.loads(line)["objective/kl"] for line in updates]
        return [
            {
                "schedule": schedule,
                "seed": seed,
                "step": record.step + 1,
                "reward": record.reward,
                "kl": kl,
                "mean_tokens": sum(record.tokens) / len(record.tokens),
                "end_s": record.end_s,
            }
            for record, kl in zip(each_step(out), kls, strict=True)
        ]


def _table(rows: Sequence[Row], column: str) -> Curves:
    curves: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        seeds = curves.setdefault(str(row["schedule"]), {})
        seeds.setdefault(int(row["seed"] or 0), []).append(float(row[column] or 0.0))
    return {schedule: np.array([*seeds.values()]) for schedule, seeds in curves.items()}


def smooth(curves: NDArray[np.float64]) -> NDArray[np.float64]:
    """Running means along the last axis."""
    window = np.ones(SMOOTH) / SMOOTH
    return np.array([np.convolve(curve, window, "valid") for curve in curves])


def overlap(one: NDArray[np.float64], other: NDArray[np.float64]) -> tuple[float, float]:
    """The share of steps at which the seeds' ranges meet, and the widest gap between them."""
    a, b = smooth(one), smooth(other)
    gap = np.maximum(a.min(0) - b.max(0), b.min(0) - a.max(0))
    return float((gap <= 0).mean()), float(max(gap.max(), 0.0))


def _draw(rewards: Curves, kls: Curves) -> Figure:
    figure, axes = chart.panels(2, width=10.0, height=4.2)
    for panel, curves in zip(axes, (rewards, kls), strict=True):
        for place, (schedule, runs) in enumerate(curves.items()):
            look, steps = chart.COLOURS[place], np.arange(1, runs.shape[1] + 1)
            for curve in runs:
                panel.plot(steps, curve, color=look, lw=0.6, alpha=0.6)
            style = ("-", "--")[place]
            panel.plot(steps[SMOOTH - 1 :], smooth(runs).mean(0), color=look, lw=2, ls=style,
                       label=schedule)  # fmt: skip
        panel.set_xlabel("PPO step")
    axes[0].axhline(BAR, color="grey", lw=0.8, ls=":")
    axes[0].set_ylim(0.4, 1.0)
    axes[0].set_ylabel("mean reward of the batch (at most 1)")
    axes[1].set_ylabel("KL to the first actor (nats per response)")
    axes[0].legend(loc="lower right")
    chart.caption(
        figure,
        "A random Qwen2 of two layers is trained by PPO to write even token ids, at most 16 of "
        f"them; reward: their share. Thin: a seed; thick: all, mean of {SMOOTH} steps.",
        measured=True,
    )
    return figure


def _text(rows: Sequence[Row], rewards: Curves) -> list[str]:
    said = [
        "A tiny random actor learns to write tokens with even ids; the reward of a response is "
        "their share, at most 1."
    ]
    ends = _table(rows, "end_s")
    for schedule, runs in rewards.items():
        final = runs[:, -LAST:].mean(1)
        said.append(
            f"Schedule {schedule}, seeds below {len(runs)}: from {_range(runs[:, 0])} in the first "
            f"step to {_range(final)} in the last {LAST} of {runs.shape[1]}, in "
            f"{_range(ends[schedule][:, -1], 0)} s."
        )
    if len(rewards["trl"]) > 1:
        share, gap = overlap(rewards["trl"], rewards["oppo"])
        said.append(
            f"The ranges of the two schedules' seeds (means of {SMOOTH} steps) meet at "
            f"{100 * share:.0f} % of the steps"
            + (f", else at most {gap:.3f} apart." if gap else ".")
        )
    said.append("Seconds are of the machine that drew this, and include whatever else it did.")
    return said


def judged(rewards: Curves) -> Finding:
    """ "confirmed": both orders end above BAR, and their seeds' ranges meet at 0.9 of the steps or
    more; "corrected": one ends below it; else, or with a single seed, "undecided"."""
    finals = {schedule: float(runs[:, -LAST:].mean()) for schedule, runs in rewards.items()}
    met = overlap(rewards["trl"], rewards["oppo"])[0] if len(rewards["trl"]) > 1 else None
    verdict: Verdict = "undecided"
    if min(finals.values()) < BAR:
        verdict = "corrected"
    elif met is not None and met >= 0.9:
        verdict = "confirmed"
    numbers: dict[str, float | None] = {f"{s}: final reward": x for s, x in finals.items()}
    return Finding(
        "PPO learns in oppo's order as it does in TRL's.",
        verdict,
        {**numbers, "share of steps at which the seeds' ranges meet": met},
    )


def _range(values: NDArray[np.float64], digits: int = 2) -> str:
    low, high = (f"{value:.{digits}f}" for value in (values.min(), values.max()))
    return low if low == high else f"{low}-{high}"


EXPERIMENT = Experiment(
    "learning", "Does PPO learn, in oppo's order as in TRL's?", 3, run, role="measured"
)

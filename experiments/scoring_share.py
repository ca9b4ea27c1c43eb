"""The MFU at which scoring takes what the paper's intra-step overlap is reported to hide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from experiments import chart
from experiments.result import Experiment, Finding, Result, Row, Verdict
from experiments.runs import Variant, simulated
from oppo_sim.config import load_scenario
from oppo_sim.simulate import costs, workload

# what overlapping scoring alone gives in the paper (rows A1, A3): it hides 1 - 1/x of a step
GAINS = {"stackexchange-7b": 1.2, "stackexchange-3b": 1.3}
HOSTS = ("reward", "reference", "critic")
BATCHES = 100  # of which the padding is the mean
LOW, PLAUSIBLE = 0.1, 0.3  # of the peak, in one forward over many tokens
ALL = '["reward", "reference", "critic"]'
Key = tuple[str, int, bool]  # scenario, forwards, padded


class Needed(NamedTuple):
    """What a scorer does per step, and the share of its peak that makes it last that long."""

    seconds_at_peak: float
    seconds: float
    mfu: float


def run(quick: bool) -> Result:
    scenarios = list(GAINS)[:1] if quick else list(GAINS)
    found = simulated(
        [_variant(name) for name in scenarios], 1 if quick else 2, 15 if quick else 100
    )
    needed: dict[Key, Needed] = {}
    for name, runs in zip(scenarios, found, strict=True):
        rest_s = runs.step_s.mean - runs.stage_s("scoring")
        seconds = scoring_s(rest_s, GAINS[name])
        for forwards in range(1, len(HOSTS) + 1):
            for padded in (False, True):
                peak_s = at_peak_s(name, forwards, padded)
                needed[name, forwards, padded] = Needed(peak_s, seconds, peak_s / seconds)
    finding = judged(needed)
    rows: list[Row] = [
        {"scenario": name, "forwards": n, "padded": padded, **each._asdict()}
        for (name, n, padded), each in needed.items()
    ]
    return Result(rows, _draw(needed), _text(needed, finding), finding)


def _variant(name: str) -> Variant:
    """TRL's order, with all forwards on the scorer, so that the rest has none of them."""
    return Variant(name, "trl", {}, {"models.on_scorer": ALL})


def scoring_s(rest_s: float, gain: float) -> float:
    """Of a step whose other stages take `rest_s`, if hiding it all would gain that much."""
    return rest_s * (gain - 1)


def at_peak_s(name: str, forwards: int, padded: bool) -> float:
    """Seconds of a batch's forwards at the card's peak, by the cost model, over drawn batches."""
    hosts = ", ".join(f'"{host}"' for host in HOSTS[:forwards])
    keys = {"models.on_scorer": f"[{hosts}]", "costs.efficiency.prefill_mfu": 1.0}
    scenario = load_scenario(name, keys)
    batch, load = scenario.schedule().batch, workload(scenario, 0)
    price, seconds = costs(scenario), 0.0
    for at in range(0, BATCHES * batch, batch):
        rollouts = range(at, at + batch)
        prompts = np.array([load.prompt_tokens(rollout) for rollout in rollouts])
        rows = prompts + np.array(load.responses(rollouts))
        if padded:
            rows = np.full_like(rows, prompts.max() + (rows - prompts).max())
        seconds += price.score_s(batch, int(rows.sum()), float((rows**2).sum()) / 2, batch)
    return seconds / BATCHES


def judged(needed: Mapping[Key, Needed]) -> Finding:
    """Whether one plain forward can be what scoring takes.

    "confirmed": one forward over real tokens needs less than LOW of the peak in every scenario, and
    three padded ones reach PLAUSIBLE in one; "corrected": one forward needs PLAUSIBLE or more.
    """
    one = [each.mfu for (_, n, padded), each in needed.items() if n == 1 and not padded]
    three = [each.mfu for (_, n, padded), each in needed.items() if n == 3 and padded]
    verdict: Verdict = "undecided"
    if max(one) < LOW and max(three) >= PLAUSIBLE:
        verdict = "confirmed"
    elif min(one) >= PLAUSIBLE:
        verdict = "corrected"
    return Finding(
        "Scoring at 17 % of a step means that one reward forward uses some 0.05 of an H200's peak: "
        "plausible only with three forwards (reward, reference, critic) or with padding.",
        verdict,
        {
            f"{name}: MFU of {n} forward{'s' * (n > 1)}{', padded' * padded}": each.mfu
            for (name, n, padded), each in needed.items()
        },
    )


def _draw(needed: Mapping[Key, Needed]) -> Figure:
    figure, axes = chart.panels(1, width=7.0, height=4.0)
    names = list(dict.fromkeys(name for name, *_ in needed))
    for look, name in enumerate(names):
        for padded in (False, True):
            own = {n: each for (s, n, p), each in needed.items() if (s, p) == (name, padded)}
            rows = "padded to the longest" if padded else "real tokens"
            chart.line(axes, look, list(own), [each.mfu for each in own.values()],
                       ls="--" if padded else "-", label=f"{name}, {rows}")  # fmt: skip
    axes.axhspan(PLAUSIBLE, 0.6, color="#EEEEEE", zorder=0, label="expected of a prefill")
    axes.set_yscale("log")
    axes.set_yticks((0.05, 0.1, 0.2, 0.5, 1.0), ("0.05", "0.1", "0.2", "0.5", "1"))
    axes.minorticks_off()
    axes.set_xticks((1, 2, 3), ("1: reward", "2: + reference", "3: + critic"))
    axes.set_xlabel("forwards of a 7B reward model, and of models of the actor's size")
    axes.set_ylabel("share of the peak (MFU)")
    axes.set_ylim(bottom=0.3 * min(each.mfu for each in needed.values()))
    axes.legend(fontsize=7.5, loc="lower right", ncols=2)
    chart.caption(
        figure,
        "The MFU at which the scorer takes what intra-step overlap alone is reported to hide, "
        "beside generation and training as simulated.",
        105,
    )
    return figure


def _text(needed: Mapping[Key, Needed], finding: Finding) -> list[str]:
    said = [
        "Intra-step overlap alone is reported to give 1.2 x (7B) and 1.3 x (3B): if it hides all "
        "scoring, that is 17 and 23 % of a step. From what generation and training take here "
        "follows how many seconds scoring takes, and from its FLOPs which share of the peak it "
        "uses."
    ]
    for name in dict.fromkeys(name for name, *_ in needed):
        own = {key[1:]: each for key, each in needed.items() if key[0] == name}
        listed = "; ".join(
            f"{n} forward{'s' * (n > 1)}: {own[n, False].mfu:.3f}, padded {own[n, True].mfu:.2f}"
            for n in range(1, len(HOSTS) + 1)
        )
        said.append(f"{name}, {own[1, False].seconds:.1f} s of scoring per step: {listed}.")
    said.append(
        {
            "confirmed": f"So one plain forward would use less than {LOW:g} of the peak, where a "
            "prefill of many tokens is expected to reach 0.3 to 0.6: padding, or more forwards, "
            "is the likelier reading.",
            "corrected": "So one plain forward at the expected share of the peak is enough.",
            "undecided": "So neither reading is ruled out here.",
        }[finding.verdict]
    )
    said.append("Which models the paper's scorer ran, and how, is not known to us.")
    return said


EXPERIMENT = Experiment(
    "scoring_share",
    "Which share of its peak does the scorer use, if scoring takes that long?",
    1,
    run,
)

"""What run-away responses would have to be like for the paper's speed-up on GSM8K."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from experiments import chart
from experiments.result import Experiment, Finding, Result, Row, Verdict
from experiments.runs import Runs, Variant, simulated
from oppo_sim.workload import Endless, Mixture, Sample, fit, load

SCENARIO, TABLE, BATCH, PROMPT = "gsm8k-7b", "gsm8k_Qwen2-7B-Instruct_greedy", 112, 158
PAPER = 2.8  # row T1d
SHARES = (0.0, 0.001, 0.003, 0.01)  # of the responses that never end by themselves
CAPS = (1024, 2048, 4096)
# what training costs: words, keys
TRAININGS: dict[str, dict[str, object]] = {
    "as the scenario has it": {},
    "padded to the longest": {"costs.training.padded": True},
    "of 1 epoch, not padded": {"costs.training.padded": False, "costs.training.epochs": 1},
}
SYSTEMS: dict[str, tuple[str, dict[str, object]]] = {
    "trl": ("trl", {}),
    "D by the slope": ("inter", {}),
    "D = 32": ("inter", {"overcommit": 32}),
}
LEAST_RATIO, LEAST_CAP = 5.5, 2048  # what is said to be needed: 6 to 8, in whole numbers


class Case(NamedTuple):
    """A law under a cap, and what overcommitment gives there."""

    training: str
    cap: int
    share: float
    overcommit: str
    longest: float  # mean of the longest of a batch, over the mean
    train_share: float  # of a step of trl
    gain: float


Key = tuple[str, int, float, str]  # training, cap, share, system


def run(quick: bool) -> Result:
    trainings = list(TRAININGS)[:1] if quick else list(TRAININGS)
    caps, shares = (CAPS[1:2], (0.0, 0.01)) if quick else (CAPS, SHARES)
    keys = [(t, cap, share, s) for t in trainings for cap in caps for share in shares
            for s in SYSTEMS]  # fmt: skip
    found = simulated([_variant(*key) for key in keys], 1, 20 if quick else 120)
    cases = _cases(dict(zip(keys, found, strict=True)))
    finding = judged(cases)
    rows: list[Row] = [{"scenario": SCENARIO, **case._asdict()} for case in cases]
    return Result(rows, _draw(cases), _text(cases, finding), finding)


@cache
def body() -> Mixture:
    """Two lognormals through the answers of the table that ended by themselves."""
    lengths = load(TABLE).ppf((np.arange(4000) + 0.5) / 4000)
    law = fit("mixture", Sample.of(lengths[lengths < lengths.max()])).law
    assert isinstance(law, Mixture)
    return law


def _variant(training: str, cap: int, share: float, system: str) -> Variant:
    schedule, axes = SYSTEMS[system]
    law = body()
    mu, sigma = (list(map(float, values)) for values in (law.mu, law.sigma))
    lengths = f"mixture = {{ weight = {float(law.weight)!r}, mu = {mu}, sigma = {sigma} }}"
    if share:
        lengths += f", endless = {share}"
    keys: dict[str, object] = {
        "workload.lengths": f"{{ {lengths} }}",
        "workload.max_response_tokens": cap,
        "workload.prompt_tokens": PROMPT,
        **TRAININGS[training],
    }
    return Variant(SCENARIO, schedule, axes, keys)


def _cases(runs: Mapping[Key, Runs]) -> list[Case]:
    cases = []
    for (training, cap, share, system), each in runs.items():
        if system == "trl":
            base = each
            continue
        train_share = base.stage_s("training") / base.step_s.mean
        cases.append(
            Case(training, cap, share, system, longest_over_mean(share, cap), train_share,
                 each.gain(base).mean)
        )  # fmt: skip
    return cases


def longest_over_mean(share: float, cap: int) -> float:
    """Of a batch: the mean of its longest response over the mean response."""
    law = Endless(body(), share) if share else body()
    grid = (np.arange(4096) + 0.5) / 4096
    longest = np.minimum(law.ppf(grid ** (1 / BATCH)), cap).mean()
    return float(longest / np.minimum(law.ppf(grid), cap).mean())


def judged(cases: list[Case]) -> Finding:
    """Whether the paper's ratio needs run-aways, with the training that the scenario has.

    "confirmed": some case reaches it, and none without run-aways, below LEAST_RATIO or below
    LEAST_CAP does; "corrected": one of those does, or no case at all.
    """
    first = cases[0].training
    reached = [case for case in cases if case.gain >= PAPER and case.training == first]
    short = [c for c in reached if not c.share or c.longest < LEAST_RATIO or c.cap < LEAST_CAP]
    verdict: Verdict = "confirmed" if reached and not short else "corrected"
    numbers: dict[str, float | None] = {}
    for training in dict.fromkeys(case.training for case in cases):
        own = [case for case in cases if case.training == training]
        hits = [case.longest for case in own if case.gain >= PAPER]
        none = [case.gain for case in own if not case.share]
        numbers[f"{training}: share of training in trl, least"] = min(c.train_share for c in own)
        numbers[f"{training}: largest gain without run-aways"] = max(none, default=None)
        numbers[f"{training}: largest gain"] = max(case.gain for case in own)
        numbers[f"{training}: least longest over mean that gives 2.8"] = min(hits, default=None)
    return Finding(
        "The 2.8x on GSM8K (T1d), where no reward model can be hidden, needs rare run-away "
        "responses: a longest of 6 to 8 means per batch, and a cap of 2,048 or more.",
        verdict,
        numbers,
    )


def _draw(cases: list[Case]) -> Figure:
    trainings = list(dict.fromkeys(case.training for case in cases))
    figure, axes = chart.panels(len(trainings), width=12.0, height=4.4, sharey=True, squeeze=False)
    caps = list(dict.fromkeys(case.cap for case in cases))
    for panel, training in zip(axes[0], trainings, strict=True):
        for look, cap in enumerate(caps):
            for overcommit, style in (("D by the slope", "--"), ("D = 32", "-")):
                place = (training, cap, overcommit)
                own = [c for c in cases if (c.training, c.cap, c.overcommit) == place]
                chart.line(panel, look, [c.longest for c in own], [c.gain for c in own], ls=style,
                           label=f"cap {cap:,}, {overcommit}")  # fmt: skip
        panel.axhline(PAPER, color="grey", lw=0.8, ls=":")
        panel.axvspan(6, 8, color="#EEEEEE", zorder=0)
        shares = [case.train_share for case in cases if case.training == training]
        panel.set_title(
            f"training {training}\n({min(shares):.0%} to {max(shares):.0%} of a trl step)",
            loc="left", size=9,
        )  # fmt: skip
        panel.set_xlabel("longest of a batch, over the mean")
    axes[0][0].set_ylim(1, 6)
    axes[0][0].set_ylabel("speed-up over trl (x)")
    axes[0][0].legend(fontsize=7, loc="upper left")
    chart.caption(
        figure,
        f"Scenario {SCENARIO} with {', '.join(f'{100 * share:g}' for share in SHARES)} % of "
        "responses that never end, from left to right; the rest as measured, two lognormals. "
        f"Dotted: the paper's {PAPER}; grey: 6 to 8.",
    )
    return figure


def _text(cases: list[Case], finding: Finding) -> list[str]:
    said = [
        "A share of the responses was made to run on to the cap, the others drawn from a law "
        f"fitted to measured GSM8K answers (longest of {BATCH} over the mean: "
        f"{longest_over_mean(0.0, max(CAPS)):.1f} without run-aways)."
    ]
    for training in dict.fromkeys(case.training for case in cases):
        own = [case for case in cases if case.training == training]
        best = max(own, key=lambda case: case.gain)
        hits = sorted((c.longest, c) for c in own if c.gain >= PAPER)
        none = max(case.gain for case in own if not case.share)
        said.append(
            f"Training {training} ({min(c.train_share for c in own):.0%} to "
            f"{max(c.train_share for c in own):.0%} of a step of trl): {none:.2f} x at most "
            "without run-aways; "
            + (
                f"{PAPER} x from a longest of {hits[0][0]:.1f} means on ({hits[0][1].share:.1%} "
                f"run-aways, cap {hits[0][1].cap:,}, {hits[0][1].overcommit}); "
                if hits
                else f"{PAPER} x is not reached; "
            )
            + f"{best.gain:.2f} x at most (a longest of {best.longest:.1f} means, "
            f"{best.overcommit})."
        )
    reached = [case for case in cases if case.gain >= PAPER]
    if finding.verdict == "confirmed":
        said.append("So with the scenario's training the ratio takes run-aways as stated.")
    elif any(case.training == cases[0].training for case in reached):
        said.append("So with the scenario's training the ratio takes less than is stated.")
    else:
        said.append("So with the scenario's training run-aways do not make the ratio.")
    if reached:
        said.append(
            f"Over all that was tried it is reached from a longest of "
            f"{min(c.longest for c in reached):.1f} means on, with "
            f"{min(c.share for c in reached):.1%} run-aways, at a cap of "
            f"{min(c.cap for c in reached):,}, where training is "
            f"{max(c.train_share for c in reached):.0%} of a trl step or less."
        )
    said.append("How often the paper's answers ran away, and what its training took, is unknown.")
    return said


EXPERIMENT = Experiment(
    "runaways", "What tail does the speed-up on GSM8K need, where there is nothing to hide?", 1, run
)

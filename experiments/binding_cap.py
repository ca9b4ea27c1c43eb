"""What overcommitment gains where the response cap binds."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from experiments import chart
from experiments.result import Experiment, Finding, Result, Row, Verdict
from experiments.runs import Variant, simulated
from oppo_sim.workload import load

SCENARIO, BATCH = "stackexchange-7b", 112
MATH = (4096, 2048, 1024, 512)
SETS: dict[str, tuple[int, ...]] = {
    "mathL5_Qwen2.5-7B-Instruct_greedy": MATH,
    "mathL5_Meta-Llama-3.1-8B-Instruct_greedy": MATH,
    "servegen_deepseek-r1": (16384, 8192, 4096, 2048, 1024),
    "alpacaeval_alpaca-farm-ppo-human": (2048, 1024, 512, 256),
}
LABELS = ("MATH level 5, Qwen2.5-7B", "MATH level 5, Llama-3.1-8B", "DeepSeek-R1 service",
          "AlpacaEval, AlpacaFarm PPO")  # fmt: skip
OVERCOMMITS = (4, 8, 16)
SHOWN = 8  # D of the left panel
MOST = 1.1  # what overcommitment may gain at a binding cap
Key = tuple[str, int, int]  # set, cap, D


def run(quick: bool) -> Result:
    sets = {name: (caps[0], caps[-2]) if quick else caps for name, caps in SETS.items()}
    keys = [(s, cap, d) for s, caps in sets.items() for cap in caps for d in (0, *OVERCOMMITS)]
    variants = [
        Variant(
            SCENARIO,
            "inter",
            {"overcommit": d},
            {"workload.lengths": name, "workload.max_response_tokens": cap},
        )
        for name, cap, d in keys
    ]
    found = simulated(variants, seeds=1 if quick else 2, steps=15 if quick else 60)
    runs = dict(zip(keys, found, strict=True))
    gains = {key: runs[key].gain(runs[*key[:2], 0]).mean for key in keys if key[2]}
    at_cap = {(s, cap): BATCH * _share(s, cap) for s, caps in sets.items() for cap in caps}
    rows: list[Row] = [
        {
            "scenario": SCENARIO,
            "lengths": s,
            "cap_tokens": cap,
            "at_cap_per_batch": at_cap[s, cap],
            "overcommit": d,
            "step_s": runs[s, cap, d].step_s.mean,
            "gain": gain,
        }
        for (s, cap, d), gain in gains.items()
    ]
    return Result(rows, _draw(gains, at_cap), _text(gains, at_cap), judged(gains, at_cap))


def _share(name: str, cap: int) -> float:
    """Of the set's responses, what reaches the cap."""
    points = (np.arange(1 << 16) + 0.5) / (1 << 16)
    return float((load(name).ppf(points) >= cap).mean())


def _draw(gains: dict[Key, float], at_cap: dict[tuple[str, int], float]) -> Figure:
    figure, (left, right) = chart.panels(2, height=4.9, sharey=True)
    for look, (name, label) in enumerate(zip(SETS, LABELS, strict=True)):
        caps = sorted(cap for s, cap in at_cap if s == name)
        curve = [gains[name, cap, SHOWN] for cap in caps]
        chart.line(left, look, caps, curve, label=label)
        points = [(at_cap[name, c] / d, g) for (s, c, d), g in gains.items() if s == name]
        chart.line(right, look, *zip(*points, strict=True), ls="", label=label)
    chart.tokens_axis(left, sorted({cap for _, cap in at_cap}), "response cap (tokens)")
    left.set_title(f"D = {SHOWN}", loc="left")
    left.set_ylabel("gain in step time over D = 0 (x)")
    left.legend(loc="upper left", fontsize=8)
    right.set_title(f"D = {', '.join(map(str, OVERCOMMITS))}", loc="left")
    right.set_xscale("symlog", linthresh=0.1)
    right.set_xlim(-0.01, 50)
    right.set_xlabel("responses of a batch that reach the cap, per rollout of D")
    right.axvspan(1, 50, color="#EEEEEE", zorder=0)
    right.text(1.15, 0.93, "the cap binds:\nmore reach it\nthan D covers", size=8, va="top",
               transform=right.get_xaxis_transform())  # fmt: skip
    for panel in (left, right):
        panel.axhline(1.0, color="black", lw=0.8)
        panel.axhline(MOST, color="black", lw=0.8, ls=":")
    right.text(0.0, MOST + 0.01, f"{MOST} x", size=8)
    chart.caption(
        figure,
        f"Scenario {SCENARIO} with other measured lengths and caps, schedule inter with fixed D, "
        f"B = {BATCH}. Costs as in that scenario, whatever the lengths.",
    )
    return figure


def binding(gains: dict[Key, float], at_cap: dict[tuple[str, int], float]) -> dict[Key, float]:
    """The gains where at least D responses of a batch reach the cap."""
    return {key: gain for key, gain in gains.items() if at_cap[key[:2]] >= key[2]}


def judged(gains: dict[Key, float], at_cap: dict[tuple[str, int], float]) -> Finding:
    """ "confirmed": no binding cap leaves more than MOST; "corrected": one does; "undecided": none
    binds."""
    held = binding(gains, at_cap)
    most = max(held.values(), default=None)
    loose = [gain for key, gain in gains.items() if key not in held]
    verdict: Verdict = "undecided"
    if most is not None:
        verdict = "confirmed" if most <= MOST else "corrected"
    return Finding(
        f"Where a cap binds, so that D or more responses of a batch reach it, overcommitment gains "
        f"at most {MOST} x.",
        verdict,
        {
            "cases in which the cap binds": len(held),
            "largest gain there": most,
            "largest gain elsewhere": max(loose, default=None),
        },
    )


def _text(gains: dict[Key, float], at_cap: dict[tuple[str, int], float]) -> list[str]:
    held = binding(gains, at_cap)
    loose = {key: gain for key, gain in gains.items() if at_cap[key[:2]] < 0.5}
    said = [
        f"Measured lengths of {len(SETS)} sets were cut at several caps, and D = "
        f"{', '.join(map(str, OVERCOMMITS))} beyond a batch of {BATCH} compared with D = 0."
    ]
    if loose:
        said.append(
            "Where less than half a response per batch reaches the cap, the gain is "
            f"{min(loose.values()):.2f}-{max(loose.values()):.2f} x."
        )
    if held:
        most = max(held, key=held.__getitem__)
        kept = "at most" if held[most] <= MOST else "NOT at most"
        said.append(
            f"Where D or more responses of a batch reach it, {len(held)} of {len(gains)} cases, "
            f"the gain is {kept} {MOST} x: {held[most]:.2f} x at most ({most[0]}, cap "
            f"{most[1]:,}, D = {most[2]}). Those responses are equally long, so carrying D of "
            "them over leaves others that end at the same time."
        )
    for name, label in zip(SETS, LABELS, strict=True):
        caps = sorted((cap for s, cap in at_cap if s == name), reverse=True)
        listed = ", ".join(f"{cap:,}: {gains[name, cap, SHOWN]:.2f} x" for cap in caps)
        said.append(f"{label}, D = {SHOWN}, by cap: {listed}.")
    return said


EXPERIMENT = Experiment(
    "binding_cap", "What does overcommitment gain when responses run into the cap?", 1, run
)

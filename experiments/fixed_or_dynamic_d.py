"""Fixed overcommitment against the paper's reward-slope controller, over training and noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from experiments import chart
from experiments.result import Experiment, Result
from experiments.runs import Runs, Variant, simulated
from oppo_sim.policies import RewardSlope
from oppo_sim.simulate import simulate

SCENARIO = "stackexchange-7b"
MOST, GROUP = 16, 20  # D at most; steps in a point of the left panel
RULES = ("constant", "proportional")
CURVES = {"rising": {}, "flat": {"workload.reward.start": 4.5}}  # flat: at its plateau throughout
NOISES = (0.0, 0.1, 0.3, 1.0, 3.0)  # standard deviation of one rollout's reward; assumed: 1.0
ASSUMED = 1.0
FIXED = (4, 8, 16)
Key = tuple[str, str, float]  # step rule, reward curve, noise


def run(quick: bool) -> Result:
    noises = (0.0, ASSUMED) if quick else NOISES
    seeds, steps = (1, 80) if quick else (2, 700)
    keys = [(rule, curve, noise) for rule in RULES for curve in CURVES for noise in noises]
    variants = [_dynamic(*key) for key in keys]
    fixed = [Variant(SCENARIO, "oppo", {"overcommit": d}) for d in FIXED]
    found = simulated([*variants, *fixed], seeds, steps)
    runs = dict(zip(keys, found, strict=False))
    step_s = {f"fixed {d}": each for d, each in zip(FIXED, found[len(keys) :], strict=True)}
    step_s |= {f"slope, {rule}": runs[rule, "rising", ASSUMED] for rule in RULES}
    traces = {
        (rule, curve, noise): _trace(rule, curve, noise, steps) for rule, curve, noise in keys
    }
    late = {key: _mean(trace[3 * steps // 4 :]) / MOST for key, trace in traces.items()}
    rows: list[dict[str, Any]] = [
        _row(f"slope, {rule}", curve, noise, late[rule, curve, noise] * MOST, each)
        for (rule, curve, noise), each in runs.items()
    ]
    rows += [_row(f"fixed {d}", "rising", ASSUMED, d, step_s[f"fixed {d}"]) for d in FIXED]
    return Result(rows, _draw(traces, late, step_s), _text(late, step_s))


def _dynamic(rule: str, curve: str, noise: float) -> Variant:
    policy = RewardSlope(start=4, least=0, most=MOST, step_rule=rule)  # type: ignore[arg-type]
    keys = {"workload.reward.noise": noise, **CURVES[curve]}
    return Variant(SCENARIO, "oppo", {"overcommit": policy}, keys)


def _trace(rule: str, curve: str, noise: float, steps: int) -> list[int]:
    """D by step, of seed 0."""
    scenario, schedule = _dynamic(rule, curve, noise).load()
    return [record.overcommit for record in simulate(scenario, schedule, seed=0, steps=steps)]


def _row(policy: str, curve: str, noise: float, late_d: float, runs: Runs) -> dict[str, Any]:
    mean, low, high = runs.step_s
    return {
        "scenario": SCENARIO,
        "policy": policy,
        "reward_curve": curve,
        "reward_noise": noise,
        "last_quarter_mean_d": late_d,
        "share_of_most": late_d / MOST,
        "step_s": mean,
        "low_s": low,
        "high_s": high,
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _draw(traces: dict[Key, list[int]], late: dict[Key, float], step_s: dict[str, Runs]) -> Figure:
    figure, (left, middle, right) = chart.panels(3, width=12.0, height=4.8)
    for look, rule in enumerate(RULES):
        trace = traces[rule, "rising", ASSUMED]
        starts = range(0, len(trace) - GROUP + 1, GROUP)
        means = [_mean(trace[start : start + GROUP]) for start in starts]
        middles = [start + GROUP / 2 for start in starts]
        chart.line(left, look, middles, means, label=f"slope, {rule} step", markersize=3)
        for curve, style in zip(CURVES, ("-", "--"), strict=True):
            noises = sorted({noise for r, c, noise in late if (r, c) == (rule, curve)})
            shares = [100 * late[rule, curve, noise] for noise in noises]
            chart.line(middle, look, noises, shares, ls=style, label=f"{rule} step, {curve} reward")
    for d, style in zip(FIXED[:2], (":", "-."), strict=True):
        left.axhline(d, color="black", lw=1, ls=style, label=f"fixed D = {d}")
    left.set_ylim(-0.5, 1.45 * MOST)
    left.set_yticks(range(0, MOST + 1, 4))
    left.set_xlabel("PPO step")
    left.set_ylabel("D (rollouts beyond the batch)")
    left.set_title(f"D over training, means of {GROUP} steps", loc="left", size=9)
    left.legend(fontsize=7.5, loc="upper right", ncols=2)
    middle.set_xscale("symlog", linthresh=0.1)
    middle.set_xlabel("noise of one rollout's reward (standard deviation)")
    middle.set_ylabel(f"mean D of the last quarter (% of {MOST})")
    middle.set_ylim(-3, 145)
    middle.set_yticks(range(0, 101, 20))
    middle.set_title("Does it switch itself off?", loc="left", size=9)
    middle.legend(fontsize=7.5, loc="upper right")
    names = list(step_s)
    seconds = [runs.step_s.mean for runs in step_s.values()]
    right.barh(names, seconds, color=chart.COLOURS[5], edgecolor="black", lw=0.4)
    for place, value in enumerate(seconds):
        right.annotate(f"{value:.1f}", (value, place), (3, 0), textcoords="offset points",
                       va="center", size=8)  # fmt: skip
    right.invert_yaxis()
    right.set_xlim(0, 1.15 * max(seconds))
    right.set_xlabel("seconds per PPO step")
    right.set_title(f"Step time, noise {ASSUMED:g}", loc="left", size=9)
    chart.caption(
        figure,
        f"Scenario {SCENARIO}, schedule oppo; the slope is taken over 5 steps, D from 0 to {MOST}. "
        f"The reward curve and its noise are assumed ({ASSUMED:g} in the scenario). Left and "
        "middle: seed 0.",
        165,
    )
    return figure


def _text(late: dict[Key, float], step_s: dict[str, Runs]) -> list[str]:
    noisy = {key: share for key, share in late.items() if key[2] > 0}
    quiet = {key: share for key, share in late.items() if key[2] == 0}
    said = [
        f"On {SCENARIO} D followed the slope of the mean reward over 5 steps, one up or one down "
        f"(constant) or by D // 4 (proportional), from 0 to {MOST}; the reward rises as assumed, "
        "or is flat: converged from the start."
    ]
    for rule in RULES:
        shares = [share for key, share in noisy.items() if key[0] == rule]
        said.append(
            f"With noisy rewards the {rule} rule's D is on average {min(shares):.0%} to "
            f"{max(shares):.0%} of its maximum in the last quarter of training."
        )
    off = [f"{rule}, {curve}" for (rule, curve, _), share in quiet.items() if share < 0.05]
    said.append(
        f"It switches itself off without noise ({'; '.join(off) or 'nowhere'}), "
        + ("and" if any(s < 0.05 for s in noisy.values()) else "but never")
        + " with noise: the mean of the slopes telescopes to (R_t - R_(t-5)) / 5, whose sign is a "
        "coin's once the noise exceeds the progress of 5 steps. While the reward rises without "
        f"noise D is at {min(s for key, s in quiet.items() if key[1] == 'rising'):.0%} of its "
        "maximum or more."
    )
    seconds = {name: runs.step_s.mean for name, runs in step_s.items()}
    listed = ", ".join(f"{name}: {value:.1f} s" for name, value in seconds.items())
    fastest = min(seconds, key=seconds.__getitem__)
    said.append(
        f"Seconds per step with noise {ASSUMED:g}: {listed}; the fastest is {fastest}. Staleness "
        "has no price here."
    )
    dynamic = min(seconds[f"slope, {rule}"] for rule in RULES)
    beaten = [f"fixed {d}" for d in FIXED if dynamic < seconds[f"fixed {d}"]]
    said.append(
        "The paper finds the controller best throughout, fixed 4 timid and fixed 8 fast early "
        f"only; by step time alone the better rule beats {', '.join(beaten) or 'none of them'} "
        "here."
    )
    return said


EXPERIMENT = Experiment(
    "fixed_or_dynamic_d", "Fixed or dynamic D, and does the controller switch itself off?", 2, run
)

"""What moves the headline most: one input of the scenario at a time, down and up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from matplotlib.figure import Figure

from experiments import chart
from experiments.result import Experiment, Result, Row
from experiments.runs import Variant, simulated
from oppo_sim.config import load_scenario
from oppo_sim.config.costs import Roofline

SCENARIO = "stackexchange-7b"
BY = 0.2  # efficiencies, decode and prompts: down and up by so much


class Input(NamedTuple):
    """Keys for the low and the high side, and how they read."""

    name: str
    low: tuple[str, dict[str, object]]
    high: tuple[str, dict[str, object]]


def inputs() -> list[Input]:
    """Around what the scenario says."""
    scenario = load_scenario(SCENARIO)
    costs, workload = scenario.costs, scenario.workload
    assert isinstance(costs, Roofline)
    assert workload is not None
    train, prefill = costs.efficiency.train_mfu or 0.0, costs.efficiency.prefill_mfu or 0.0
    prompts, cap = workload.prompt_tokens or 0, workload.max_response_tokens

    def around(name: str, key: str, value: float) -> Input:
        sides: list[dict[str, object]] = [{key: value * (1 + sign * BY)} for sign in (-1, 1)]
        return Input(name, (f"-{BY:.0%}", sides[0]), (f"+{BY:.0%}", sides[1]))

    def named(name: str, low: object, high: object, key: str) -> Input:
        return Input(name, (str(low), {key: low}), (str(high), {key: high}))

    launch = 0.894e-3  # seconds per layer and token, of Hugging Face's generate
    return [
        named("response cap", cap // 2, cap // 4, "workload.max_response_tokens"),
        Input(
            "lengths",
            ("FuseChat 7B", {"workload.lengths": "alpacaeval_FuseChat-Qwen-2.5-7B-Instruct"}),
            ("AlpacaFarm PPO", _cut("alpacaeval_alpaca-farm-ppo-human", min(cap, 2048))),
        ),
        around("training efficiency", "costs.efficiency.train_mfu", train),
        around("scoring efficiency", "costs.efficiency.prefill_mfu", prefill),
        around("time of a decoded token", "costs.engine.launch_per_layer_s", launch),
        named("prompt tokens", prompts // 2, 2 * prompts, "workload.prompt_tokens"),
        named("largest D", 8, 64, "schedule.overcommit.most"),
        named("stall of a round, s", 0.0, 1.0, "costs.round_s"),
        named("batch", 56, 224, "schedule.batch"),
        named("chunk, tokens", 64, 500, "schedule.chunk"),
        named("epochs", 2, 6, "costs.training.epochs"),
        Input(
            "scorers, of 8 devices",
            ("1", {}),
            ("2", {"cluster.actors": 6, "cluster.scorers": 2}),
        ),
    ]


def _cut(table: str, cap: int) -> dict[str, object]:
    return {"workload.lengths": table, "workload.max_response_tokens": cap}


def run(quick: bool) -> Result:
    around = inputs()[:2] if quick else inputs()
    keys = [{}, *(side[1] for one in around for side in (one.low, one.high))]
    variants = [Variant(SCENARIO, s, {}, own) for own in keys for s in ("trl", "oppo")]
    found = simulated(variants, 1 if quick else 2, 15 if quick else 150)
    gains = [oppo.gain(trl).mean for trl, oppo in zip(found[::2], found[1::2], strict=True)]
    base, rest = gains[0], gains[1:]
    sides = dict(
        zip([one.name for one in around], zip(rest[::2], rest[1::2], strict=True), strict=True)
    )
    ordered = sorted(around, key=lambda one: -reach(sides[one.name], base))
    rows: list[Row] = [
        {
            "scenario": SCENARIO,
            "input": one.name,
            "low": one.low[0],
            "high": one.high[0],
            "speedup": base,
            "speedup_low": sides[one.name][0],
            "speedup_high": sides[one.name][1],
        }
        for one in ordered
    ]
    return Result(rows, _draw(ordered, sides, base), _text(ordered, sides, base))


def reach(sides: tuple[float, float], base: float) -> float:
    """How far the speed-up gets from where it was, relative to it."""
    return max(abs(side / base - 1) for side in sides)


def _draw(ordered: list[Input], sides: Mapping[str, tuple[float, float]], base: float) -> Figure:
    figure, axes = chart.panels(1, width=7.0, height=1.2 + 0.42 * len(ordered))
    for place, one in enumerate(reversed(ordered)):
        bars = list(zip(sides[one.name], (one.low, one.high), chart.COLOURS, strict=False))
        for side, (label, _), colour in sorted(bars, key=lambda bar: -abs(bar[0] - base)):
            axes.barh(place, side - base, left=base, height=0.6, color=colour)
            away = side >= base
            axes.annotate(
                label, (side, place), (3 if away else -3, 0), textcoords="offset points",
                ha="left" if away else "right", va="center", size=7,
            )  # fmt: skip
    axes.axvline(base, color="black", lw=0.8)
    axes.set_yticks(range(len(ordered)), [one.name for one in reversed(ordered)])
    axes.margins(x=0.2)
    axes.set_xlabel("speed-up of oppo over trl (x)")
    chart.caption(
        figure, f"Scenario {SCENARIO}, one input changed at a time, the same lengths.", 90
    )
    return figure


def _text(ordered: list[Input], sides: Mapping[str, tuple[float, float]], base: float) -> list[str]:
    most = ordered[:3]
    said = [
        f"As it stands the speed-up is {base:.2f} x. One input at a time, the others as they are "
        "(nothing is fitted again), the strongest are "
        + "; ".join(
            f"{one.name} ({one.low[0]}: {sides[one.name][0]:.2f} x, {one.high[0]}: "
            f"{sides[one.name][1]:.2f} x)"
            for one in most
        )
        + "."
    ]
    weak = [one.name for one in ordered if reach(sides[one.name], base) < 0.03]
    if weak:
        said.append(f"Less than 3 % either way: {', '.join(weak)}.")
    return said


EXPERIMENT = Experiment("sensitivity", "Which inputs move the speed-up most?", 1, run)

"""Where the fastest chunk lies, as a round's end and the scorer's work cost more or less."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from experiments import chart
from experiments.result import Experiment, Finding, Result, Row, Verdict
from experiments.runs import Runs, Variant, simulated
from oppo_sim.config import load_scenario
from oppo_sim.costs import Efficiency

SCENARIO = "stackexchange-7b"
SCHEDULES = ("intra", "oppo")
CHUNKS = (64, 128, 200, 350, 500, 750, 1000)  # and the cap: the whole response
ROUNDS_S = (0.0, 0.1, 0.5, 1.0, 2.0)
LOADS = (0.5, 1.0, 3.0)  # scorer seconds per token, in those of the scenario
PAPER, NEAR = 500, (350, 750)  # tokens: the paper's fastest, and what is still near
PRICE_S = 0.5  # of a round's end, at least, for the paper's optimum: so it was said
LEVEL = 1.01  # within 1 % of the fastest
Place = tuple[str, float, float]  # schedule, load, round_s
Curve = Mapping[int, float]  # step seconds by chunk


def run(quick: bool) -> Result:
    cap = load_scenario(SCENARIO).workload.max_response_tokens
    chunks = [128, 500, cap] if quick else [*(c for c in CHUNKS if c < cap), cap]
    rounds, loads = ((0.0, 1.0), (1.0,)) if quick else (ROUNDS_S, LOADS)
    places = [(s, load, at) for s in SCHEDULES for load in loads for at in rounds]
    variants = [_variant(*place, chunk) for place in places for chunk in chunks]
    found = simulated(variants, 1, 15 if quick else 60)
    runs = {
        place: dict(zip(chunks, found[n * len(chunks) :], strict=False))
        for n, place in enumerate(places)
    }
    curves = {
        place: {chunk: each.step_s.mean for chunk, each in own.items()}
        for place, own in runs.items()
    }
    busy = {place: _scorer_busy(own[chunks[0]]) for place, own in runs.items()}
    finding = judged(curves)
    rows: list[Row] = [
        {
            "scenario": SCENARIO,
            "schedule": schedule,
            "scorer_load": load,
            "round_s": at,
            "chunk_tokens": chunk,
            "step_s": seconds,
        }
        for (schedule, load, at), curve in curves.items()
        for chunk, seconds in curve.items()
    ]
    return Result(rows, _draw(curves), _text(curves, busy), finding)


def _variant(schedule: str, load: float, round_s: float, chunk: int) -> Variant:
    mfu = min(1.0, _mfu() / load)
    keys: dict[str, object] = {"costs.round_s": round_s, "costs.efficiency.prefill_mfu": mfu}
    return Variant(SCENARIO, schedule, {"chunk": chunk}, keys)


def _mfu() -> float:
    """The scenario's."""
    efficiency = load_scenario(SCENARIO).costs.efficiency  # type: ignore[union-attr]
    return float(efficiency.prefill_mfu or Efficiency.prefill_mfu)


def _scorer_busy(runs: Runs) -> float:
    """The scorer's seconds over those of the step."""
    return runs.metrics[0].score_s / runs.metrics[0].mean_step_s


def best(curve: Curve) -> int:
    return min(curve, key=curve.__getitem__)


def near(curve: Curve) -> list[int]:
    """The chunks within 1 % of the fastest."""
    least = min(curve.values())
    return [chunk for chunk, seconds in curve.items() if seconds <= LEVEL * least]


def is_inside(curve: Curve) -> bool:
    """Whether the smallest and the whole response both are slower by more than 1 %."""
    return not {min(curve), max(curve)} & set(near(curve))


def like_the_paper(curves: Mapping[Place, Curve]) -> list[Place]:
    """Where the fastest chunk is near the paper's, and both ends are slower."""
    return [
        place
        for place, curve in curves.items()
        if is_inside(curve) and NEAR[0] <= best(curve) <= NEAR[1]
    ]


def judged(curves: Mapping[Place, Curve]) -> Finding:
    """Whether the optimum is the price of a round's end, and how high that is.

    "confirmed": with free rounds the smallest chunk is within 1 % of the fastest everywhere, and
    the optimum is near the paper's chunk only where a round's end costs 0.5 s or more; "corrected":
    a small chunk loses where rounds are free, or less than 0.5 s puts the optimum there.
    """
    small = all(min(curve) in near(curve) for (_, _, at), curve in curves.items() if at == 0)
    prices = [at for _, _, at in like_the_paper(curves)]
    verdict: Verdict = "undecided"
    if not small or any(at < PRICE_S for at in prices):
        verdict = "corrected"
    elif prices:
        verdict = "confirmed"
    numbers: dict[str, float] = {
        f"{s}, load {load:.2g}, round's end {at:g} s: fastest chunk": best(curve)
        for (s, load, at), curve in curves.items()
    }
    return Finding(
        "Without a cost per chunk boundary smaller chunks are never worse; an optimum near 500 "
        "needs 0.5 to 2 s per boundary.",
        verdict,
        numbers,
    )


def _draw(curves: Mapping[Place, Curve]) -> Figure:
    loads = sorted({load for _, load, _ in curves})
    figure, axes = chart.grid(len(SCHEDULES), len(loads), 4.2 * len(loads), 7.0)
    grid = axes.reshape(len(SCHEDULES), len(loads))
    for row, schedule in zip(grid, SCHEDULES, strict=True):
        for panel, load in zip(row, loads, strict=True):
            own = {at: curve for (s, at_load, at), curve in curves.items()
                   if (s, at_load) == (schedule, load)}  # fmt: skip
            for look, (at, curve) in enumerate(own.items()):
                label = f"{at:g} s per round's end"
                chart.line(panel, look, list(curve), list(curve.values()), label=label)
                panel.plot(best(curve), min(curve.values()), "o", ms=10, mfc="none",
                           color=chart.COLOURS[look])  # fmt: skip
            panel.axvline(PAPER, color="grey", lw=0.8, ls=":")
            chart.tokens_axis(panel, list(next(iter(own.values()))), "chunk (tokens)")
            panel.set_title(f"{schedule}, scorer's work x {load:.2g}", loc="left")
    grid[0][0].set_ylabel("seconds per PPO step")
    grid[-1][0].set_ylabel("seconds per PPO step")
    grid[0][0].legend(fontsize=7.5)
    chart.caption(
        figure,
        f"Scenario {SCENARIO}, a fixed chunk; the last one is the cap. Rings: the fastest; dotted: "
        "the paper's 500. The vertical axes do not begin at 0.",
    )
    return figure


def _text(curves: Mapping[Place, Curve], busy: Mapping[Place, float]) -> list[str]:
    said = [
        f"On {SCENARIO} the chunk was fixed, from {min(next(iter(curves.values())))} tokens to the "
        "cap, with other costs of a round's end and other work of the scorer."
    ]
    for schedule in SCHEDULES:
        for load in sorted({load for _, load, _ in curves}):
            own = {at: curve for (s, at_load, at), curve in curves.items()
                   if (s, at_load) == (schedule, load)}  # fmt: skip
            listed = ", ".join(
                f"{at:g} s: {best(c)} ({_range(near(c))} within 1 %)" for at, c in own.items()
            )
            said.append(
                f"{schedule}, scorer's work x {load:.2g} (busy "
                f"{busy[schedule, load, min(own)]:.0%} of a step): fastest chunk by the cost of a "
                f"round's end, {listed}."
            )
    hits = like_the_paper(curves)
    listed = "; ".join(f"{s}, work x {load:.2g}, {at:g} s" for s, load, at in hits)
    said.append(
        f"An optimum of {NEAR[0]} to {NEAR[1]} tokens, with the smallest chunk and the whole "
        f"response slower by more than 1 %, is found in {len(hits)} of {len(curves)} cases"
        + (f": {listed}." if hits else ".")
    )
    lost = [place for place, curve in curves.items() if not place[2] and min(curve) not in
            near(curve)]  # fmt: skip
    if lost:
        said.append(f"Small chunks lose though rounds are free in {len(lost)} cases.")
    elif hits:
        by_load = {load: [at for _, at_load, at in hits if at_load == load] for _, load, _ in hits}
        prices = "; ".join(
            f"{' or '.join(f'{price:g}' for price in sorted(set(at)))} s with the scorer's work "
            f"x {load:.2g}"
            for load, at in sorted(by_load.items())
        )
        said.append(
            "Without a price of a round's end the smallest chunk is never slower by more than 1 %. "
            f"The price that makes the paper's optimum is {prices}; nobody has measured it."
        )
    else:
        said.append("No price that was tried puts the optimum near the paper's.")
    return said


def _range(chunks: list[int]) -> str:
    return f"{chunks[0]}" if len(chunks) == 1 else f"{chunks[0]} to {chunks[-1]}"


EXPERIMENT = Experiment(
    "chunk_cost", "How does the fastest chunk depend on a round's end and on the scorer?", 1, run
)

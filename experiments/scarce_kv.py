"""What overcommitment gains as the KV memory of the actors becomes scarce."""

from __future__ import annotations

from functools import partial
from typing import Any

from experiments import scarce_figure
from experiments.memories import REDONE, REGIMES, WAITS, Case, Key, Regime
from experiments.refilled import Refilled
from experiments.result import Experiment, Finding, Result
from experiments.runs import Runs, on_all_cores
from oppo_sim.analysis.metrics import summarise
from oppo_sim.simulate import costs, simulate


def run(quick: bool) -> Result:
    keys = [
        (place, kv, d)
        for place, regime in enumerate(REGIMES)
        for kv in (regime.quick if quick else regime.memories)
        for d in (0, *(regime.overcommits[-1:] if quick else regime.overcommits))
    ]
    found = on_all_cores(partial(_case, quick), keys)
    cases: dict[Key, Case] = dict(zip(keys, found, strict=True))
    gains = {key: cases[key].runs.gain(cases[*key[:2], 0].runs).mean for key in keys if key[2]}
    rows = [_row(key, cases, gains) for key in gains]
    figure = scarce_figure.draw(cases, gains)
    return Result(rows, figure, _text(cases, gains), judged(gains))


def _case(quick: bool, key: Key) -> Case:
    place, kv, d = key
    regime = REGIMES[place]
    scenario, schedule = regime.variant(kv, d).load()
    price = costs(scenario)
    steps, warmup = (min(regime.steps, 40), 0) if quick else (regime.steps, regime.warmup)
    if quick and regime.warmup:
        steps, warmup = 5, 2
    metrics, watched = [], []
    for seed in range(1 if quick else regime.seeds):
        again = Refilled(regime.prompt_tokens, lambda n: price.prefill_s(n, 0.5 * n * n))
        records = simulate(scenario, schedule, seed=seed, steps=steps, listen=again)
        metrics.append(summarise(records, warmup=warmup))
        watched.append(again)
    number = steps * len(watched)
    return Case(
        Runs(tuple(metrics)),
        sum(each.preemptions for each in watched) / number,
        sum(each.tokens for each in watched) / number,
        sum(each.seconds for each in watched) / number / scenario.cluster.actors,
    )


def _row(key: Key, cases: dict[Key, Case], gains: dict[Key, float]) -> dict[str, Any]:
    place, kv, d = key
    own, base = cases[key], cases[place, kv, 0]
    first = own.runs.metrics[0]
    return {
        "scenario": REGIMES[place].scenario,
        "lane": REGIMES[place].name,
        "batch": REGIMES[place].batch,
        "kv_tokens": kv,
        "overcommit": d,
        "step_s": own.runs.step_s.mean,
        "gain": gains[key],
        "waiting_s": own.runs.stage_s("waiting"),
        "generation_gain": base.runs.stage_s("generation") / own.runs.stage_s("generation"),
        "preemptions_per_step": own.preemptions,
        "again_share": own.again_share,
        "again_s_per_lane": own.again_s,
        "again_s_per_lane_without": base.again_s,
        "wasted_share": first.wasted_share,
        "trained_tokens_mean": first.trained_tokens_mean,
    }


def _text(cases: dict[Key, Case], gains: dict[Key, float]) -> list[str]:
    said = [
        "The KV memory of the actor lanes was cut, and D rollouts beyond the batch compared with "
        "D = 0 on the same memory."
    ]
    for place, regime in enumerate(REGIMES):
        said.append(_of(regime, {key[1:]: gain for key, gain in gains.items() if key[0] == place}))
    reverses = [REGIMES[place].name for place in range(len(REGIMES)) if reversal(gains, place)]
    kept = [REGIMES[place].name for place in range(len(REGIMES)) if not reversal(gains, place)]
    if reverses:
        said.append(f"So the gain falls and then reverses here: {'; '.join(reverses)}.")
    if kept:
        said.append(f"It falls without reversing here: {'; '.join(kept)}.")
    said += [_why(place, cases, gains) for place in REDONE]
    said.append(_waits(cases, gains))
    queued = {key: case for key, case in cases.items() if key[0] < 2 and key[2]}
    said.append(
        "The paper's set-up does not reverse, because nothing is lost: what does not fit waits in "
        "a queue that keeps the slots of the lanes full, and at most "
        f"{max(case.again_share for case in queued.values()):.2f} tokens are prefilled again per "
        "token decoded, "
        f"{max(case.again_s for case in queued.values()):.1f} s of a lane per step "
        f"of {min(case.runs.step_s.mean for case in queued.values()):.0f} s or more: with 16 "
        "rollouts a lane a decoded token costs far more than a prefilled one."
    )
    said.append(
        "A loss takes work that is done twice, thrown away or in the way of training, and a D = 0 "
        "that is without it: memory in which a batch fits, but not a batch and D. With less, "
        "batches alone are preempted or queue as well, and D gains again. Searched and found "
        "without a loss: prompts of 4,096 tokens, vLLM's speed and D = 112 on 16 rollouts a lane. "
        "Where left-overs are thrown away part of the gain with ample memory is skipped work "
        "(column trained_tokens_mean)."
    )
    return said


def _of(regime: Regime, gains: dict[tuple[int, int], float]) -> str:
    """What a regime's gains do, from ample memory down."""
    most, least = max(kv for kv, _ in gains), min(kv for kv, _ in gains)
    lowest = min(gains, key=gains.__getitem__)
    ample = _range([gain for (kv, _), gain in gains.items() if kv == most])
    scarce = _range([gain for (kv, _), gain in gains.items() if kv == least])
    slower = sorted({kv for (kv, _), gain in gains.items() if gain < 1})
    below = (
        f"it is below 1 (D makes steps slower) at {', '.join(f'{kv:,}' for kv in slower)} tokens"
        if slower
        else "it is never below 1"
    )
    return (
        f"{regime.name[0].upper()}{regime.name[1:]} ({regime.scenario}, B = {regime.batch}): the "
        f"gain is {ample} at {most:,} tokens and {scarce} at {least:,}; {below}; "
        f"{gains[lowest]:.2f} x at worst (D = {lowest[1]}, {lowest[0]:,} tokens)."
    )


def _why(place: int, cases: dict[Key, Case], gains: dict[Key, float]) -> str:
    """What is prefilled again where the largest D does worst, and without D."""
    most = max(d for at, _, d in gains if at == place)
    worst = min((key for key in gains if key[0] == place and key[2] == most), key=gains.__getitem__)
    own, base = cases[worst], cases[*worst[:2], 0]
    return (
        f"{REGIMES[place].name[0].upper()}{REGIMES[place].name[1:]}, D = {most}, {worst[1]:,} "
        f"tokens: {own.preemptions:,.0f} rollouts are preempted per step (D = 0: "
        f"{base.preemptions:,.0f}), {own.again_share:.2f} tokens, prompts included, are prefilled "
        f"again per token decoded ({base.again_share:.2f}), {own.again_s:.1f} s of each lane per "
        f"step ({base.again_s:.1f}); generation takes {own.runs.stage_s('generation'):.1f} s "
        f"instead of {base.runs.stage_s('generation'):.1f}."
    )


def _waits(cases: dict[Key, Case], gains: dict[Key, float]) -> str:
    """What training waits where a whole wave of prompts is prefilled when it is due."""
    worst = min((key for key in gains if key[0] == WAITS), key=gains.__getitem__)
    own, base = cases[worst].runs, cases[*worst[:2], 0].runs
    regime = REGIMES[WAITS]
    return (
        f"{regime.name[0].upper()}{regime.name[1:]}, D = {worst[2]}, {worst[1]:,} tokens: a lane "
        "that runs empty while the batch is scored takes a wave of what waits, prompts of "
        f"{regime.prompt_tokens:,} tokens, and a prefill is not interrupted: training waits "
        f"{own.stage_s('waiting'):.1f} s per step ({base.stage_s('waiting'):.1f} with D = 0), more "
        f"than the {base.stage_s('generation') - own.stage_s('generation'):.1f} s that generation "
        "gains. A prefill in pieces could be interrupted; no machine here has one."
    )


def _range(gains: list[float]) -> str:
    return f"{min(gains):.2f}-{max(gains):.2f} x"


def reversal(gains: dict[Key, float], place: int) -> bool:
    """Whether some D gains with ample memory and makes steps slower with less."""
    own = {key[1:]: gain for key, gain in gains.items() if key[0] == place}
    most = max(kv for kv, _ in own)
    return any(own[most, d] > 1 > gain for (_, d), gain in own.items())


def judged(gains: dict[Key, float]) -> Finding:
    """ "confirmed": every regime's gain falls below 1; "corrected": some stay above it."""
    places = sorted({place for place, *_ in gains})
    reverses = [place for place in places if reversal(gains, place)]
    numbers = {f"{REGIMES[place].name}: least gain": min(gain for key, gain in gains.items()
                                                         if key[0] == place)
               for place in places}  # fmt: skip
    return Finding(
        "Where KV memory is scarce, overcommitment makes steps slower.",
        "confirmed" if reverses == places else "corrected",
        {"regimes": len(places), "regimes in which it does": len(reverses), **numbers},
    )


EXPERIMENT = Experiment(
    "scarce_kv", "What does overcommitment gain when KV memory is scarce?", 2, run
)

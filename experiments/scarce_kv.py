"""What overcommitment gains as the KV memory of the actors becomes scarce."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from experiments import chart
from experiments.result import Experiment, Result
from experiments.runs import Runs, Variant, simulated

SCENARIO = "stackexchange-7b"
RESERVE = 2560  # tokens of a rollout at most: a prompt of 512, a response of 2048
WAVES = tuple([RESERVE * rollouts for rollouts in (1, 2, 4, 8, 16, 24)])
OVERCOMMITS = (4, 8, 16, 32)
EACH = {"flush": "round", "refill": "event"}
# what a lane does: its name, the schedule's axes, the KV memories of a lane
LANES: tuple[tuple[str, dict[str, Any], tuple[int, ...]], ...] = (
    ("admitted when its whole reserve fits", EACH, WAVES),
    (
        "admitted at once, youngest preempted",
        {**EACH, "kv_reserve_tokens": 1},
        (2600, 3200, 4000, 5000, 8000, 16000, 61440),
    ),
    (
        "static batches, what is left over thrown away",
        {"refill": "batch", "surplus": "drop", "partial": "nothing"},
        tuple([RESERVE * rollouts for rollouts in (1, 2, 3, 4, 6, 8, 12, 16, 18, 24)]),
    ),
)
QUICK = {0: (RESERVE, 61440), 1: (3200, 61440), 2: (RESERVE, 61440)}
Key = tuple[int, int, int]  # place in LANES, KV tokens of a lane, D


def run(quick: bool) -> Result:
    overcommits = (8, 32) if quick else OVERCOMMITS
    keys = [
        (place, kv, d)
        for place, (_, _, memories) in enumerate(LANES)
        for kv in (QUICK[place] if quick else memories)
        for d in (0, *overcommits)
    ]
    variants = [
        Variant(
            SCENARIO,
            "inter",
            {**LANES[place][1], "overcommit": d},
            {"cluster.kv_tokens": kv, "cluster.slots": 64},
        )
        for place, kv, d in keys
    ]
    found = simulated(variants, seeds=1 if quick else 2, steps=40 if quick else 120)
    runs = dict(zip(keys, found, strict=True))
    gains = {key: runs[key].gain(runs[*key[:2], 0]).mean for key in keys if key[2]}
    return Result([_row(key, runs, gains) for key in gains], _draw(gains), _text(gains))


def _row(key: Key, runs: dict[Key, Runs], gains: dict[Key, float]) -> dict[str, Any]:
    place, kv, d = key
    own, base = runs[key], runs[place, kv, 0]
    first = own.metrics[0]
    return {
        "scenario": SCENARIO,
        "lane": LANES[place][0],
        "kv_tokens": kv,
        "overcommit": d,
        "step_s": own.step_s.mean,
        "gain": gains[key],
        "generation_gain": base.stage_s("generation") / own.stage_s("generation"),
        "reprefilled_share": first.reprefilled_share,
        "wasted_share": first.wasted_share,
        "trained_tokens_mean": first.trained_tokens_mean,
    }


def _draw(gains: dict[Key, float]) -> Figure:
    figure, axes = chart.panels(3, width=11.5, height=4.6, sharey=True)
    overcommits = sorted({d for _, _, d in gains})
    for place, panel in enumerate(axes):
        memories = sorted({kv for at, kv, _ in gains if at == place})
        for look, d in enumerate(overcommits):
            curve = [gains[place, kv, d] for kv in memories]
            chart.line(panel, look, memories, curve, label=f"D = {d}")
        panel.axhline(1.0, color="black", lw=0.8)
        panel.axhspan(0.5, 1.0, color="#EEEEEE", zorder=0)
        ticks = memories[:1]
        ticks += [kv for kv in memories if kv in WAVES or (kv % 4000 == 0 and kv > ticks[0])]
        chart.tokens_axis(panel, list(dict.fromkeys(ticks)), "KV memory of an actor lane (tokens)")
        panel.set_title(LANES[place][0], loc="left", size=9)
    axes[0].set_ylim(0.85, 1.08 * max(gains.values()))
    axes[0].set_ylabel("gain in step time over D = 0, same memory (x)")
    axes[0].legend(loc="upper left")
    axes[0].text(0.98, 0.02, "slower than D = 0", size=8, ha="right",
                 transform=axes[0].transAxes)  # fmt: skip
    chart.caption(
        figure,
        f"Scenario {SCENARIO}, schedule inter with fixed D, B = 112 on 7 lanes (16 each); a "
        f"rollout needs at most {RESERVE:,} tokens. Left and right: its whole need is reserved, "
        "the rest queues (right: until all lanes are empty). Middle: only the prompt is. "
        "Right: a batch fills whole waves "
        "with 1, 2, 4, 8 or 16 rollouts a lane, not with 3, 6 or 12.",
        165,
    )
    return figure


def _text(gains: dict[Key, float]) -> list[str]:
    said = [
        f"On {SCENARIO} the KV memory of the seven actor lanes was cut, and D rollouts beyond the "
        "batch compared with D = 0 on the same memory."
    ]
    for place, (name, _, _) in enumerate(LANES):
        most = max(kv for at, kv, _ in gains if at == place)
        least = min(kv for at, kv, _ in gains if at == place)
        at_least = {d: g for (at, kv, d), g in gains.items() if at == place and kv == least}
        at_most = {d: g for (at, kv, d), g in gains.items() if at == place and kv == most}
        slower = sorted({kv for (at, kv, _), g in gains.items() if at == place and g < 1})
        below = (
            f"it is below 1 (D makes steps slower) at {', '.join(f'{kv:,}' for kv in slower)} "
            f"tokens, {min(g for (at, _, _), g in gains.items() if at == place):.2f} x at worst"
            if slower
            else "it falls, but never below 1"
        )
        said.append(
            f"{name[0].upper()}{name[1:]}: the gain goes from {_range(at_most)} at {most:,} tokens "
            f"to {_range(at_least)} at {least:,}; {below}."
        )
    reverses = [LANES[place][0] for place in range(len(LANES)) if reversal(gains, place)]
    kept = [LANES[place][0] for place in range(len(LANES)) if not reversal(gains, place)]
    if reverses:
        said.append(f"So the gain falls and then reverses here: {'; '.join(reverses)}.")
    if kept:
        said.append(
            f"It does not reverse here: {'; '.join(kept)}. There, what does not fit waits in the "
            "queue and loses little: a preempted rollout keeps its tokens, to prefill them again "
            "is cheap beside decoding them, and the queue keeps lanes busy at the end of a step."
        )
    said.append(
        "Where left-overs are thrown away part of the gain with ample memory is skipped work: long "
        "responses are trained less often (column trained_tokens_mean)."
    )
    said.append(
        "Overcommitment turns into a loss in this simulator where work beyond the batch is thrown "
        "away and takes memory from work that counts. Systems whose preemption costs more than a "
        "prefill are not covered."
    )
    return said


def _range(gains: dict[int, float]) -> str:
    return f"{min(gains.values()):.2f}-{max(gains.values()):.2f} x"


def reversal(gains: dict[Key, float], place: int) -> bool:
    """Whether some D gains with ample memory and makes steps slower with the least."""
    memories = [kv for at, kv, _ in gains if at == place]
    least, most = min(memories), max(memories)
    overcommits = {d for at, _, d in gains if at == place}
    return any(gains[place, most, d] > 1 > gains[place, least, d] for d in overcommits)


EXPERIMENT = Experiment(
    "scarce_kv", "What does overcommitment gain when KV memory is scarce?", 3, run
)

"""What a carried rollout's cache costs: kept from the old weights, or made again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from matplotlib.figure import Figure

from experiments import chart
from experiments.result import Experiment, Finding, Result, Row, Verdict
from experiments.runs import Runs, Variant, simulated

SCENARIOS = ("stackexchange-7b", "stackexchange-3b", "opencoder-3b", "gsm8k-7b")
# words, axes of the schedule
WAYS: dict[str, dict[str, object]] = {
    "kept": {"partial": "kv", "update_kv": "keep"},
    "made again at the update": {"partial": "kv", "update_kv": "recompute"},
    "dropped at the pause": {"partial": "tokens", "update_kv": "keep"},
}
# where decoding is fast, rollouts are long and many, and training short, it should weigh most
STRESS = "as verifiable rewards are trained, D = B"
STRESSED: dict[str, object] = {
    "workload.lengths": "servegen_deepseek-r1",
    "workload.max_response_tokens": 4096,
    "workload.prompt_tokens": 1024,
    "workload.max_prompt_tokens": 1024,
    "cluster.slots": 1024,
    "models.critic": "none",
    "models.reference": "none",
    "costs.engine": "vllm",
    "costs.round_s": 0.0,
    "costs.training.epochs": 1,
    "costs.training.padded": False,
}
STRESSED_AXES: dict[str, object] = {"batch": 224, "overcommit": 224, "kv_reserve_tokens": 1}
CHEAP = 0.02  # of a step: less is not worth a choice
Key = tuple[str, str]  # scenario or STRESS, way


class Cost(NamedTuple):
    """What a way costs beside keeping stale caches."""

    slower: float  # of a step
    again: float  # tokens prefilled again per token decoded
    stale: float  # share of the trained tokens that older weights decoded


def run(quick: bool) -> Result:
    places = [SCENARIOS[0], STRESS] if quick else [*SCENARIOS, STRESS]
    keys = [(place, way) for place in places for way in WAYS]
    found = simulated([_variant(*key) for key in keys], 1 if quick else 2, 15 if quick else 120)
    runs = dict(zip(keys, found, strict=True))
    costs = {key: _cost(each, runs[key[0], "kept"]) for key, each in runs.items()}
    finding = judged(costs)
    rows = [_row(key, runs[key], costs[key]) for key in keys]
    return Result(rows, _draw(costs), _text(runs, costs, finding), finding)


def _variant(place: str, way: str) -> Variant:
    if place == STRESS:
        return Variant("gsm8k-7b", "inter", {**WAYS[way], **STRESSED_AXES}, STRESSED)
    return Variant(place, "oppo", WAYS[way])


def _cost(runs: Runs, kept: Runs) -> Cost:
    return Cost(
        slower=kept.gain(runs).mean - 1,
        again=_mean(runs, "reprefilled_share"),
        stale=_mean(runs, "stale_token_share"),
    )


def _mean(runs: Runs, field: str) -> float:
    return sum(getattr(run, field) for run in runs.metrics) / len(runs.metrics)


def _row(key: Key, runs: Runs, cost: Cost) -> Row:
    return {
        "scenario": key[0],
        "caches": key[1],
        "step_s": runs.step_s.mean,
        "slower": cost.slower,
        "prefilled_again_per_token": cost.again,
        "stale_token_share": cost.stale,
        "kv_peak_tokens": max(run.kv_peak_tokens for run in runs.metrics),
    }


def judged(costs: Mapping[Key, Cost]) -> Finding:
    """Whether it matters for speed that stale caches are kept, on the paper's set-ups.

    "confirmed": no other way makes steps slower by CHEAP; "corrected": one does on every set-up.
    """
    worst: dict[str, float] = {}
    for (place, _), cost in costs.items():
        if place != STRESS:
            worst[place] = max(worst.get(place, 0.0), cost.slower)
    verdict: Verdict = "undecided"
    if all(slower < CHEAP for slower in worst.values()):
        verdict = "confirmed"
    elif all(slower >= CHEAP for slower in worst.values()):
        verdict = "corrected"
    numbers = {f"{place}, {way}: slower": cost.slower for (place, way), cost in costs.items()
               if way != "kept"}  # fmt: skip
    return Finding(
        "Whether carried caches are kept stale or made again hardly matters for the speed of the "
        "paper's set-ups.",
        verdict,
        numbers,
    )


def _draw(costs: Mapping[Key, Cost]) -> Figure:
    figure, (left, right) = chart.panels(2, width=11.0, height=4.2)
    places = list(dict.fromkeys(place for place, _ in costs))
    for look, way in enumerate(WAYS):
        at = [y + 0.26 * (look - 1) for y in range(len(places))]
        bars = {"height": 0.24, "color": chart.COLOURS[look], "edgecolor": "black", "lw": 0.4,
                "hatch": ("", "////", "....")[look], "label": way}  # fmt: skip
        left.barh(at, [100 * costs[place, way].slower for place in places], **bars)
        right.barh(at, [100 * costs[place, way].again for place in places], **bars)
    for panel in (left, right):
        panel.set_yticks(range(len(places)), places if panel is left else [])
        panel.invert_yaxis()
    left.set_xlabel("slower than with kept caches (% of a step)")
    right.set_xlabel("tokens prefilled again (% of the tokens decoded)")
    right.legend(fontsize=8)
    chart.caption(
        figure,
        "Schedule oppo. Last row: schedule inter, B = D = 224, responses of a DeepSeek-R1 service "
        "cut at 4,096, prompts of 1,024, vLLM's decode law, one epoch, no critic. A kept cache "
        "mixes two weights; what that does to learning is not modelled.",
    )
    return figure


def _text(runs: Mapping[Key, Runs], costs: Mapping[Key, Cost], finding: Finding) -> list[str]:
    said = [
        "A carried rollout's cache was kept as the old weights had made it, made again by the new "
        "ones at the update (update_kv = recompute), or dropped at the pause and made again when "
        "the rollout goes on (partial = tokens)."
    ]
    for place in dict.fromkeys(place for place, _ in costs):
        kept, again, dropped = (costs[place, way] for way in WAYS)
        said.append(
            f"{place}: {kept.stale:.1%} of the trained tokens are older than the weights that "
            f"train; making caches again costs {again.slower:+.1%} of a step "
            f"({again.again:.1%} of the tokens decoded are prefilled again), dropping them "
            f"{dropped.slower:+.1%} ({dropped.again:.1%})."
        )
    said.append(
        {
            "confirmed": "So on the paper's set-ups the choice may follow what learning needs.",
            "corrected": "So making caches again has a price on all of the paper's set-ups.",
            "undecided": "So the price of making caches again depends on the set-up.",
        }[finding.verdict]
    )
    stressed = max(cost.slower for (place, _), cost in costs.items() if place == STRESS)
    said.append(
        "Where decoding is fast, responses are long, training is short and as many are carried as "
        f"are trained, the price is {stressed:.1%} of a step."
    )
    if all(costs[place, "made again at the update"] == costs[place, "dropped at the pause"]
           for place, _ in costs):  # fmt: skip
        said.append(
            "Both ways of making caches again are the same run: on devices that train, every "
            "rollout is paused when the weights change."
        )
    said.append(
        "Tokens that the old weights decoded stay in either way: no choice here makes a carried "
        "rollout fresh, and what a stale cache does to learning is not modelled."
    )
    return said


EXPERIMENT = Experiment(
    "stale_caches", "Carried caches: kept stale or made again, and at what cost?", 1, run
)

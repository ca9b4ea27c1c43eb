"""Which rollouts overcommitment defers, for how long, and whether what is trained is too short."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from matplotlib.figure import Figure

from experiments import chart
from experiments.result import Experiment, Finding, Result, Row, Verdict
from experiments.runs import Variant, watched
from oppo_sim.config import Scenario
from oppo_sim.records import StepRecord
from oppo_sim.simulate import workload

SCENARIO = "stackexchange-7b"
WARMUP = 20  # steps until what is carried has filled up
WINDOW = 10  # steps of a point of the course
DECILES = 10
SHORT = 0.02  # of the mean length: what still counts as no bias
# words -> schedule, axes
CASES: dict[str, tuple[str, dict[str, object]]] = {
    "D by the reward's slope": ("oppo", {}),
    "D = 8": ("oppo", {"overcommit": 8}),
    "D = 16": ("oppo", {"overcommit": 16}),
    "D = 32": ("oppo", {"overcommit": 32}),
    "D = 16, late ones waited for": (
        "oppo", {"overcommit": 16, "max_staleness": 1, "stale": "wait"},
    ),
    "D = 16, the oldest taken": ("oppo", {"overcommit": 16, "take": "oldest"}),
    "D = 16, tokens thrown away": (
        "inter", {"overcommit": 16, "partial": "nothing", "surplus": "keep"},
    ),
    "D = 0": ("oppo", {"overcommit": 0}),
}  # fmt: skip
KEPT = tuple(list(CASES)[:4])  # those in which unfinished tokens are kept, as in the paper
QUICK = ("D = 16", "D = 16, tokens thrown away", "D = 0")
REMEDIES = ("D = 16, late ones waited for", "D = 16, the oldest taken")


@dataclass(frozen=True)
class Seen:
    """What a run trained."""

    step_s: float
    course: tuple[float, ...]  # by window: mean length of the trained over that of D = 0, - 1
    late_course: float  # the same over all windows after the warm-up
    most: int  # deferrals
    by_decile: tuple[float, ...]  # mean deferrals by length, shortest tenth first
    never: int  # rollouts admitted in the run's first half that are not trained at its end
    never_tokens: float  # their mean length, 0 where there are none


def run(quick: bool) -> Result:
    cases = {words: CASES[words] for words in QUICK} if quick else CASES
    variants = [Variant(SCENARIO, schedule, axes) for schedule, axes in cases.values()]
    found = watched(_watch, variants, 1 if quick else 2, 60 if quick else 300)
    seen = {words: average(each) for words, each in zip(cases, found, strict=True)}
    finding = judged(seen)
    rows: list[Row] = [
        {
            "scenario": SCENARIO,
            "case": words,
            "length_decile": place + 1,
            "mean_deferrals": mean,
            "most_deferrals": each.most,
            "length_bias": each.late_course,
            "first_window_bias": each.course[0],
            "never_trained": each.never,
            "step_s": each.step_s,
        }
        for words, each in seen.items()
        for place, mean in enumerate(each.by_decile)
    ]
    return Result(rows, _draw(seen), _text(seen, finding), finding)


def _watch(scenario: Scenario, seed: int, steps: Iterator[StepRecord]) -> Seen:
    records = list(steps)
    lengths = workload(scenario, seed).responses(range(records[-1].admitted))
    return seen_in(records, lengths)


def seen_in(records: Sequence[StepRecord], lengths: Sequence[int]) -> Seen:
    """Of a run whose admitted rollouts 0, 1, ... have these lengths in the end.

    Without overcommitment a batch is the next rollouts in order, whatever they are: so the lengths
    in that order are what the trained ones are held against.
    """
    windows = [records[at : at + WINDOW] for at in range(0, len(records) - WINDOW + 1, WINDOW)]
    course = tuple([_bias(window, lengths) for window in windows])
    late = records[WARMUP:]
    pairs = [pair for r in late for pair in zip(r.tokens, r.deferrals, strict=True)]
    trained = {rollout for record in records for rollout in record.trained}
    never = [r for r in range(records[len(records) // 2].admitted) if r not in trained]
    return Seen(
        step_s=(records[-1].end_s - late[0].start_s) / len(late),
        course=course,
        late_course=_bias(late, lengths),
        most=max(deferred for _, deferred in pairs),
        by_decile=_by_decile(sorted(pairs)),
        never=len(never),
        never_tokens=sum(lengths[r] for r in never) / max(1, len(never)),
    )


def _bias(records: Sequence[StepRecord], lengths: Sequence[int]) -> float:
    """Tokens of these steps' batches over those of the batches in order, less 1."""
    batch = len(records[0].trained)
    in_order = lengths[records[0].step * batch : (records[-1].step + 1) * batch]
    return sum(sum(record.tokens) for record in records) / sum(in_order) - 1


def _by_decile(pairs: Sequence[tuple[int, int]]) -> tuple[float, ...]:
    """Mean deferrals of the shortest tenth, ..., of the longest."""
    cuts = [len(pairs) * place // DECILES for place in range(DECILES + 1)]
    parts = [pairs[start:end] for start, end in pairwise(cuts)]
    return tuple([sum(deferred for _, deferred in part) / len(part) for part in parts])


def average(runs: Sequence[Seen]) -> Seen:
    """Over the seeds; the most of the most, and the never trained of all of them."""
    count, never = len(runs), sum(run.never for run in runs)
    return Seen(
        step_s=sum(run.step_s for run in runs) / count,
        course=tuple([sum(at) / count for at in zip(*(run.course for run in runs), strict=True)]),
        late_course=sum(run.late_course for run in runs) / count,
        most=max(run.most for run in runs),
        by_decile=tuple(
            [sum(at) / count for at in zip(*(run.by_decile for run in runs), strict=True)]
        ),
        never=never,
        never_tokens=sum(run.never * run.never_tokens for run in runs) / max(1, never),
    )


def judged(seen: Mapping[str, Seen]) -> Finding:
    """Whether long rollouts are lost, where unfinished tokens are kept as in the paper.

    "confirmed": some of the first half's rollouts are never trained, or what is trained after the
    warm-up is shorter than what is admitted by more than SHORT; "corrected": neither.
    """
    kept = {words: each for words, each in seen.items() if words in KEPT}
    lost = sum(each.never for each in kept.values())
    least = min(each.late_course for each in kept.values())
    verdict: Verdict = "confirmed" if lost or least < -SHORT else "corrected"
    numbers: dict[str, float] = {"rollouts of the first half never trained": lost}
    for words, each in kept.items():
        numbers[f"{words}: most deferrals"] = each.most
        numbers[f"{words}: length bias, steps 1 to {WINDOW}"] = each.course[0]
        numbers[f"{words}: length bias after step {WARMUP}"] = each.late_course
        numbers[f"{words}: mean deferrals, longest tenth"] = each.by_decile[-1]
    return Finding(
        "Long responses are deferred for ever, and the trained batch is biased to short ones.",
        verdict,
        numbers,
    )


def _draw(seen: Mapping[str, Seen]) -> Figure:
    figure, (left, right) = chart.panels(2, width=11.5, height=4.8)
    for look, (words, each) in enumerate(seen.items()):
        style = {"color": chart.COLOURS[look % 7], "marker": chart.MARKERS[look % 7],
                 "markersize": 3, "lw": 1.2, "ls": "-" if words in KEPT else "--"}  # fmt: skip
        left.plot(range(1, DECILES + 1), each.by_decile, label=words, **style)
        middles = [WINDOW * (place + 0.5) for place in range(len(each.course))]
        right.plot(middles, [100 * bias for bias in each.course], **style)
    left.set_xlabel("tenth of the trained rollouts, by length (10: the longest)")
    left.set_ylabel("mean deferrals (steps carried over)")
    left.set_yscale("symlog", linthresh=0.1)
    left.set_xticks(range(1, DECILES + 1))
    left.legend(fontsize=7.5)
    right.axhline(0, color="black", lw=0.8)
    right.set_xlabel("PPO step")
    right.set_ylabel("length of the trained over that of D = 0, - 1 (%)")
    right.set_title(f"means of {WINDOW} steps", loc="left", size=9)
    chart.caption(
        figure,
        f"Scenario {SCENARIO}. Dashed: not the paper's way. Lengths do not depend on how hard a "
        "prompt is here: length stands in for it.",
    )
    return figure


def _text(seen: Mapping[str, Seen], finding: Finding) -> list[str]:
    said = [
        f"On {SCENARIO} every trained rollout was followed: how often it was carried over, by its "
        "length, and how long the trained ones are beside those of D = 0 at the same steps."
    ]
    for words, each in seen.items():
        lost = (
            f"; {each.never} of the first half's rollouts, {each.never_tokens:,.0f} tokens long on "
            "average, are still not trained at the end"
            if each.never
            else ""
        )
        said.append(
            f"{words}: carried over {each.by_decile[0]:.2f} times in the shortest tenth and "
            f"{each.by_decile[-1]:.2f} in the longest, {each.most} at most; the trained are "
            f"{each.course[0]:+.1%} as to length in the first {WINDOW} steps and "
            f"{each.late_course:+.1%} after step {WARMUP}; {each.step_s:.1f} s per step{lost}."
        )
    said.append(
        {
            "corrected": "So nothing is deferred for ever where unfinished tokens are kept: a "
            "carried rollout goes on where it was, so the steps that it waits are its length over "
            "what a step decodes, and what comes in goes out. The bias is a matter of the first "
            "steps, whose batches are short by what is carried from then on.",
            "confirmed": "So long rollouts are lost here, or come too late to be trained.",
            "undecided": "",
        }[finding.verdict]
    )
    if "D = 0" in seen:
        base = seen["D = 0"].step_s
        costs = [
            f"{words}: {seen[words].most} deferrals at most, {base / seen[words].step_s:.2f} times "
            "as fast as D = 0"
            for words in ("D = 16", *REMEDIES)
            if words in seen
        ]
        said.append(f"What a bound on lateness costs: {'; '.join(costs)}.")
    return said


EXPERIMENT = Experiment(
    "deferrals",
    "Are long responses deferred for ever, and is the batch biased to short ones?",
    1,
    run,
)

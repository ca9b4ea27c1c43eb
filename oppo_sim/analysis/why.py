"""Why one schedule is faster than another, in words and numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import floor, log10
from typing import NamedTuple

from oppo_sim.analysis.intervals import CONFIDENCE, Mean
from oppo_sim.analysis.metrics import STAGES, Metrics
from oppo_sim.policies import Schedule

_SMALL = 0.005  # of the first schedule's step, or of a share's whole: not worth a word


class Side(NamedTuple):
    """A schedule, and its runs averaged over the seeds."""

    schedule: Schedule
    metrics: Metrics


class Why(NamedTuple):
    """How much faster `schedule` is, and the reasons, a sentence each."""

    schedule: str
    verdict: str
    reasons: tuple[str, ...] = ()


def why(first: Side, other: Side, *, speedup: Mean, trains_on_actors: bool) -> Why:
    """Where the seconds went, what made them go, at what price, and what the longest stage is.

    Reasons for a difference are given only where there is one: an interval that includes 1 leaves
    what `other` pays. `trains_on_actors`: training has the actors' devices.
    """
    one, name = first.schedule.name, other.schedule.name
    if same_run(first, other):
        return Why(name, f"{name}: the same run as {one}.")
    price = (skipped(other, speedup), _staleness(other.metrics))
    if speedup.includes(1):
        undecided = "not decided: the interval includes 1; use more seeds or steps"
        verdict = f"{name}: {times(one, speedup)}, {undecided}."
        return Why(name, verdict, tuple(filter(None, price)))
    seconds = [plain(side.metrics.mean_step_s, 4) for side in (first, other)]
    verdict = f"{name}: {times(one, speedup)}, {' -> '.join(seconds)} s per step."
    reasons = (
        _generation(first.metrics, other, trains_on_actors),
        _scoring(first.metrics, other.metrics),
        _rest(first.metrics, other.metrics),
        *price,
        _longest(first.metrics, other.metrics),
    )
    return Why(name, verdict, tuple(filter(None, reasons)))


def same_run(one: Side, other: Side) -> bool:
    """Whether the schedules differ in name only here; chunks that nobody streams do not count."""
    return replace(other.metrics, chunk_tokens=one.metrics.chunk_tokens) == one.metrics


def times(first: str, speedup: Mean, confidence: float = CONFIDENCE) -> str:
    """As in "1.65x trl (95 % interval 1.622 to 1.678)"."""
    ratio = f"{speedup.mean:.2f}"
    ratio = f"{speedup.mean:.3f}" if ratio == "1.00" else ratio
    if speedup.low is None or speedup.high is None:
        return f"{ratio}x {first} (1 seed, so no interval)"
    reach = f"{speedup.low:.3f} to {speedup.high:.3f}"
    return f"{ratio}x {first} ({percent(confidence)} interval {reach})"


def skipped(side: Side, speedup: Mean) -> str:
    """What was decoded for nothing, and whether long responses were left out of training."""
    metrics = side.metrics
    if not metrics.wasted_tokens:
        return ""
    wasted = f"It threw away {percent(metrics.wasted_share)} of the decoded tokens"
    shorter = shortened(side)
    if shorter < _SMALL:
        return f"{wasted}."
    part = "part of the gain is skipped work" if speedup.mean > 1 else "work was skipped"
    return f"{wasted} and trained on responses {percent(shorter)} shorter than admitted: {part}."


def shortened(side: Side) -> float:
    """By what share the trained responses are shorter than the admitted, where some are dropped."""
    schedule, metrics = side
    drops = "drop" in (schedule.stale, schedule.surplus) and metrics.wasted_tokens
    if not drops or metrics.admitted_tokens_mean is None:
        return 0.0
    return 1 - metrics.trained_tokens_mean / metrics.admitted_tokens_mean


def _generation(before: Metrics, other: Side, trains_on_actors: bool) -> str:
    schedule, after = other
    moved = _moved("generation", before, after)
    if not moved:
        return ""
    share = 1 - after.deferrals.get(0, 0) / sum(after.deferrals.values())
    carried = f", {percent(share)} of the trained were carried over" if share else ""
    causes = []
    if schedule.ahead:
        runs = "is scored; training stops it" if trains_on_actors else "trains"
        causes.append(
            f"generation of the next batch runs while this one {runs} (ahead = {schedule.ahead})"
        )
        if schedule.take == "finished":
            causes.append(f"the first to finish are taken{carried}")
    if after.mean_overcommit:
        causes.append(
            f"with {plain(after.mean_overcommit, 3)} rollouts beyond the batch (D), it is complete "
            f"without its slowest responses{carried}"
        )
    return f"Exposed {moved}{': ' if causes else ''}{'; '.join(causes)}."


def _scoring(before: Metrics, after: Metrics) -> str:
    moved = _moved("scoring", before, after)
    if not moved:
        return ""
    hidden, was = after.hidden_score_share, before.hidden_score_share or 0.0
    if hidden is None or abs(hidden - was) < _SMALL:
        return f"Exposed {moved}."
    return (
        f"Exposed {moved}: {percent(hidden)} of the scoring is hidden, it runs while the batch is "
        f"generated (before: {percent(was)})."
    )


def _rest(before: Metrics, after: Metrics) -> str:
    others = (stage for stage in STAGES if stage not in ("generation", "scoring"))
    moved = list(filter(None, (_moved(stage, before, after) for stage in others)))
    return f"Exposed {', '.join(moved)}." if moved else ""


def _staleness(after: Metrics) -> str:
    most = max(after.staleness)
    if most <= 1:
        return ""
    return f"Staleness: {plain(average_key(after.staleness), 2)} steps on average, at most {most}."


def _longest(before: Metrics, after: Metrics) -> str:
    was, stage = (max(STAGES, key=lambda name: side.stages_s[name]) for side in (before, after))
    share = percent(after.stages_s[stage] / after.mean_step_s)
    text = f"Longest stage{' now' if stage != was else ''}: {_NAMES[stage]}, {share} of the step"
    if not after.utilisation:
        return f"{text}."
    device = max(after.utilisation, key=lambda name: after.utilisation[name])
    return f"{text}; {device} is busy {percent(after.utilisation[device])} of the time."


def _moved(stage: str, before: Metrics, after: Metrics) -> str:
    """Its exposed seconds before and after; nothing where they hardly differ.

    The difference of the step times is the sum of the differences of the stages.
    """
    was, now = before.stages_s[stage], after.stages_s[stage]
    if abs(now - was) < _SMALL * before.mean_step_s:
        return ""
    return f"{_NAMES[stage]} {plain(was, 3)} -> {plain(now, 3)} s"


_NAMES = {
    "generation": "generation",
    "scoring": "scoring",
    "waiting": "waiting for the trainer",
    "training": "training",
    "sync": "weight transfer",
}


# numbers as text


def plain(value: float, digits: int) -> str:
    """At least that many significant digits and never an exponent: 0.016, 2.80, 153."""
    if not value:
        return "0"
    return f"{value:,.{max(0, digits - 1 - floor(log10(abs(value))))}f}"


def percent(share: float) -> str:
    """8 %, and below 1 % with a digit more."""
    return f"{share:.1%}".replace("%", " %") if 0 < share < 0.01 else f"{share:.0%}"[:-1] + " %"


def count(number: int, thing: str) -> str:
    """1 seed, 5 seeds."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def average_key(histogram: Mapping[int, int]) -> float:
    return sum(key * number for key, number in histogram.items()) / sum(histogram.values())

"""Why one schedule is faster than another, in words and numbers."""

from __future__ import annotations

from oppo_sim.analysis.intervals import Mean
from oppo_sim.analysis.metrics import STAGES, Metrics

_SMALL = 0.005  # of the first schedule's step: not worth a word


def why(first: str, other: str, before: Metrics, after: Metrics, *, speedup: Mean) -> str:
    """A paragraph: how much faster, where the seconds went, what made them go, what bounds it now.

    `before` and `after` are the averages of the two over the seeds, per step.
    """
    sentences = [
        _verdict(first, other, before, after, speedup),
        _stages(before, after),
        _generation(before, after),
        _scoring(before, after),
        _bound(other, after),
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def _verdict(first: str, other: str, before: Metrics, after: Metrics, speedup: Mean) -> str:
    interval = ""
    if speedup.low is not None and speedup.high is not None:
        interval = f" (95 % interval {speedup.low:.3f} to {speedup.high:.3f})"
    seconds = f"{before.mean_step_s:.4g} -> {after.mean_step_s:.4g} s per step"
    if abs(speedup.mean - 1) < _SMALL:
        return f"{other} is as fast as {first}{interval}: {seconds}."
    if speedup.mean > 1:
        return f"{other} is {speedup.mean:.2f}x as fast as {first}{interval}: {seconds}."
    return f"{other} is slower, {speedup.mean:.2f}x as fast as {first}{interval}: {seconds}."


def _stages(before: Metrics, after: Metrics) -> str:
    """The difference of the step times is the sum of the differences of the exposed stages."""
    moved = []
    for stage in STAGES:
        was, now = before.stages_s[stage], after.stages_s[stage]
        if abs(now - was) >= _SMALL * before.mean_step_s:
            change = f" ({now / was - 1:+.0%})" if was else ""
            moved.append(f"{_NAMES[stage]} {was:.4g} -> {now:.4g} s{change}")
    return f"Exposed per step: {', '.join(moved)}." if moved else "No stage changes much."


def _generation(before: Metrics, after: Metrics) -> str:
    late = 1 - after.deferrals.get(0, 0) / sum(after.deferrals.values())
    if not after.mean_overcommit and not late:
        return ""
    return (
        f"With {after.mean_overcommit:.3g} rollouts beyond the batch on average, the batch is "
        f"complete without its slowest responses: {late:.0%} of the trained ones were carried over."
    )


def _scoring(before: Metrics, after: Metrics) -> str:
    hidden, was = after.hidden_score_share, before.hidden_score_share
    if hidden is None or abs(hidden - (was or 0.0)) < _SMALL:
        return ""
    return (
        f"{hidden:.0%} of the {after.score_s:.4g} s of scoring is hidden: it runs while the batch "
        f"is still being generated (before: {was or 0:.0%} of {before.score_s:.4g} s)."
    )


def _bound(other: str, after: Metrics) -> str:
    stage = max(STAGES, key=lambda name: after.stages_s[name])
    share = after.stages_s[stage] / after.mean_step_s
    bound = f"The longest stage of {other} is now {_NAMES[stage]} ({share:.0%} of the step)"
    if not after.utilisation:
        return f"{bound}."
    device = max(after.utilisation, key=lambda name: after.utilisation[name])
    return (
        f"{bound}; its busiest device, {device}, works {after.utilisation[device]:.0%} of the time."
    )


_NAMES = {
    "generation": "generation",
    "scoring": "scoring",
    "waiting": "waiting for the trainer",
    "training": "training",
    "sync": "weight transfer",
}

"""A training log of a framework: stage laws fitted on its first steps, checked on the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from oppo_sim.calibration.laws import LEAST_ROWS, Array, Law, Term, constant, fit_law
from oppo_sim.calibration.metrics import (
    FRAMEWORKS,
    LONGEST,
    MEAN,
    TOKENS,
    Framework,
    Stage,
)
from oppo_sim.config.bounds import MOST_TOKENS
from oppo_sim.costs.measurements import LEAST_S, MOST_S
from oppo_sim.workload.steplogs import rows_by_step
from oppo_sim.workload.tabular import TELLS_BYTES, quiet

DRIFT = 1.2  # mean length held out over fitted, or its inverse: beyond, laws are extrapolated


@dataclass(frozen=True)
class FittedStage:
    stage: Stage
    metrics: tuple[str, ...]  # those of the stage that the log has
    law: Law


@dataclass(frozen=True)
class FittedLog:
    """What a log says of each stage; `left_out` names what was not used, and why."""

    source: str
    framework: Framework
    steps: int
    fitted: int
    stages: tuple[FittedStage, ...]
    left_out: tuple[str, ...]
    doubts: tuple[str, ...]
    mean_tokens: tuple[float, float] | None  # of responses, in fitted and held-out steps
    prompt_tokens: float | None
    longest_tokens: int | None  # of all steps

    def law(self, stage: str) -> Law | None:
        return next((one.law for one in self.stages if one.stage.name == stage), None)


@dataclass(frozen=True)
class _Steps:
    """The columns of the steps that are used, NaN where a step has no number."""

    columns: dict[str, Array]
    count: int

    def __getitem__(self, name: str) -> Array:
        return self.columns[name]

    def has(self, name: str | None) -> bool:
        return name is not None and bool(np.isfinite(self.columns[name]).any())


def fit_log(
    path: Path, fit_share: float = 0.3, seed: int = 0, progress: TELLS_BYTES = quiet
) -> FittedLog:
    """Fit the stages of a log of verl or DeepSpeed-Chat: CSV, JSONL or the text that it printed.

    The first `fit_share` of the steps are fitted, the rest held out. ValueError names what is
    missing.
    """
    columns = tuple(dict.fromkeys(name for known in FRAMEWORKS for name in known.columns))
    rows = [row for _, row in sorted(rows_by_step(path, columns, progress).items())]
    framework = _framework(path, rows)
    steps, left_out = _used(framework, rows)
    fitted = round(fit_share * steps.count)
    if min(fitted, steps.count - fitted) < LEAST_ROWS:
        raise ValueError(
            f"{path}: {steps.count} steps to use, {fitted} of them fitted: a fit and its check "
            f"need {LEAST_ROWS} each; give a longer log, or another --fit-share"
        )
    stages = []
    for stage in framework.stages:
        metrics = tuple(name for name in stage.metrics if steps.has(name))
        left_out += [f"no {name} in the log" for name in stage.metrics if name not in metrics]
        if metrics and stage.kind != "total":
            found = _stage(framework, steps, stage, metrics, fitted, seed, left_out)
            stages += [] if found is None else [found]
    total = _whole(framework, steps, stages, fitted, seed)
    stages += [] if total is None else [total]
    return FittedLog(
        source=str(path),
        framework=framework,
        steps=steps.count,
        fitted=fitted,
        stages=tuple(stages),
        left_out=tuple(left_out),
        doubts=_doubts(framework, steps, fitted),
        mean_tokens=_means(framework, steps, fitted),
        prompt_tokens=_mean(steps, framework.prompt),
        longest_tokens=None if framework.longest is None else int(steps[framework.longest].max()),
    )


def _framework(path: Path, rows: Sequence[dict[str, float]]) -> Framework:
    for framework in FRAMEWORKS:
        needed = [framework.mean, framework.longest, framework.stages[0].metrics[0]]
        if any(all(name in row for name in needed if name is not None) for row in rows):
            return framework
    known = "; ".join(
        f"{f.name}: {', '.join(n for n in (f.mean, f.longest, f.stages[0].metrics[0]) if n)}"
        for f in FRAMEWORKS
    )
    raise ValueError(
        f"{path}: no step with the stage times of a known framework; needed are {known}"
    )


def _is_whole(framework: Framework, row: Mapping[str, float]) -> bool:
    """Whether a step has a generation time, and lengths that can be."""
    if not LEAST_S <= row.get(framework.stages[0].metrics[0], 0) <= MOST_S:
        return False
    if framework.mean is None or framework.longest is None:
        return True
    return 1 <= row.get(framework.mean, 0) <= row.get(framework.longest, 0) <= MOST_TOKENS


def _used(framework: Framework, rows: Sequence[dict[str, float]]) -> tuple[_Steps, list[str]]:
    """The steps that have lengths and a generation time and do nothing besides; why not others."""
    needed = [
        name
        for name in (framework.mean, framework.longest, framework.stages[0].metrics[0])
        if name is not None
    ]
    full = [row for row in rows if _is_whole(framework, row)]
    left_out = []
    if len(full) < len(rows):
        left_out.append(f"{len(rows) - len(full)} steps without a credible {', '.join(needed)}")
    for metric, what in framework.unlike:
        alike = [row for row in full if not row.get(metric, 0) > 0]
        if len(alike) < len(full):
            left_out.append(f"{len(full) - len(alike)} steps with {what} ({metric})")
        full = alike
    columns = {
        name: np.array([row.get(name, np.nan) for row in full]) for name in framework.columns
    }
    return _Steps(columns, len(full)), left_out


def _stage(
    framework: Framework,
    steps: _Steps,
    stage: Stage,
    metrics: Sequence[str],
    fitted: int,
    seed: int,
    left_out: list[str],
) -> FittedStage | None:
    """The law of one stage; None where too few steps have a time for it."""
    seconds = np.sum([steps[name] for name in metrics], axis=0)
    all_terms = _terms(framework, steps, stage)
    good = _credible(seconds, all_terms)
    before = int(good[:fitted].sum())
    if min(before, int(good[fitted:].sum())) < LEAST_ROWS:
        left_out.append(
            f"{stage.name}: {int(good.sum())} steps with a time above 0 for {' + '.join(metrics)}"
        )
        return None
    terms = [term.at(good) for term in all_terms]
    return FittedStage(stage, tuple(metrics), fit_law(seconds[good], terms, before, seed))


def _credible(seconds: Array, terms: Sequence[Term]) -> NDArray[np.bool_]:
    """The rows that have a time, and all that it may depend on."""
    known = np.all([np.isfinite(term.values) for term in terms], axis=0)
    good: NDArray[np.bool_] = known & (seconds >= LEAST_S) & (seconds <= MOST_S)
    return good


def _terms(framework: Framework, steps: _Steps, stage: Stage) -> list[Term]:
    values = {}
    if framework.mean is not None and framework.longest is not None:
        mean = steps[framework.mean]
        prompts = np.zeros(steps.count)
        if framework.prompt is not None and steps.has(framework.prompt):
            prompts = steps[framework.prompt]
        values = {MEAN: mean, LONGEST: steps[framework.longest], TOKENS: mean + prompts}
    return [constant(steps.count), *(Term(name, values[name]) for name in stage.terms)]


def _whole(
    framework: Framework, steps: _Steps, stages: Sequence[FittedStage], fitted: int, seed: int
) -> FittedStage | None:
    """The whole step: what the stages' laws say, and what is left of it as one more constant."""
    stage = next(one for one in framework.stages if one.kind == "total")
    own = [one for one in stages if one.stage.kind == "stage"]
    if not own or not steps.has(stage.metrics[0]):
        return None
    seconds = steps[stage.metrics[0]]
    told = sum(
        (one.law.seconds(_terms(framework, steps, one.stage)) for one in own),
        np.zeros(steps.count),
    )
    terms = [constant(steps.count), Term("sum of its stages", told)]
    good = _credible(seconds, terms)
    before = int(good[:fitted].sum())
    if min(before, int(good[fitted:].sum())) < LEAST_ROWS:
        return None
    law = fit_law(seconds[good], [term.at(good) for term in terms], before, seed)
    return FittedStage(stage, stage.metrics, law)


def _means(framework: Framework, steps: _Steps, fitted: int) -> tuple[float, float] | None:
    if framework.mean is None:
        return None
    mean = steps[framework.mean]
    return float(mean[:fitted].mean()), float(mean[fitted:].mean())


def _mean(steps: _Steps, name: str | None) -> float | None:
    return float(np.nanmean(steps[name])) if name is not None and steps.has(name) else None


def _doubts(framework: Framework, steps: _Steps, fitted: int) -> tuple[str, ...]:
    """What holds for the whole log."""
    if framework.mean is None or framework.longest is None:
        return (
            f"{framework.name} logs no lengths: every stage is taken as constant, which holds "
            "where all is padded to one length",
        )
    doubts = []
    if not steps.has(framework.prompt):
        doubts.append(f"no {framework.prompt}: tokens are those of the responses alone")
    mean = steps[framework.mean]
    first, then = mean[:fitted], mean[fitted:]
    if not 1 / DRIFT <= then.mean() / first.mean() <= DRIFT:
        beyond = float(((then < first.min()) | (then > first.max())).mean())
        doubts.append(
            f"lengths drift: the mean response is {first.mean():,.0f} tokens in the fitted steps "
            f"({first.min():,.0f} to {first.max():,.0f}) and {then.mean():,.0f} in the others; "
            f"{beyond:.0%} of these lie beyond what was fitted"
        )
    return tuple(doubts)

"""A scenario's efficiencies and tail fitted to published rows, candidate by candidate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import exp, inf, log, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from oppo_sim.analysis import pool
from oppo_sim.analysis.fits import Candidate, Fit, rounded
from oppo_sim.analysis.parts import Measured
from oppo_sim.calibration.protocol import MOST_MFU, Protocol, Stage, Tail, tails
from oppo_sim.calibration.row_values import (
    LOGARITHMIC,
    Key,
    paper,
    run,
    simulated,
    slopes,
    value,
)

STEPS, FINAL_STEPS = 100, 200
LEAST_MFU = 0.01
START = {"prefill_mfu": 0.03, "decode_counts": 0.75, "wait_counts": 0.25}
TRIES = 6  # simulations of all rows, per candidate
UNKNOWN = 0.5  # a standard error (of logarithms, or shares) above which a parameter is not told
ROW_ERROR = 0.025  # of a published ratio: 4,200 and 4,300 minutes are one number in the paper

Progress = Callable[[int, int], None]


class Solved(NamedTuple):
    """A candidate, and how well its rows tell each free parameter with this tail (see UNKNOWN)."""

    candidate: Candidate
    unsure: Mapping[str, float]


def fit(
    protocol: Protocol,
    *,
    jobs: int = 1,
    known: Mapping[str, Sequence[Candidate]] | None = None,
    progress: Progress | None = None,
    found: Callable[[str, Candidate], None] | None = None,
) -> dict[str, Fit]:
    """Every stage in turn; the first one says what decoding and waiting count in the others.

    `known`: candidates by stage that are not fitted again; `found` is told of each that was.
    """
    fits: dict[str, Fit] = {}
    counts: dict[str, float] = {}
    done, tried = 0, {stage.name: tails(stage) for stage in protocol.stages}
    total = sum(map(len, tried.values()))
    for stage in protocol.stages:
        there = {_tail(c): c for c in (known or {}).get(stage.name, ())}
        tasks = [
            (protocol, stage, tail, counts) for tail in tried[stage.name] if tail[:3] not in there
        ]
        done += len(tried[stage.name]) - len(tasks)
        candidates = list(there.values())
        for _, solved in pool.each(_solve, tasks, pool.processes(min(jobs, len(tasks)))):
            candidate = rounded(solved.candidate)
            candidates.append(candidate)
            done += 1
            if found is not None:
                found(stage.name, candidate)
            if progress is not None:
                progress(done, total)
        fits[stage.name] = Fit(stage.name, tuple(candidates))
        if not counts:
            shown = fits[stage.name].shown
            counts = {"decode_counts": shown.decode_counts, "wait_counts": shown.wait_counts}
    return fits


def _tail(candidate: Candidate) -> tuple[str, int, int]:
    return candidate.lengths, candidate.max_response_tokens, candidate.most


def _solve(task: tuple[Protocol, Stage, Tail, Mapping[str, float]]) -> Solved:
    return solve(*task)


def solve(protocol: Protocol, stage: Stage, tail: Tail, counts: Mapping[str, float]) -> Solved:
    """The free parameters that meet the stage's rows best, by least squares on log ratios."""
    problem = _Problem(stage, tail, {**START, "train_mfu": min(0.3, 0.8 * tail.most_mfu), **counts})
    lower, upper = np.array([_bounds(name, tail) for name in stage.free]).T
    found = least_squares(
        problem.residuals,
        [_coded(name, problem.given[name]) for name in stage.free],
        problem.jacobian,
        bounds=(lower, upper),
        max_nfev=TRIES,
        xtol=1e-2,
        ftol=1e-3,
    )
    parameters = problem.parameters(found.x)
    runs = simulated(stage, tail, parameters, stage.fitted, FINAL_STEPS)
    values = {row.id: value(row, runs, parameters) for row in stage.fitted}
    errors = {row.id: abs(values[row.id] / paper(row) - 1) for row in stage.fitted}
    worst, late_share = max(errors[row.id] for row in stage.fits), 0.0
    accepted = worst <= protocol.accepted_within
    if accepted:  # what is held out is simulated for those only that may be used
        runs |= simulated(stage, tail, parameters, stage.holds_out, FINAL_STEPS, runs)
        values |= {row.id: value(row, runs, parameters) for row in stage.holds_out}
        own = (stage.scenarios[0], "oppo")
        late = _late(runs.get(own) or run(stage, tail, parameters, own, FINAL_STEPS))
        if stage.counts:  # the 7B, whose lateness the paper tells
            values |= {f"Q1-{steps}": share for steps, share in enumerate(late)}
        late_share = late[2] / (late[1] + late[2]) if late[1] + late[2] else 0.0
    candidate = Candidate(
        lengths=tail.lengths,
        max_response_tokens=tail.max_response_tokens,
        most=tail.most,
        train_mfu=parameters["train_mfu"],
        prefill_mfu=parameters["prefill_mfu"] if "prefill_mfu" in stage.free else None,
        decode_counts=parameters["decode_counts"],
        wait_counts=parameters["wait_counts"],
        worst=worst,
        error=sqrt(sum(error**2 for error in errors.values()) / len(errors)),
        late_share=late_share,
        accepted=accepted and late_share <= protocol.late_share,
        values=values,
    )
    return Solved(candidate, _unsure(stage.free, problem.jacobian(found.x)))


class _Problem:
    """Residuals and their slopes; a step is taken to be the sum of its exposed stages."""

    def __init__(self, stage: Stage, tail: Tail, given: Mapping[str, float]) -> None:
        self.given = given
        self._stage, self._tail = stage, tail
        self._at: tuple[float, float] = (inf, inf)
        self._runs: dict[Key, Measured] = {}

    def parameters(self, x: NDArray[np.float64]) -> dict[str, float]:
        """What is free from the vector, the rest as given."""
        free = zip(self._stage.free, x.tolist(), strict=True)
        return {**self.given, **{n: exp(v) if n in LOGARITHMIC else v for n, v in free}}

    def residuals(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        parameters, runs = self._at_point(x)
        return np.array(
            [log(value(row, runs, parameters) / paper(row)) for row in self._stage.fitted]
        )

    def jacobian(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        parameters, runs = self._at_point(x)
        found = [slopes(row, runs, parameters) for row in self._stage.fitted]
        return np.array([[slope[name] for name in self._stage.free] for slope in found])

    def _at_point(self, x: NDArray[np.float64]) -> tuple[dict[str, float], dict[Key, Measured]]:
        parameters = self.parameters(x)
        at = (parameters["train_mfu"], parameters["prefill_mfu"])
        if at != self._at:
            rows = self._stage.fitted
            self._runs = simulated(self._stage, self._tail, parameters, rows, STEPS)
            self._at = at
        return parameters, self._runs


def _late(run: Measured) -> tuple[float, float, float]:
    """The shares of rollouts that were trained at once, one step late, and later."""
    counted = run.metrics.staleness
    whole = sum(counted.values())
    at_once, one = counted.get(0, 0) / whole, counted.get(1, 0) / whole
    return at_once, one, 1 - at_once - one


def _unsure(free: Sequence[str], jacobian: NDArray[np.float64]) -> dict[str, float]:
    """A standard error for each parameter, if every row is known to ROW_ERROR; inf: not told."""
    _, sizes, directions = np.linalg.svd(jacobian, full_matrices=True)
    sizes = np.concatenate([sizes, np.zeros(len(free) - len(sizes))])
    with np.errstate(divide="ignore", invalid="ignore"):  # 0 * inf, which is not chosen
        spread = np.where(sizes > 1e-9, ROW_ERROR / sizes, inf)
        parts = np.where(np.abs(directions) > 1e-6, np.abs(directions) * spread[:, None], 0.0)
    return dict(zip(free, np.sqrt((parts**2).sum(axis=0)).tolist(), strict=True))


def _coded(name: str, number: float) -> float:
    return log(number) if name in LOGARITHMIC else number


def _bounds(name: str, tail: Tail) -> tuple[float, float]:
    if name not in LOGARITHMIC:
        return 0.0, 1.0
    return log(LEAST_MFU), log(tail.most_mfu if name == "train_mfu" else MOST_MFU)

"""A stage's seconds as a sum of terms that are not negative, and what the data leave open of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.stats import bootstrap

Array = NDArray[np.float64]

CONSTANT = "constant"
RESAMPLES = 200
CONFIDENCE = 0.95
LEAST_ROWS = 10  # for a fit, and for its check
STILL = 0.01  # a regressor with less variation, as a share of its mean, says nothing
OF_ZERO = 1e-6  # of the stage's time: a term whose interval goes down to it may as well be 0
CONDITION = 30.0  # of the columns at length 1; Belsley, Kuh and Welsch (1980): beyond, collinear
FIRST_TURN = 0.02  # of the stage's time: where the robust loss turns from squares to lengths
LEAST_TURN = 1e-6
TOLERANCE = 1e-12


@dataclass(frozen=True)
class Term:
    """What a coefficient multiplies, row by row. The one that `stays` may be the same everywhere
    and is never left out."""

    name: str
    values: Array
    stays: bool = False

    def at(self, rows: NDArray[Any]) -> Term:
        """Of these rows only."""
        return replace(self, values=self.values[rows])


def constant(rows: int) -> Term:
    return Term(CONSTANT, np.ones(rows), stays=True)


@dataclass(frozen=True)
class Estimate:
    """A coefficient with its bootstrap interval."""

    term: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Score:
    """Relative errors of predictions of rows that no fit has seen; intervals by bootstrap.

    `null_error` is that of the fitted rows' mean, `floor` the median relative change from one row
    to the next: what cannot be predicted from one to the next, and changes of the regressors.
    """

    rows: int
    signed: Estimate
    median: Estimate
    null_error: float
    floor: float


@dataclass(frozen=True)
class Law:
    """Seconds of a task: what was fitted on how many rows, and how it did on others."""

    estimates: tuple[Estimate, ...]
    fitted: int
    held_out: Score
    doubts: tuple[str, ...]

    def value(self, term: str) -> float:
        """The coefficient of a term; 0 if it was left out."""
        return next((e.value for e in self.estimates if e.term == term), 0.0)

    @property
    def constant(self) -> float:
        return self.value(CONSTANT)

    def seconds(self, terms: Sequence[Term]) -> Array:
        """What the law says of rows with these terms."""
        told: Array = np.sum([self.value(term.name) * term.values for term in terms], axis=0)
        return told


def fit_law(seconds: Array, terms: Sequence[Term], fitted: int, seed: int) -> Law:
    """Fit the first `fitted` rows, and check on the rest.

    Least squares with a robust loss (soft L1 beyond the spread of the residuals), coefficients not
    below 0. Terms that do not vary, or that may as well be 0, are left out one by one and named in
    `doubts`; the rows held out take no part in that.
    """
    doubts, kept = [], []
    for term in terms:
        seen = term.values[:fitted]
        if not term.stays and (np.ptp(seen) == 0 or seen.std() < STILL * abs(seen.mean())):
            doubts.append(
                f"{term.name}: hardly varies in the fitted rows ({seen.min():,.6g} to "
                f"{seen.max():,.6g}), so its price cannot be told from a constant"
            )
        else:
            kept.append(term)
    while True:
        estimates, score = _estimate(seconds, kept, fitted, seed)
        empty = [e for e, term in zip(estimates, kept, strict=True) if not (e.low or term.stays)]
        if not empty or len(kept) == 1:
            break
        worst = max(empty, key=lambda e: (e.high - e.low) / (e.high or 1.0))
        doubts.append(f"{_shown(worst)}, and is left out")
        kept = [term for term in kept if term.name != worst.term]
    if len(kept) > 1:
        doubts += [_shown(e) for e in estimates if not e.low]
        table = _table(kept)[:fitted]
        condition = float(np.linalg.cond(table / np.linalg.norm(table, axis=0)))
        if condition > CONDITION:
            doubts.append(
                f"{', '.join(term.name for term in kept)}: rise together in the fitted rows "
                f"(condition number {condition:,.0f}), so their sum is known better than each"
            )
    return Law(estimates, fitted, score, tuple(doubts))


def _shown(e: Estimate) -> str:
    return f"{e.term}: {e.value:.3g} s, interval {e.low:.3g} to {e.high:.3g}: may as well be 0"


def _table(terms: Sequence[Term]) -> Array:
    return np.column_stack([term.values for term in terms])


def solve(
    seconds: Array, table: Array, start: Array | None = None, turn: float | None = None
) -> tuple[Array, float]:
    """The coefficients, and where the loss turns, relative to the median of the seconds.

    The first fit takes a guess of that, the second the spread of the residuals that it left.
    """
    unit = float(np.median(seconds)) or float(seconds.mean()) or 1.0
    columns = np.abs(table).max(axis=0)
    columns[columns == 0] = 1.0
    scaled: Array = table / columns
    aim = seconds / unit
    if start is None:
        start = np.full(table.shape[1], 1 / table.shape[1])
    else:
        start = np.maximum(start * columns / unit, 1e-9)

    def residuals(p: Array) -> Array:
        return np.asarray(scaled @ p - aim)

    def slopes(_: Array) -> Array:
        return scaled

    def at(begin: Array, turn: float) -> Array:
        found = least_squares(
            residuals,
            begin,
            jac=slopes,
            bounds=(0, np.inf),
            loss="soft_l1",
            f_scale=turn,
            xtol=TOLERANCE,
            ftol=TOLERANCE,
            gtol=TOLERANCE,
        )
        return np.asarray(found.x)

    if turn is None:
        start = at(start, FIRST_TURN)
        turn = max(1.5 * float(np.median(np.abs(residuals(start)))), LEAST_TURN)
    return at(start, turn) / columns * unit, turn


def errors(predicted: Array, seconds: Array) -> Array:
    """Relative ones."""
    return predicted / seconds - 1


def _estimate(
    seconds: Array, terms: Sequence[Term], fitted: int, seed: int
) -> tuple[tuple[Estimate, ...], Score]:
    """Coefficients and held-out errors, with intervals over stretches of rows in a row."""
    table, held, seen = _table(terms), seconds[fitted:], seconds[:fitted]
    found, turn = solve(seen, table[:fitted])
    wrong = errors(table[fitted:] @ found, held)
    ours, others = _stretches(0, fitted), _stretches(fitted, len(seconds))

    def again(fit: Array, check: Array) -> Array:
        i = np.concatenate([ours[int(k)] for k in fit])
        j = np.concatenate([others[int(k)] for k in check])
        coefficients, _ = solve(seconds[i], table[i], found, turn)
        e = errors(table[j] @ coefficients, seconds[j])
        return np.array([*coefficients, e.mean(), np.median(np.abs(e))])

    found_again = bootstrap(
        (np.arange(len(ours)), np.arange(len(others))),
        again,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        vectorized=False,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    low, high = np.asarray(found_again.low), np.asarray(found_again.high)
    nothing = OF_ZERO * float(np.median(seen)) / np.abs(table[:fitted]).mean(axis=0)
    count = len(terms)
    estimates = [
        Estimate(term.name, *(0.0 if x <= nothing[k] else float(x) for x in (value, *ends)))
        for k, (term, value, *ends) in enumerate(
            zip(terms, found, low[:count], high[:count], strict=True)
        )
    ]
    signed = Estimate("signed error", float(wrong.mean()), *map(float, (low[-2], high[-2])))
    middle = float(np.median(np.abs(wrong)))
    median = Estimate("median absolute error", middle, *map(float, (low[-1], high[-1])))
    null = float(np.median(np.abs(errors(np.full(len(held), seen.mean()), held))))
    floor = float(np.median(np.abs(np.diff(held)) / held[1:]))
    return tuple(estimates), Score(len(held), signed, median, null, floor)


def _stretches(start: int, stop: int) -> list[NDArray[np.int64]]:
    """About n^(1/3) rows in a row, which depend on each other, are drawn together."""
    length = max(1, ceil((stop - start) ** (1 / 3)))
    return [np.arange(at, min(at + length, stop)) for at in range(start, stop, length)]

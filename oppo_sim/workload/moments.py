"""Sums by key that grow chunk by chunk, and what they say of prompts and of steps."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from oppo_sim.workload.effects import Drift

LEAST_STEPS = 8  # for a trend and an autoregression
MOST_AR = 0.999
MERGE_ROWS = 1 << 19


class ByKey:
    """For each key: how many values, their sum and the sum of their squares."""

    def __init__(self) -> None:
        self._sums: pd.DataFrame | None = None
        self._new: list[pd.DataFrame] = []

    def count(self, keys: NDArray[np.int64]) -> None:
        """One more of each of `keys`."""
        distinct, counts = np.unique(keys, return_counts=True)
        self._keep(pd.DataFrame({"n": counts}, index=distinct))

    def add(self, keys: NDArray[np.generic], values: NDArray[np.float64]) -> None:
        """One value for each of `keys`."""
        rows = pd.DataFrame({"n": 1, "sum": values, "squares": values**2})
        self._keep(rows.groupby(keys, sort=False).sum())

    def counts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The keys, rising, and how many there are of each."""
        sums = self.sums().sort_index()
        return sums.index.to_numpy(dtype=np.int64), sums["n"].to_numpy(dtype=np.int64)

    def sums(self) -> pd.DataFrame:
        """All so far, by key; empty if there was nothing."""
        if self._new:
            parts = self._new if self._sums is None else [self._sums, *self._new]
            self._sums, self._new = pd.concat(parts).groupby(level=0, sort=False).sum(), []
        return pd.DataFrame(columns=["n", "sum", "squares"]) if self._sums is None else self._sums

    def _keep(self, new: pd.DataFrame) -> None:
        """Sum up now and then only: each time costs as much as there are keys."""
        self._new.append(new)
        if sum(map(len, self._new)) > max(MERGE_ROWS, 0 if self._sums is None else len(self._sums)):
            self.sums()


def share_between(by_key: ByKey) -> float | None:
    """The share of variance between keys, by one-way analysis of variance; None if none repeats."""
    sums = by_key.sums()
    groups, total = len(sums), float(sums["n"].sum())
    if groups < 2 or total <= groups:
        return None
    n, means = sums["n"].to_numpy(float), (sums["sum"] / sums["n"]).to_numpy(float)
    inside = _within(sums)
    grand = float(n @ means) / total
    among = float(n @ (means - grand) ** 2) / (groups - 1)
    typical = (total - float(n @ n) / total) / (groups - 1)
    between = max((among - inside) / typical, 0.0)
    return between / (between + inside) if between + inside > 0 else None


def drift_between(by_step: ByKey) -> Drift | None:
    """Trend and autoregression of the mean log length by step; None for too few steps."""
    sums = by_step.sums().sort_index()
    if len(sums) < LEAST_STEPS:
        return None
    sampling = _within(sums) * float((1 / sums["n"]).mean()) if sums["n"].max() > 1 else 0.0
    means = (sums["sum"] / sums["n"]).to_numpy(float)
    return drift_of(sums.index.to_numpy(dtype=float), means, sampling)


def drift_of(
    steps: NDArray[np.float64], log_means: NDArray[np.float64], sampling: float
) -> Drift | None:
    """The drift of means that have a sampling variance of their own; None for too few steps.

    Sampling adds to the variance around the trend, not to the covariance of neighbours.
    """
    if len(steps) < LEAST_STEPS:
        return None
    slope, level = np.polyfit(steps, log_means, 1).tolist()
    rest = log_means - slope * steps - level
    lagged = float(np.mean(rest[1:] * rest[:-1]))
    walk = max(float(rest.var()) - sampling, 0.0)
    if walk <= 1e-12:
        return Drift(per_step=slope)
    ar = float(np.clip(lagged / walk, 0.0, MOST_AR))
    return Drift(per_step=slope, ar=ar, noise=float(np.sqrt(walk * (1 - ar**2))))


def _within(sums: pd.DataFrame) -> float:
    """The variance of values with the same key."""
    spread = float((sums["squares"] - sums["sum"] ** 2 / sums["n"]).sum())
    freedom = float(sums["n"].sum()) - len(sums)
    return max(spread, 0.0) / freedom if freedom > 0 else 0.0

"""Fitted laws of response lengths: lognormal, gamma, Weibull and a mixture of two lognormals.

A law is continuous and lengths are whole: X = max(1, round(E)), so P(X <= n) = cdf(n + 1/2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincc, gammaincinv, gammaln, log_ndtr, ndtr, ndtri

from oppo_sim.workload.checks import finite
from oppo_sim.workload.lengths import ENDLESS, Uncut

Floats = NDArray[np.float64]
HALVINGS = 44  # of an interval of logarithms: to 1e-12


class Law(Protocol):
    """A continuous law on positive numbers; `quantile` is the inverse of `cdf`."""

    def cdf(self, x: Floats) -> Floats: ...
    def log_pdf(self, x: Floats) -> Floats: ...
    def log_sf(self, x: Floats) -> Floats: ...
    def quantile(self, u: Floats) -> Floats: ...


def _whole_tokens(exact: Floats) -> NDArray[np.int64]:
    return np.clip(np.rint(exact), 1, ENDLESS).astype(np.int64)


@dataclass(frozen=True)
class Lognormal(Uncut):
    """log E is normal with mean `mu` and standard deviation `sigma`, of natural logarithms."""

    mu: float
    sigma: float

    def __post_init__(self) -> None:
        finite("mu", self.mu)
        finite("sigma", self.sigma, above=0)

    def _z(self, x: Floats) -> Floats:
        return (np.log(x) - self.mu) / self.sigma

    def cdf(self, x: Floats) -> Floats:
        return np.asarray(ndtr(self._z(x)), dtype=np.float64)

    def log_pdf(self, x: Floats) -> Floats:
        constant = np.log(self.sigma) + 0.5 * np.log(2 * np.pi)
        return np.asarray(-0.5 * self._z(x) ** 2 - np.log(x) - constant)

    def log_sf(self, x: Floats) -> Floats:
        return np.asarray(log_ndtr(-self._z(x)))

    def quantile(self, u: Floats) -> Floats:
        return np.asarray(np.exp(self.mu + self.sigma * ndtri(u)))

    def ppf(self, u: Floats) -> NDArray[np.int64]:
        return _whole_tokens(self.quantile(u))


@dataclass(frozen=True)
class Gamma(Uncut):
    """Density proportional to x^(shape - 1) exp(-x / scale_tokens)."""

    shape: float
    scale_tokens: float

    def __post_init__(self) -> None:
        finite("shape", self.shape, above=0)
        finite("scale_tokens", self.scale_tokens, above=0)

    def cdf(self, x: Floats) -> Floats:
        return np.asarray(gammainc(self.shape, x / self.scale_tokens))

    def log_pdf(self, x: Floats) -> Floats:
        k, theta = self.shape, self.scale_tokens
        constant = gammaln(k) + k * np.log(theta)
        return np.asarray((k - 1) * np.log(x) - x / theta - constant)

    def log_sf(self, x: Floats) -> Floats:
        k, scaled = self.shape, x / self.scale_tokens
        share = np.asarray(gammaincc(k, scaled))
        seen = share > 1e-290  # beyond, the first term of Legendre's continued fraction
        beyond = np.where(seen, k + 1, scaled)
        far = k * np.log(beyond) - beyond - gammaln(k) - np.log(beyond + 1 - k)
        return np.where(seen, np.log(np.where(seen, share, 1.0)), far)

    def quantile(self, u: Floats) -> Floats:
        return np.asarray(self.scale_tokens * gammaincinv(self.shape, u))

    def ppf(self, u: Floats) -> NDArray[np.int64]:
        return _whole_tokens(self.quantile(u))


@dataclass(frozen=True)
class Weibull(Uncut):
    """P(E > x) = exp(-(x / scale_tokens)^shape)."""

    shape: float
    scale_tokens: float

    def __post_init__(self) -> None:
        finite("shape", self.shape, above=0)
        finite("scale_tokens", self.scale_tokens, above=0)

    def cdf(self, x: Floats) -> Floats:
        return np.asarray(-np.expm1(self.log_sf(x)))

    def log_pdf(self, x: Floats) -> Floats:
        c, scaled = self.shape, np.log(x / self.scale_tokens)
        return np.asarray(np.log(c / self.scale_tokens) + (c - 1) * scaled - np.exp(c * scaled))

    def log_sf(self, x: Floats) -> Floats:
        return np.asarray(-((x / self.scale_tokens) ** self.shape))

    def quantile(self, u: Floats) -> Floats:
        return np.asarray(self.scale_tokens * (-np.log1p(-u)) ** (1 / self.shape))

    def ppf(self, u: Floats) -> NDArray[np.int64]:
        return _whole_tokens(self.quantile(u))


@dataclass(frozen=True)
class Mixture(Uncut):
    """One of two lognormals: the first with probability `weight`."""

    weight: float
    mu: tuple[float, float]
    sigma: tuple[float, float]

    def __post_init__(self) -> None:
        if not 0 < finite("weight", self.weight) < 1:
            raise ValueError(f"weight must be above 0 and below 1, not {self.weight!r}")
        for name, values in (("mu", self.mu), ("sigma", self.sigma)):
            if len(values) != 2:
                raise ValueError(f"{name} must be two numbers, not {values!r}")
        for mu, sigma in zip(self.mu, self.sigma, strict=True):
            Lognormal(mu, sigma)

    @property
    def parts(self) -> tuple[tuple[float, Lognormal], tuple[float, Lognormal]]:
        """The two laws with their weights."""
        first, second = (Lognormal(m, s) for m, s in zip(self.mu, self.sigma, strict=True))
        return (self.weight, first), (1 - self.weight, second)

    def cdf(self, x: Floats) -> Floats:
        (w1, one), (w2, two) = self.parts
        return w1 * one.cdf(x) + w2 * two.cdf(x)

    def log_pdf(self, x: Floats) -> Floats:
        return self._log_sum(lambda law: law.log_pdf(x))

    def log_sf(self, x: Floats) -> Floats:
        return self._log_sum(lambda law: law.log_sf(x))

    def quantile(self, u: Floats) -> Floats:
        """Between the quantiles of the two laws, by halving."""
        ends = np.sort([np.log(law.quantile(u)) for _, law in self.parts], axis=0)
        low, high = np.nan_to_num(ends[0], neginf=-700.0), ends[1]
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            below = self.cdf(np.exp(middle)) < u
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.asarray(np.exp(high))

    def ppf(self, u: Floats) -> NDArray[np.int64]:
        return _whole_tokens(self.quantile(u))

    def _log_sum(self, term: Callable[[Lognormal], Floats]) -> Floats:
        (w1, one), (w2, two) = self.parts
        return np.asarray(np.logaddexp(np.log(w1) + term(one), np.log(w2) + term(two)))


Family = Lognormal | Gamma | Weibull | Mixture


@dataclass(frozen=True)
class Endless(Uncut):
    """`body`, but a share of the responses never ends by itself: loops, cut at whatever cap.

    Real caps show a point mass with next to nothing just below it, which no smooth tail has.
    """

    body: Family
    share: float

    def __post_init__(self) -> None:
        if not 0 < finite("share", self.share) < 1:
            raise ValueError(f"share must be above 0 and below 1, not {self.share!r}")

    def ppf(self, u: Floats) -> NDArray[np.int64]:
        ends = u < 1 - self.share
        tokens = self.body.ppf(np.where(ends, u / (1 - self.share), 0.5))
        return np.where(ends, tokens, ENDLESS)

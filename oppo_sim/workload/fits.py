"""Laws fitted to lengths by maximum likelihood, where a cap cut some of them, and how far off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, psi

from oppo_sim.workload.laws import Family, Gamma, Lognormal, Mixture, Weibull
from oppo_sim.workload.samples import Sample

Floats = NDArray[np.float64]
Make = Callable[[Floats], Family]

LEAST_SIGMA = 0.02  # below, a lognormal of a mixture has collapsed onto one length
LEAST_WEIGHT = 0.005
SHAPES = (1e-3, 1e9)  # of gamma and Weibull
LEAST_GAP = 1e-12  # between the logarithm of the mean and the mean of the logarithms
SPLITS = (0.1, 0.25, 0.5, 0.75, 0.9)  # where a mixture's search divides the sample
EM_ROUNDS = 60
LEAST_DISTINCT = 3


@dataclass(frozen=True)
class Fit:
    """A fitted law: its log-likelihood, and its Kolmogorov-Smirnov distance to the sample.

    The distance is on whole tokens, max |F_n(k) - F(k + 1/2)| over the lengths k below the cap.
    """

    law: Family
    log_likelihood: float
    ks: float

    @property
    def family(self) -> str:
        return type(self.law).__name__.lower()


def fit(family: str, sample: Sample) -> Fit:
    """The maximum-likelihood law of `family` (a name in FAMILIES).

    Responses at the cap count as "longer than the cap" (right-censored). For a point mass of loops
    rather than a tail, fit `sample.body` instead and take the mass as it is (see laws.Endless).
    """
    if family not in FAMILIES:
        raise ValueError(f"no family is called {family!r}; there are: {', '.join(FAMILIES)}")
    if len(sample.body.tokens) < LEAST_DISTINCT:
        raise ValueError(
            f"a law needs at least {LEAST_DISTINCT} different lengths below the cap, here are "
            f"{len(sample.body.tokens)}"
        )
    law = FAMILIES[family](sample)
    return Fit(law, log_likelihood(law, sample), distance(law, sample))


def fit_all(sample: Sample) -> dict[str, Fit]:
    """Every family, by name."""
    return {family: fit(family, sample) for family in FAMILIES}


def best(fits: dict[str, Fit], n: int) -> Fit:
    """The one with the lowest score."""
    return min(fits.values(), key=lambda found: score(found, n))


def score(found: Fit, n: int) -> float:
    """The Bayesian information criterion of a fit to `n` responses; lower is better."""
    numbers = 5 if isinstance(found.law, Mixture) else 2
    return numbers * float(np.log(n)) - 2 * found.log_likelihood


def log_likelihood(law: Family, sample: Sample) -> float:
    """Of the lengths below the cap, and of the others being longer than it."""
    body = sample.body
    total = float(body.counts @ law.log_pdf(body.tokens.astype(np.float64)))
    if sample.cut:
        total += sample.cut * float(law.log_sf(np.array([float(sample.cap_tokens or 0)]))[0])
    return total


def distance(law: Family, sample: Sample) -> float:
    """Kolmogorov-Smirnov, on whole tokens, below the cap."""
    shown = len(sample.body.tokens)
    expected = law.cdf(sample.tokens[:shown].astype(np.float64) + 0.5)
    return float(np.abs(sample.cdf()[:shown] - expected).max())


def _lognormal(sample: Sample) -> Lognormal:
    mu, sigma = _log_moments(sample.body)
    if not sample.cut:
        return Lognormal(mu, sigma)
    law = _climb(lambda p: Lognormal(p[0], np.exp(p[1])), sample, [(mu, np.log(sigma))])
    assert isinstance(law, Lognormal)
    return law


def _gamma(sample: Sample) -> Gamma:
    """By mean and shape, which hardly depend on each other; without a cap, log k - psi(k) is known.

    A search over both at once got lost where one length was far from all others.
    """
    x, counts = sample.under_cap, sample.counts
    mean, log_mean = sample.mean, float(np.average(np.log(x), weights=counts))
    gap = max(float(np.log(mean)) - log_mean, LEAST_GAP)
    shape = _root(lambda k: gap - float(np.log(k) - psi(k)))
    if not sample.cut:
        return Gamma(shape, mean / shape)
    start = (np.log(shape), np.log(mean))
    law = _climb(lambda p: Gamma(*np.exp((p[0], p[1] - p[0])).tolist()), sample, [start])
    assert isinstance(law, Gamma)
    return law


def _weibull(sample: Sample) -> Weibull:
    """The likelihood has one peak, at the shape where this rising function is zero."""
    logs, counts, body = np.log(sample.under_cap), sample.counts, sample.body
    longest = float(logs[-1])
    below = logs - longest  # so that no power overflows
    mean = float(np.average(np.log(body.tokens), weights=body.counts)) - longest

    def slope(shape: float) -> float:
        powers = counts * np.exp(shape * below)
        return float(powers @ below / powers.sum()) - 1 / shape - mean

    shape = _root(slope)
    powers = float(counts @ np.exp(shape * below))
    return Weibull(shape, float(np.exp(longest) * (powers / body.n) ** (1 / shape)))


def _root(rising: Callable[[float], float]) -> float:
    """The shape at which a rising function is zero."""
    low, high = np.log(SHAPES)
    from scipy.optimize import brentq  # slow to import, and only fits need it

    found = brentq(lambda p: rising(float(np.exp(p))), low, high, xtol=1e-12)
    return float(np.exp(found))


def _mixture(sample: Sample) -> Mixture:
    """The best of several starts: a few rounds of EM each, then a climb from the three highest."""
    tried = [_em(start, sample) for start in _starts(sample.body)]
    tried.sort(key=lambda law: -log_likelihood(law, sample))
    law = _climb(_make_mixture, sample, [_parameters(law) for law in tried[:3]])
    assert isinstance(law, Mixture)
    if law.mu[0] <= law.mu[1]:
        return law
    return Mixture(1 - law.weight, law.mu[::-1], law.sigma[::-1])


def _make_mixture(p: Floats) -> Mixture:
    weight = LEAST_WEIGHT + (1 - 2 * LEAST_WEIGHT) * float(expit(p[0]))
    one, two = (LEAST_SIGMA + np.exp(np.minimum(p[[2, 4]], 5.0))).tolist()
    return Mixture(weight, (float(p[1]), float(p[3])), (one, two))


def _parameters(law: Mixture) -> tuple[float, ...]:
    share = np.clip((law.weight - LEAST_WEIGHT) / (1 - 2 * LEAST_WEIGHT), 1e-6, 1 - 1e-6)
    one, two = np.log(np.maximum(np.array(law.sigma) - LEAST_SIGMA, 1e-4)).tolist()
    return float(logit(share)), law.mu[0], one, law.mu[1], two


def _starts(body: Sample) -> list[Mixture]:
    mu, sigma = _log_moments(body)
    sigma = max(sigma, 2 * LEAST_SIGMA)
    found = [Mixture(w, (mu, mu), (2 * sigma, sigma / 2)) for w in (0.1, 0.4)]
    for split in SPLITS:
        first = max(1, int(np.searchsorted(body.cdf(), split, side="right")))
        if first < len(body.tokens):
            (m1, s1), (m2, s2) = (
                _log_moments(Sample(body.tokens[part], body.counts[part]))
                for part in (slice(None, first), slice(first, None))
            )
            weight = float(np.clip(split, 2 * LEAST_WEIGHT, 1 - 2 * LEAST_WEIGHT))
            found.append(Mixture(weight, (m1, m2), (max(s1, sigma / 4), max(s2, sigma / 4))))
    return found


def _em(law: Mixture, sample: Sample) -> Mixture:
    """Expectation-maximisation on logarithms; what was cut enters by its conditional moments."""
    body = sample.body
    x, logs = body.tokens.astype(np.float64), np.log(body.tokens)
    cap = np.array([float(sample.cap_tokens or 1)])
    for _ in range(EM_ROUNDS):
        whole_log, cut_log = law.log_pdf(x), law.log_sf(cap)
        weights, mus, sigmas = [], [], []
        for share, part in law.parts:
            mass = body.counts * share * np.exp(part.log_pdf(x) - whole_log)
            cut = sample.cut * share * float(np.exp(part.log_sf(cap) - cut_log)[0])
            z = (float(np.log(cap[0])) - part.mu) / part.sigma
            hazard = float(np.exp(part.log_pdf(cap) - part.log_sf(cap))[0] * cap[0] * part.sigma)
            total = float(mass.sum()) + cut
            mu = (float(mass @ logs) + cut * (part.mu + part.sigma * hazard)) / total
            spread = part.sigma**2 * (1 + z * hazard - hazard**2)
            beyond = spread + (part.mu + part.sigma * hazard - mu) ** 2
            square = (float(mass @ (logs - mu) ** 2) + cut * beyond) / total
            weights.append(total / sample.n)
            mus.append(mu)
            sigmas.append(max(np.sqrt(square), 2 * LEAST_SIGMA))
        weight = float(np.clip(weights[0], 2 * LEAST_WEIGHT, 1 - 2 * LEAST_WEIGHT))
        law = Mixture(weight, (mus[0], mus[1]), (float(sigmas[0]), float(sigmas[1])))
    return law


def _climb(make: Make, sample: Sample, starts: list[tuple[float, ...]]) -> Family:
    """The most likely law that a search from each of the starts finds; the same every time."""

    from scipy.optimize import minimize

    def loss(p: Floats) -> float:
        with np.errstate(all="ignore"):
            try:
                value = -log_likelihood(make(p), sample) / sample.n
            except ValueError:  # a step that left the numbers a law may have
                return 1e10
        return value if np.isfinite(value) else 1e10

    found = [
        minimize(
            loss,
            np.asarray(start, dtype=np.float64),
            method="L-BFGS-B",
            options={"maxiter": 500, "ftol": 1e-13, "gtol": 1e-8},
        )
        for start in starts
    ]
    return make(np.asarray(min(found, key=lambda result: float(result.fun)).x))


def _log_moments(sample: Sample) -> tuple[float, float]:
    logs = np.log(sample.tokens)
    mu = float(np.average(logs, weights=sample.counts))
    return mu, float(np.sqrt(np.average((logs - mu) ** 2, weights=sample.counts)))


FAMILIES: dict[str, Callable[[Sample], Family]] = {
    "lognormal": _lognormal,
    "gamma": _gamma,
    "weibull": _weibull,
    "mixture": _mixture,
}

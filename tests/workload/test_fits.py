"""Censored maximum likelihood: known laws are found again; measured sets fit as computed before."""

import numpy as np
import pytest
from scipy import special, stats

from oppo_sim.workload import Lengths, load
from oppo_sim.workload.fits import FAMILIES, best, fit, fit_all, log_likelihood
from oppo_sim.workload.laws import Endless, Family, Gamma, Lognormal, Mixture, Weibull
from oppo_sim.workload.samples import Sample

GRID = (np.arange(4000) + 0.5) / 4000
KNOWN: list[Family] = [
    Lognormal(6.0, 0.6),
    Gamma(2.5, 150.0),
    Weibull(1.5, 400.0),
    Mixture(0.35, (5.0, 6.3), (0.8, 0.3)),
]


def numbers(law: Family) -> np.ndarray:
    return np.hstack([np.asarray(value) for value in vars(law).values()])


@pytest.mark.parametrize("cut_at", [None, 0.9, 0.75])
@pytest.mark.parametrize("law", KNOWN, ids=lambda law: type(law).__name__)
def test_a_known_law_is_found_again(law: Family, cut_at: float | None) -> None:
    """Bias below 2 %, over 8 samples; a cap hides the longest tenth or quarter."""
    cap = None if cut_at is None else int(law.quantile(np.array([cut_at]))[0])
    family, found = type(law).__name__.lower(), []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        lengths = law.ppf(rng.random(20_000))
        sample = Sample.of(lengths if cap is None else np.minimum(lengths, cap), cap)
        fitted = fit(family, sample)
        assert fitted.ks < 0.012
        found.append(numbers(fitted.law))
    assert np.mean(found, axis=0) == pytest.approx(numbers(law), rel=0.02)


@pytest.mark.parametrize("cap", [None, 5000])
@pytest.mark.parametrize("family", ["gamma", "weibull"])
@pytest.mark.parametrize(
    "lengths",
    [
        [*range(95, 106)] * 50 + [9999],  # all about equal, and one that is not
        [1] * 2000 + [2, 3, 9999],
        [100] * 9000 + [101, 102],
        [2, 40, 9999],
    ],
    ids=["one far away", "nearly all 1", "nearly all equal", "three"],
)
def test_no_law_is_likelier_nearby(lengths: list[int], family: str, cap: int | None) -> None:
    """The fit is the peak: on odd samples, too, where a search gets lost."""
    sample = Sample.of(lengths, cap if max(lengths) > 5000 else None)
    if len(sample.body.tokens) < 3:
        pytest.skip("too few lengths below the cap")
    found = fit(family, sample)
    shape, scale = numbers(found.law)
    for a, b in [(1.02, 1), (0.98, 1), (1, 1.02), (1, 0.98), (1.02, 1 / 1.02), (0.98, 1 / 0.98)]:
        near = type(found.law)(shape * a, scale * b)
        assert log_likelihood(near, sample) < found.log_likelihood


@pytest.mark.parametrize(
    ("law", "other"),
    [
        (KNOWN[0], stats.lognorm(0.6, 0, np.exp(6.0))),
        (KNOWN[1], stats.gamma(2.5, 0, 150.0)),
        (KNOWN[2], stats.weibull_min(1.5, 0, 400.0)),
    ],
)
def test_a_law_is_that_of_scipy_stats(law: Family, other: stats.rv_continuous) -> None:
    x = np.array([1.0, 50, 400, 3000])
    assert law.cdf(x) == pytest.approx(other.cdf(x), rel=1e-9)
    assert law.log_pdf(x) == pytest.approx(other.logpdf(x), rel=1e-9)
    assert law.log_sf(x) == pytest.approx(other.logsf(x), rel=1e-6)
    assert law.quantile(GRID) == pytest.approx(other.ppf(GRID), rel=1e-9)


@pytest.mark.parametrize(("k", "x"), [(0.5, 1000.0), (3.0, 900.0), (1e6, 1.1e6)])
def test_the_tail_of_a_gamma_goes_on_where_its_share_is_no_number(k: float, x: float) -> None:
    """By the integral of the density over what is beyond x, relative to the density at x."""
    t = np.linspace(0, 60 / (1 - (k - 1) / x), 200_001)
    shape = np.exp((k - 1) * np.log1p(t / x) - t)
    expected = (k - 1) * np.log(x) - x - special.gammaln(k) + np.log(np.trapezoid(shape, t))
    assert special.gammaincc(k, x) == 0
    assert Gamma(k, 1.0).log_sf(np.array([x]))[0] == pytest.approx(expected, abs=1e-2)


def test_the_quantiles_of_a_mixture_invert_it() -> None:
    law = Mixture(0.35, (5.0, 6.3), (0.8, 0.3))
    assert law.cdf(law.quantile(GRID)) == pytest.approx(GRID, rel=1e-9)


# Fits to the samples themselves, computed by another program; here to their quantile tables, below
# the cap: mu and sigma of the lognormal, shapes of gamma and Weibull, and their distances.
MEASURED = [
    ("mathL5_Qwen2.5-7B-Instruct_greedy", 6.2455, 0.50021, 4.0341, 1.8422, 0.0188, 0.0376, 0.0921),
    ("mathL5_Qwen2.5-3B-Instruct_greedy", 6.3402, 0.56811, 3.1772, 1.6887, 0.0383, 0.0532, 0.0837),
    ("gsm8k_reference_test", 4.4383, 0.43969, 5.4174, 2.3782, 0.0255, 0.0324, 0.0510),
    ("alpacaeval_Qwen2-72B-Instruct", 5.5789, 0.90249, 1.8981, 1.5526, 0.1206, 0.0822, 0.0642),
    (
        "livecodebench_o1-mini_visible_output",
        5.2140,
        0.86177,
        1.6394,
        1.2564,
        0.0367,
        0.0457,
        0.0489,
    ),
    ("math_qwen2.5math_sampled_n8x100", 5.8795, 0.39577, 5.6888, 1.9452, 0.0462, 0.0783, 0.1460),
]


def measured(name: str) -> Sample:
    table = load(name)
    return Sample.of(table.ppf(GRID), table.known_tokens)


@pytest.mark.parametrize(("name", "mu", "sigma", "k", "c", "ln", "gamma", "weibull"), MEASURED)
def test_single_families_fit_as_computed_before(
    name: str, mu: float, sigma: float, k: float, c: float, ln: float, gamma: float, weibull: float
) -> None:
    fits = {
        family: fit(family, measured(name).body) for family in ("lognormal", "gamma", "weibull")
    }
    assert numbers(fits["lognormal"].law) == pytest.approx([mu, sigma], rel=0.02)
    assert numbers(fits["gamma"].law)[0] == pytest.approx(k, rel=0.04)
    assert numbers(fits["weibull"].law)[0] == pytest.approx(c, rel=0.03)
    assert [f.ks for f in fits.values()] == pytest.approx([ln, gamma, weibull], abs=0.008)


@pytest.mark.parametrize(
    ("name", "mu", "sigma"),
    [
        ("mathL5_Qwen2-7B-Instruct_greedy", 5.8459, 0.71407),
        ("mathL5_Qwen2.5-3B-Instruct_greedy", 6.5196, 0.82308),
        ("mathL5_Qwen2.5-7B-Instruct_greedy", 6.3075, 0.61542),
        ("crux_Qwen2.5-3B-Instruct_greedy", 5.1942, 0.53819),
        ("alpacaeval_Qwen2-0.5B-Instruct_greedy", 5.0289, 1.2395),
    ],
)
def test_the_mass_at_a_cap_counts_as_longer(name: str, mu: float, sigma: float) -> None:
    """The same sets, with what was cut: the lognormal widens."""
    law = fit("lognormal", measured(name)).law
    assert numbers(law) == pytest.approx([mu, sigma], rel=0.02)


@pytest.mark.parametrize(
    ("name", "law", "ks"),
    [
        (
            "alpacaeval_FuseChat-Llama-3.2-3B-Instruct",
            Mixture(0.3459, (4.8783, 6.2522), (1.1334, 0.3514)),
            0.0224,
        ),
        (
            "alpacaeval_Qwen2-72B-Instruct",
            Mixture(0.46301, (4.982, 6.0935), (0.98511, 0.32866)),
            0.0320,
        ),
        (
            "math_qwen2.5math_sampled_n8x100",
            Mixture(0.98503, (5.856, 7.4316), (0.34855, 0.15627)),
            0.0239,
        ),
    ],
)
def test_mixtures_fit_as_computed_before(name: str, law: Mixture, ks: float) -> None:
    sample = measured(name)
    found = fit("mixture", sample)
    assert numbers(found.law) == pytest.approx(numbers(law), rel=0.06)
    assert found.log_likelihood >= log_likelihood(law, sample)
    assert found.ks == pytest.approx(ks, abs=0.004)


def test_the_same_sample_gives_the_same_fit() -> None:
    sample = measured("gsm8k_reference_test")
    assert fit("mixture", sample) == fit("mixture", sample)


@pytest.mark.parametrize("law", KNOWN, ids=lambda law: type(law).__name__)
@pytest.mark.parametrize("n", [1000, 20_000])
def test_the_family_is_recognised(law: Family, n: int) -> None:
    """A mixture can always come closer to its sample, and has to earn its three numbers more."""
    sample = Sample.of(law.ppf(np.random.default_rng(0).random(n)))
    assert best(fit_all(sample), n).family == type(law).__name__.lower()


def test_what_never_ends_is_a_mass_beyond_every_cap() -> None:
    lengths: Lengths = Endless(Lognormal(6.0, 0.5), 0.03)
    drawn = lengths.ppf(GRID)
    assert np.mean(drawn > 10**9) == pytest.approx(0.03, abs=0.0005)
    assert np.log(drawn[drawn < 10**9]).mean() == pytest.approx(6.0, rel=1e-3)
    assert lengths.known_tokens is None
    assert lengths.prompts is None


def test_a_sample_knows_its_moments() -> None:
    sample = Sample.of([5, 5, 7, 12], cap_tokens=10)
    assert (sample.n, sample.cut, sample.mean) == (4, 1, 6.75)
    assert sample.ppf(np.array([0.0, 0.49, 0.5, 0.99])).tolist() == [5, 5, 7, 10]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_law_needs_three_lengths_below_the_cap(family: str) -> None:
    with pytest.raises(ValueError, match="at least 3 different lengths below the cap, here are 2"):
        fit(family, Sample.of([3, 4, 9, 9], cap_tokens=9))


def test_bad_numbers_are_named() -> None:
    with pytest.raises(ValueError, match="sigma must be a finite number > 0, not 0"):
        Lognormal(1, 0)
    with pytest.raises(ValueError, match="weight must be above 0 and below 1"):
        Mixture(1.0, (1, 2), (1, 1))
    with pytest.raises(ValueError, match="no family is called 'normal'"):
        fit("normal", Sample.of([1, 2, 3]))
    with pytest.raises(ValueError, match="every response is as long"):
        Sample.of([9, 9], cap_tokens=9)

"""A file of lengths or a training log, fitted: laws, what depends on what, and the tail."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from oppo_sim.workload.effects import Drift
from oppo_sim.workload.fits import Fit, best, fit_all, score
from oppo_sim.workload.laws import Family, Lognormal, Mixture
from oppo_sim.workload.measured import Measured, read_measured
from oppo_sim.workload.samples import Sample
from oppo_sim.workload.steplogs import StepLog, TimeLog, framework_of, read_log
from oppo_sim.workload.tabular import TELLS_BYTES, first_columns, quiet
from oppo_sim.workload.tail import Tail, tail, verdict

TEXT_LOGS = (".log", ".txt")
LEAST_EFFECT, LEAST_TREND, LEAST_NOISE = 0.05, 1e-4, 0.005  # to be worth a line of a scenario
THINNED = 2000  # lengths that stand for a sample


@dataclass(frozen=True)
class FittedSample:
    """Laws of a sample; `endless` is the share of loops at the cap, if they are kept apart."""

    file: str
    measured: Measured
    fits: dict[str, Fit]
    endless: float
    tail: Tail

    @property
    def best(self) -> Fit:
        return best(self.fits, self.measured.sample.n)

    @property
    def toml(self) -> str:
        """The best law and the effects, as a scenario takes them."""
        ends = f", endless = {self.endless:.4g}" if self.endless else ""
        sample = self.measured.sample
        lines = [
            f"lengths = {{ {self.best.family} = {law_toml(self.best.law)}{ends} }}",
            cap_toml(sample.cap_tokens, int(sample.tokens[-1])),
        ]
        return "\n".join([*lines, *effects_toml(self.measured.prompt_effect, self.measured.drift)])

    @property
    def verdict(self) -> str:
        cap = self.measured.sample.looks_cut_at
        if cap is None:
            return verdict(self.tail)
        hint = f"Many responses end at {cap:,} tokens: if that was a cap, say --cap {cap}."
        return f"{verdict(self.tail)} {hint}"

    def thinned(self) -> list[int]:
        """Lengths in rising order that stand for the sample, at equally spaced probabilities."""
        count = min(THINNED, self.measured.sample.n)
        tokens: list[int] = self.measured.sample.ppf((np.arange(count) + 0.5) / count).tolist()
        return tokens

    def as_dict(self) -> dict[str, Any]:
        sample = self.measured.sample
        drift, prompts = self.measured.drift, self.measured.prompts
        return {
            "file": self.file,
            "kind": "lengths",
            "role": "fitted",
            "responses": sample.n,
            "mean_tokens": sample.mean,
            "quantiles": quantiles(sample),
            "prompt_mean_tokens": None if prompts is None else prompts.mean,
            "cap_tokens": sample.cap_tokens,
            "share_at_cap": sample.cut / sample.n,
            "endless": self.endless,
            "fits": {name: _fit_document(fit) for name, fit in self.fits.items()},
            "best": self.best.family,
            "prompt_effect": self.measured.prompt_effect,
            "drift": None if drift is None else asdict(drift),
            "tail": _tail_document(self.tail),
            "verdict": self.verdict,
            "toml": self.toml,
        }


@dataclass(frozen=True)
class FittedLog:
    """What a framework's per-step metrics say."""

    file: str
    log: StepLog
    batch: int
    law: Lognormal | None
    drift: Drift | None
    tail: Tail | None

    @property
    def toml(self) -> str | None:
        if self.law is None:
            return None
        lines = [
            f"lengths = {{ lognormal = {law_toml(self.law)} }}",
            cap_toml(self.log.cap_tokens, int(self.log.longest.max())),
        ]
        return "\n".join([*lines, *effects_toml(None, self.drift)])

    @property
    def verdict(self) -> str:
        measured = (
            f"In this {self.log.framework} log, {self.log.idle_share:.0%} of the decode capacity "
            f"waited for the longest response of a step ({steps_of(len(self.log.steps))})."
        )
        if self.tail is None:
            return f"{measured} No lognormal has such a mean and such a longest of {self.batch}."
        return f"{measured} By a lognormal with the same averages: {verdict(self.tail)}"

    def as_dict(self) -> dict[str, Any]:
        log = self.log
        return {
            "file": self.file,
            "kind": "steps",
            "role": "fitted",
            "framework": log.framework,
            "steps": len(log.steps),
            "skipped": log.skipped,
            "mean_tokens": float(log.means.mean()),
            "longest_tokens": float(log.longest.mean()),
            "idle_share": log.idle_share,
            "cap_tokens": log.cap_tokens,
            "share_at_cap": log.share_at_cap(self.batch),
            "law": None if self.law is None else {"family": "lognormal", **asdict(self.law)},
            "drift": None if self.drift is None else asdict(self.drift),
            "tail": None if self.tail is None else _tail_document(self.tail),
            "verdict": self.verdict,
            "toml": self.toml,
        }


@dataclass(frozen=True)
class Timed:
    """A log of seconds without lengths."""

    file: str
    log: TimeLog

    @property
    def verdict(self) -> str:
        share = self.log.generation_share
        return (
            f"This {self.log.framework} log holds seconds and no lengths, so no law can be fitted: "
            f"generation takes {share:.0%} of its {steps_of(self.log.steps)}, so a schedule that "
            f"hid all of it would make them {1 / max(1 - share, 1e-9):.1f} x as fast, and none "
            "does more. Log response lengths to learn what a better schedule brings."
        )

    def as_dict(self) -> dict[str, Any]:
        return {"file": self.file, "kind": "times", **asdict(self.log), "verdict": self.verdict}


def fit_file(
    path: Path, cap_tokens: int | None = None, batch: int = 112, progress: TELLS_BYTES = quiet
) -> FittedSample | FittedLog | Timed:
    """Fit what `path` holds: a row per response, or a row per step of a framework's log."""
    is_text = path.suffix.lower() in TEXT_LOGS
    columns = () if is_text else first_columns(path)
    if is_text or ("response_tokens" not in columns and framework_of(columns)):
        log = read_log(path, progress)
        return Timed(str(path), log) if isinstance(log, TimeLog) else _fit_log(path, log, batch)
    measured = read_measured(path, cap_tokens, progress)
    try:
        fits, endless = _fit_sample(measured.sample)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    cap = measured.sample.cap_tokens
    return FittedSample(str(path), measured, fits, endless, tail(measured.sample, batch, cap))


def _fit_sample(sample: Sample) -> tuple[dict[str, Fit], float]:
    """What was cut as a tail that goes on, or as loops apart from the rest: what scores better."""
    fits, n = fit_all(sample), sample.n
    if not sample.cut:
        return fits, 0.0
    apart, share = fit_all(sample.body), sample.cut / n
    whose = sample.cut * math.log(share) + (n - sample.cut) * math.log1p(-share)
    score_apart = score(best(apart, n), n) + math.log(n) - 2 * whose  # the share is a number more
    return (apart, share) if score_apart < score(best(fits, n), n) else (fits, 0.0)


def _fit_log(path: Path, log: StepLog, batch: int) -> FittedLog:
    law = log.law(batch)
    found = None if law is None else tail(law, batch, log.cap_tokens)
    return FittedLog(str(path), log, batch, law, log.drift(batch), found)


def law_toml(law: Family) -> str:
    """A law as an inline table."""
    if isinstance(law, Mixture):
        mu, sigma = (", ".join(f"{value:.4g}" for value in pair) for pair in (law.mu, law.sigma))
        return f"{{ weight = {law.weight:.4g}, mu = [{mu}], sigma = [{sigma}] }}"
    return f"{{ {', '.join(f'{name} = {value:.5g}' for name, value in asdict(law).items())} }}"


def cap_toml(cap: int | None, longest: int) -> str:
    """The line of a scenario for where its responses end: no shorter, or more of them are cut."""
    if cap is not None:
        return f"max_response_tokens = {cap}  # where they were cut"
    return f"max_response_tokens = {longest}  # the longest there was"


def effects_toml(prompt_effect: float | None, drift: Drift | None) -> list[str]:
    """The lines of a scenario for what was found, if it matters."""
    lines = []
    if prompt_effect is not None and prompt_effect >= LEAST_EFFECT:
        lines.append(f"prompt_effect = {prompt_effect:.3g}")
    if drift is not None and (abs(drift.per_step) >= LEAST_TREND or drift.noise >= LEAST_NOISE):
        pairs = ", ".join(f"{name} = {value:.3g}" for name, value in asdict(drift).items())
        lines.append(f"drift = {{ {pairs} }}")
    return lines


def steps_of(count: int) -> str:
    return f"{count:,} step" if count == 1 else f"{count:,} steps"


def quantiles(sample: Sample) -> dict[str, int]:
    """A few, by name."""
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1 - 2**-53}
    tokens = sample.ppf(np.array(list(shares.values()))).tolist()
    return dict(zip(shares, tokens, strict=True))


def _fit_document(fit: Fit) -> dict[str, Any]:
    return {**asdict(fit.law), "ks": fit.ks, "log_likelihood": fit.log_likelihood}


def _tail_document(found: Tail) -> dict[str, Any]:
    gains = {str(d): gain for d, gain in found.gains.items()}
    return {**asdict(found), "gains": gains, "idle_share": found.idle_share}

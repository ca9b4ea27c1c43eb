"""What training frameworks log of lengths, step by step: verl, TRL and DeepSpeed-Chat."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from oppo_sim.config.bounds import MOST_TOKENS
from oppo_sim.workload.effects import Drift
from oppo_sim.workload.laws import Lognormal
from oppo_sim.workload.moments import drift_of
from oppo_sim.workload.tabular import MOST, TELLS_BYTES, chunks, quiet, refuse_pipe

GRID = (np.arange(1 << 14) + 0.5) / (1 << 14)
SIGMAS = (0.02, 3.0)
OFTEN = 0.5  # of the steps end at the longest length there is: that is the cap
LINE_BYTES = 1 << 20  # of a text log; what is longer is no line of metrics


@dataclass(frozen=True)
class Names:
    """How a framework calls the metrics of one step."""

    framework: str
    mean: str
    longest: str
    clipped: str


FRAMEWORKS = (
    Names("verl", "response_length/mean", "response_length/max", "response_length/clip_ratio"),
    Names("TRL", "completions/mean_length", "completions/max_length", "completions/clipped_ratio"),
)
TIMES = ("generate", "training", "e2e")  # DeepSpeed-Chat prints seconds, and no lengths
STEPS = ("step", "global_step", "_step")
PREFIX = "train/"  # of metrics that went through a tracker
NUMBER = r"(-?[\d.]+(?:[eE][+-]?\d+)?|nan)"
METRIC = re.compile(rf"([A-Za-z_][\w/@.-]*):(?:np\.float\d+\()?{NUMBER}\)?(?=\s|$)")
PAIR = re.compile(rf"'([A-Za-z_][\w/@.-]*)': '?{NUMBER}'?(?=[,}}])")  # as TRL prints a step
LATENCY = re.compile(
    r"E2E latency=([\d.]+)s.*?Generate time=([\d.]+)s.*?Training time=([\d.]+)s", re.IGNORECASE
)


@dataclass(frozen=True)
class StepLog:
    """The steps of a log that say something of lengths; others, as validation, are `skipped`."""

    framework: str
    steps: NDArray[np.float64]
    means: NDArray[np.float64]
    longest: NDArray[np.float64]
    clipped: NDArray[np.float64] | None
    skipped: int

    @property
    def idle_share(self) -> float:
        """Measured: of a step's decode capacity, what waits for its longest response."""
        return float(1 - self.means.sum() / self.longest.sum())

    @property
    def cap_tokens(self) -> int | None:
        """The length at which most steps, or all that are clipped, end; None if none is such."""
        most = float(self.longest.max())
        if self.clipped is not None:
            return int(most) if (self.clipped > 0).any() else None
        often = float((self.longest == most).mean()) >= OFTEN
        return int(most) if often and len(self.steps) > 1 else None

    def share_at_cap(self, batch: int) -> float:
        """As logged, or of how many steps have their longest response at the cap."""
        if self.cap_tokens is None:
            return 0.0
        if self.clipped is not None:
            return float(self.clipped.mean())
        steps = len(self.steps)
        reached = min(float((self.longest >= self.cap_tokens).mean()), 1 - 1 / (2 * steps))
        return float(-math.expm1(math.log1p(-reached) / batch))

    def law(self, batch: int) -> Lognormal | None:
        """The lognormal with the logged mean, and the logged share at the cap or longest of a step.

        `batch` is the number of responses per step. None if no lognormal has these.
        """
        mean, share = float(self.means.mean()), self.share_at_cap(batch)
        if self.cap_tokens is not None and 0 < share < 1:
            return _law_of_cap(mean, self.cap_tokens, share)
        return _law_of_longest(mean, float(self.longest.mean()), batch)

    def drift(self, batch: int) -> Drift | None:
        """Trend and autoregression of the step means; None for too few steps."""
        law = self.law(batch)
        sampling = 0.0 if law is None else (math.exp(law.sigma**2) - 1) / batch
        return drift_of(self.steps, np.log(self.means), sampling)


@dataclass(frozen=True)
class TimeLog:
    """Seconds by stage, summed over the steps; such a log holds no lengths."""

    framework: str
    steps: int
    generate_s: float
    training_s: float
    total_s: float

    @property
    def generation_share(self) -> float:
        return self.generate_s / self.total_s


def framework_of(columns: tuple[str, ...]) -> str | None:
    """Whose metrics these are, if they are known."""
    plain = {name.removeprefix(PREFIX) for name in columns}
    for names in FRAMEWORKS:
        if names.mean in plain:
            return names.framework
    return "DeepSpeed-Chat" if plain.issuperset(TIMES) else None


def read_log(path: Path, progress: TELLS_BYTES = quiet) -> StepLog | TimeLog:
    """A framework's log as CSV, JSONL or the text that it prints (.log, .txt), streamed.

    ValueError if nothing is found.
    """
    wanted = [n for names in FRAMEWORKS for n in (names.mean, names.longest, names.clipped)]
    return _log(path, rows_by_step(path, (*wanted, *TIMES), progress))


def rows_by_step(
    path: Path, names: tuple[str, ...], progress: TELLS_BYTES = quiet
) -> dict[float, dict[str, float]]:
    """By step, the finite numbers of a log under these names; a printed log may have more.

    Where a step is there twice (a run went on from a checkpoint), the later line counts.
    """
    wanted = (*names, *STEPS)
    columns = (*wanted, *(PREFIX + name for name in wanted))
    is_text = path.suffix.lower() in (".log", ".txt")
    rows = _printed(path, progress) if is_text else _table(path, columns, progress)
    steps: dict[float, dict[str, float]] = {}
    step = -1.0
    for row in rows:
        step = next((row[key] for key in STEPS if 0 <= row.get(key, -1) <= MOST), step + 1)
        steps[step] = steps.get(step, {}) | row
    return steps


def _log(path: Path, steps: dict[float, dict[str, float]]) -> StepLog | TimeLog:
    for names in FRAMEWORKS:
        full = {
            step: row
            for step, row in sorted(steps.items())
            if 1 <= row.get(names.mean, 0) <= row.get(names.longest, 0) <= MOST_TOKENS
        }
        if full:
            return _step_log(names, full, len(steps) - len(full))
    timed = [row for row in steps.values() if all(row.get(name, 0) > 0 for name in TIMES)]
    if timed:
        generate, training, total = (sum(row[name] for row in timed) for name in TIMES)
        return TimeLog("DeepSpeed-Chat", len(timed), generate, training, total)
    known = "; ".join(f"{n.framework}: {n.mean}, {n.longest}" for n in FRAMEWORKS)
    raise ValueError(
        f"{path}: no step with the mean and the longest length of its responses; known metrics are "
        f"{known}; DeepSpeed-Chat: {', '.join(TIMES)}"
    )


def _step_log(names: Names, rows: dict[float, dict[str, float]], skipped: int) -> StepLog:
    clipped = [row.get(names.clipped, math.nan) for row in rows.values()]
    are_shares = all(0 <= share <= 1 for share in clipped)
    return StepLog(
        names.framework,
        steps=np.array(list(rows)),
        means=np.array([row[names.mean] for row in rows.values()]),
        longest=np.array([row[names.longest] for row in rows.values()]),
        clipped=np.array(clipped) if are_shares else None,
        skipped=skipped,
    )


def _table(
    path: Path, columns: tuple[str, ...], progress: TELLS_BYTES
) -> Iterator[dict[str, float]]:
    for chunk in chunks(path, columns, progress):
        for row in chunk.to_dict("records"):
            yield _numbers(row.items())


def _numbers(cells: Iterable[tuple[Hashable, object]]) -> dict[str, float]:
    """The cells that are finite numbers, by their plain names."""
    found = {str(name).removeprefix(PREFIX): _finite(cell) for name, cell in cells}
    return {name: number for name, number in found.items() if math.isfinite(number)}


def _finite(cell: object) -> float:
    try:
        return float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _printed(path: Path, progress: TELLS_BYTES) -> Iterator[dict[str, float]]:
    """The metrics in lines as verl, TRL and DeepSpeed-Chat print them."""
    try:
        refuse_pipe(path)
        total = path.stat().st_size
        with path.open("rb") as source:
            while line := source.readline(LINE_BYTES):
                text = line.decode("utf-8", errors="replace")
                if "latency=" in text and (match := LATENCY.search(text)):
                    total_s, generate_s, training_s = map(_finite, match.groups())
                    yield {"e2e": total_s, "generate": generate_s, "training": training_s}
                elif "step:" in text:
                    progress(source.tell(), total)
                    if len(found := METRIC.findall(text)) > 1:
                        yield _numbers(found)
                elif "'completions/" in text:
                    progress(source.tell(), total)
                    yield _numbers(PAIR.findall(text))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error


def _law_of_cap(mean: float, cap: int, share: float) -> Lognormal | None:
    """P(X >= cap) = share, and the mean under the cap."""
    z = float(ndtri(1 - share))

    def law(sigma: float) -> Lognormal:
        return Lognormal(math.log(cap) - sigma * z, sigma)

    return _solve(law, lambda found: float(np.minimum(found.quantile(GRID), cap).mean()) - mean)


def _law_of_longest(mean: float, longest: float, batch: int) -> Lognormal | None:
    """The mean, and E[max of batch]."""
    top = GRID ** (1 / batch)

    def law(sigma: float) -> Lognormal:
        return Lognormal(math.log(mean) - sigma**2 / 2, sigma)

    return _solve(law, lambda found: longest - float(found.quantile(top).mean()))


def _solve(
    law: Callable[[float], Lognormal], excess: Callable[[Lognormal], float]
) -> Lognormal | None:
    """The sigma at which `excess` is zero; None if it has one sign everywhere."""
    from scipy.optimize import brentq  # slow to import, and only logs need it

    low, high = SIGMAS
    if excess(law(low)) * excess(law(high)) >= 0:
        return None
    return law(float(brentq(lambda sigma: excess(law(sigma)), low, high)))

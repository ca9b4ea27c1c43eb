"""What a point comes to: means over its seeds, paired with its baseline's, and when to stop."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any, Literal, NamedTuple

from oppo_sim.analysis.intervals import Mean, of_independent, of_ratios
from oppo_sim.search.problem import Point, Problem, Unit, Values
from oppo_sim.search.units import Found, run_unit


class Seeds(NamedTuple):
    """Every point has the first `least`; those whose interval is too wide get more, up to `most`.

    `enough`: half of the interval of the speed-up (of the step time where there is no baseline),
    relative to its mean. None: `least` are enough.
    """

    first: int = 0
    least: int = 5
    most: int = 0
    enough: float | None = None

    def of(self, count: int) -> range:
        return range(self.first, self.first + count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A point in numbers, means over its seeds; None throughout where it failed."""

    point: int
    values: Values
    status: Literal["ok", "failed"]
    error: str = ""
    seeds: int = 0
    step_s: Mean | None = None
    speedup: Mean | None = None  # None, too, without a baseline
    staleness: float | None = None
    deferred_share: float | None = None
    length_bias: float | None = None
    busy: float | None = None
    wasted_share: float | None = None
    kv_peak_tokens: int | None = None  # the highest

    @classmethod
    def of_dict(cls, row: Mapping[str, Any]) -> Result:
        """What `as_dict` made of one."""
        means = {name: row[name] and Mean(**row[name]) for name in ("step_s", "speedup")}
        return cls(**{**row, **means})

    @property
    def is_ok(self) -> bool:
        return self.status == "ok"

    def as_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        row = asdict(self)
        for name in ("step_s", "speedup"):
            mean = getattr(self, name)
            row[name] = None if mean is None else mean._asdict()
        return row


def summed_up(
    point: Point,
    seeds: Sequence[int],
    own: Sequence[Found],
    baseline: Sequence[Found] | None,
) -> Result:
    """The units of a point and of its baseline, in the order of the seeds.

    One that failed makes the point fail, with the error of the first seed that did.
    """
    for whose, units in (("", own), ("the baseline: ", baseline)):
        if units is None:
            continue
        for seed, unit in zip(seeds, units, strict=True):
            if "error" in unit:
                return Result(
                    point=point.id,
                    values=point.values,
                    status="failed",
                    error=f"{whose}{unit['error']}" + _at(seed, units),
                )
    times = [unit["step_s"] for unit in own]
    speedup = None
    if baseline is not None:
        speedup = of_ratios([b["step_s"] / t for b, t in zip(baseline, times, strict=True)])
    return Result(
        point=point.id,
        values=point.values,
        status="ok",
        seeds=len(times),
        step_s=of_independent(times),
        speedup=speedup,
        staleness=_mean(own, "staleness"),
        deferred_share=_mean(own, "deferred_share"),
        length_bias=_mean(own, "length_bias"),
        busy=_mean(own, "busy"),
        wasted_share=_mean(own, "wasted_share"),
        kv_peak_tokens=max(unit["kv_peak_tokens"] for unit in own),
    )


def _at(seed: int, units: Sequence[Found]) -> str:
    """Which seed failed, where not all did for the same reason."""
    return "" if len({unit.get("error") for unit in units}) == 1 else f" (seed {seed})"


def _mean(units: Sequence[Found], name: str) -> float | None:
    values = [unit[name] for unit in units]
    return None if None in values else sum(values) / len(values)


def more_seeds(result: Result, seeds: Seeds) -> int:
    """How many seeds the point should have before it is looked at again; 0: it is done.

    The width of an interval falls with the square root of the seeds; it is trusted for twice as
    many, at most.
    """
    if is_enough(result, seeds) or result.seeds >= seeds.most:
        return 0
    width = _relative_half_width(result)
    assert seeds.enough is not None
    needed = 2 * result.seeds if width is None else ceil(result.seeds * (width / seeds.enough) ** 2)
    return min(max(needed, result.seeds + 1), 2 * result.seeds, seeds.most)


def is_enough(result: Result, seeds: Seeds) -> bool:
    """Whether the interval is narrow enough; a point that failed does not get better."""
    if not result.is_ok or seeds.enough is None:
        return True
    width = _relative_half_width(result)
    return width is not None and width <= seeds.enough


def _relative_half_width(result: Result) -> float | None:
    mean = result.speedup or result.step_s
    if mean is None or mean.low is None or mean.high is None:
        return None
    return (mean.high - mean.low) / 2 / mean.mean


Baselines = MutableMapping[tuple[str, int], Found]  # by `Problem.baseline_key` and seed


def evaluate(
    problem: Problem,
    values: Values,
    seeds: Seeds,
    *,
    baselines: Baselines | None = None,
    own: MutableMapping[int, Found] | None = None,
    point: int = 0,
) -> Result:
    """One point in this process, its baseline too unless `baselines` has it already.

    `own`: what the point came to, by seed, so far; it grows.
    The same seeds give every point the same lengths and rewards by rollout. Never raises what a
    point can do wrong: that is its `error`.
    """
    known: Baselines = {} if baselines is None else baselines
    mine: MutableMapping[int, Found] = {} if own is None else own
    place, count = Point(point, values), seeds.least
    while True:
        its = seeds.of(count)
        for seed in its:
            if seed not in mine:
                mine[seed] = run_unit(problem, Unit("point", point, seed, values))
        base = None
        if problem.baseline is not None:
            base = [_baseline(problem, values, seed, known) for seed in its]
        result = summed_up(place, its, [mine[seed] for seed in its], base)
        count = more_seeds(result, seeds)
        if not count:
            return result


def _baseline(problem: Problem, values: Mapping[str, Any], seed: int, known: Baselines) -> Found:
    key = (problem.baseline_key(values), seed)
    if key not in known:
        known[key] = run_unit(problem, Unit("baseline", 0, seed, values))
    return known[key]

"""What a search is after: objectives, as losses, and bounds that its points must keep."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import combinations
from math import isfinite
from typing import NamedTuple

from oppo_sim.analysis.why import plain
from oppo_sim.config import ConfigError
from oppo_sim.config.errors import nearest, short
from oppo_sim.search.result import Result

# How each is read off a result; None where it is not known.
METRICS: dict[str, Callable[[Result], float | None]] = {
    "step_s": lambda result: result.step_s and result.step_s.mean,
    "speedup": lambda result: result.speedup and result.speedup.mean,
    "staleness": lambda result: result.staleness,
    "length_bias": lambda result: None if result.length_bias is None else abs(result.length_bias),
    "kv_peak": lambda result: result.kv_peak_tokens,
}
UNITS = {
    "step_s": " s",
    "speedup": " x",
    "staleness": " versions",
    "length_bias": "",
    "kv_peak": " tokens on one lane",
}
MORE_IS_BETTER = "speedup"
_BOUND = re.compile(r"(\w+)\s*(<=|>=)\s*(\S+)")


class Bound(NamedTuple):
    """A metric that must not be above, or below, a number."""

    metric: str
    is_most: bool
    number: float

    def __str__(self) -> str:
        return f"{self.metric} {'<=' if self.is_most else '>='} {self.number:g}"

    def excess(self, result: Result) -> float:
        """By how much it is broken, relative to it; 0 or less where it is kept."""
        value = _value(self.metric, result)
        over = value - self.number if self.is_most else self.number - value
        return over / (abs(self.number) or 1.0)


class Goals(NamedTuple):
    """The first objective decides which of the best points is the winner."""

    objectives: tuple[str, ...]
    bounds: tuple[Bound, ...]

    @property
    def asked(self) -> list[str]:
        """The metrics that are named, each once."""
        return list(dict.fromkeys([*self.objectives, *(bound.metric for bound in self.bounds)]))

    def losses(self, result: Result) -> list[float]:
        """Of each objective; less is better, and none is negative."""
        values = [(name, _value(name, result)) for name in self.objectives]
        return [1 / value if name == MORE_IS_BETTER else value for name, value in values]

    def missing(self, result: Result) -> str | None:
        """A metric that is asked for and not known of a point."""
        return next((name for name in self.asked if METRICS[name](result) is None), None)

    def keeps_bounds(self, result: Result) -> bool:
        return not self.broken(result)

    def broken(self, result: Result) -> list[Bound]:
        """The bounds that a point does not keep."""
        return [bound for bound in self.bounds if bound.excess(result) > 0]

    def front(self, results: Sequence[Result]) -> list[Result]:
        """Those that keep all bounds and that no other beats in one objective at no loss in others.

        Sorted by the first objective; of equals the first.
        """
        kept = [(self.losses(one), one.point, one) for one in results if self.keeps_bounds(one)]
        kept.sort(key=lambda row: row[:2])
        found: list[tuple[list[float], Result]] = []
        for losses, _, result in kept:
            if not any(_no_worse(other, losses) for other, _ in found):
                found.append((losses, result))
        return [result for _, result in found]

    def is_hopeless(self, result: Result, others: Sequence[Result], margin: float) -> bool:
        """Whether a bound, or another point in every objective, is missed by more than `margin`.

        `others`: on the same seeds.
        """
        if any(bound.excess(result) > margin for bound in self.bounds):
            return True
        own = [loss / (1 + margin) for loss in self.losses(result)]
        return any(
            self.keeps_bounds(other)
            and all(a < b for a, b in zip(self.losses(other), own, strict=True))
            for other in others
        )


def told(metric: str, result: Result, unit: bool = True) -> str:
    """What a point has of a metric: 7.935 s."""
    value = _value(metric, result)
    text = f"{value:,}" if isinstance(value, int) else plain(value, 4)
    return text + UNITS[metric] * unit


def _no_worse(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True))


def _value(metric: str, result: Result) -> float:
    value = METRICS[metric](result)
    assert value is not None
    return value


def read_goals(
    file: str, objectives: Sequence[str], constraints: Sequence[str], has_baseline: bool
) -> Goals:
    """ConfigError names the entry that is none."""
    for name in objectives:
        _check(f"{file}: objectives: {name!r}", name, has_baseline)
    if not objectives or len(set(objectives)) < len(objectives):
        raise ConfigError(
            f"{file}: objectives = {short(list(objectives))}: name one or more of "
            f"{', '.join(METRICS)}, each once"
        )
    bounds = tuple(_bound(file, c, has_baseline) for c in constraints)
    _refuse_contradictions(file, bounds)
    return Goals(tuple(objectives), bounds)


def _refuse_contradictions(file: str, bounds: Sequence[Bound]) -> None:
    """Of each metric at most one bound from above and one from below, with something between."""
    for one, other in combinations(bounds, 2):
        if one.metric != other.metric:
            continue
        where = f"{file}: constraints: {str(one)!r} and {str(other)!r}"
        if one.is_most == other.is_most:
            raise ConfigError(f"{where}: bound the same side; leave one of the two out")
        most, least = (one, other) if one.is_most else (other, one)
        if least.number > most.number:
            raise ConfigError(f"{where}: no value keeps both; change one")


def _bound(file: str, text: str, has_baseline: bool) -> Bound:
    where = f"{file}: constraints: {text!r}"
    found = _BOUND.fullmatch(text.strip())
    try:
        number = float(found[3].replace("_", "")) if found else float("nan")
    except ValueError:
        number = float("nan")
    if found is None or not isfinite(number):
        raise ConfigError(
            f"{where}: must be METRIC <= NUMBER, or METRIC >= NUMBER, such as 'staleness <= 0.5'"
        )
    _check(where, found[1], has_baseline)
    return Bound(found[1], found[2] == "<=", number)


def _check(where: str, name: str, has_baseline: bool) -> None:
    if name not in METRICS:
        raise ConfigError(f"{where}: no such metric; {nearest(name, METRICS)}")
    if name == MORE_IS_BETTER and not has_baseline:
        raise ConfigError(f"{where}: needs a baseline; use step_s, or name one")

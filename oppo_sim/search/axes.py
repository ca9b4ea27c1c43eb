"""An axis of a sweep: a dotted path of the scenario, and its values or the range they lie in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, floor, isfinite, log
from typing import Any

from oppo_sim.config import ConfigError
from oppo_sim.config.errors import short
from oppo_sim.search.problem import SCHEDULE

RANGE = ("low", "high", "log", "count")
MOST_VALUES = 1_000_000  # that a grid takes of a range


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """From `low` to `high`, both included; of whole numbers where both are whole."""

    low: float
    high: float
    log: bool = False
    count: int | None = None  # how many of it a grid takes

    def at(self, share: float) -> float:
        """The value below which that share of the range lies, in [0, 1)."""
        if isinstance(self.low, int) and isinstance(self.high, int):
            return min(self.high, floor(self._between(self.low, self.high + 1, share)))
        return min(self.high, max(self.low, self._between(self.low, self.high, share)))

    def grid(self) -> list[float]:
        """`count` values with equal steps, or ratios; fewer where whole numbers coincide."""
        assert self.count is not None
        shares = [place / (self.count - 1) for place in range(1, self.count - 1)]
        inner = [self._between(self.low, self.high, share) for share in shares]
        if isinstance(self.low, int) and isinstance(self.high, int):
            return list(dict.fromkeys([self.low, *map(round, inner), self.high]))
        return [self.low, *inner, self.high]

    def _between(self, low: float, high: float, share: float) -> float:
        if self.log:
            return exp(log(low) + share * (log(high) - log(low)))
        return low + share * (high - low)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """What is varied; `choices` are a list, or a range."""

    path: str
    choices: tuple[Any, ...] | Range

    def listed(self) -> tuple[Any, ...]:
        """The values of a grid, or, of a range that has no number of them, its two ends."""
        if isinstance(self.choices, Range):
            if self.choices.count is None:
                return (self.choices.low, self.choices.high)
            return tuple(self.choices.grid())
        return self.choices

    def end(self, value: Any) -> str:
        """Whether a number is the smallest or the largest of three and more; else nothing."""
        values = self.listed()
        is_number = all(type(one) in (int, float) for one in values)
        if not is_number or (isinstance(self.choices, tuple) and len(values) < 3):
            return ""
        return {max(values): "the largest", min(values): "the smallest"}.get(value, "")

    def at(self, share: float) -> Any:
        """The value at a share of the axis, in [0, 1): lists are cut into equal parts."""
        if isinstance(self.choices, Range):
            return self.choices.at(share)
        return self.choices[int(share * len(self.choices))]

    def document(self) -> Any:
        """As JSON."""
        if isinstance(self.choices, Range):
            return {name: getattr(self.choices, name) for name in RANGE}
        return list(self.choices)


def read_axes(file: str, table: Mapping[str, Any], method: str) -> tuple[Axis, ...]:
    """The `[axes]` table, whose paths may be dotted keys; ConfigError names the axis."""
    axes: dict[str, Axis] = {}
    for path, given in _leaves(table):
        where = f"{file}: axis {path}"
        if path in axes:
            raise ConfigError(f"{where} is there twice: leave one of the two out")
        axes[path] = Axis(path=path, choices=_choices(where, given, method))
        if path == SCHEDULE:
            _refuse_no_name(where, axes[path].listed())
    if not axes:
        raise ConfigError(f'{file}: axes is empty: add one, such as "schedule.chunk" = [128, 256]')
    _refuse_nested(file, list(axes))
    return tuple(axes.values())


def last_names(paths: tuple[str, ...]) -> dict[str, str]:
    """`chunk` for `schedule.chunk`, where no other axis is called so."""
    names = [path.rpartition(".")[2] for path in paths]
    return {p: n if names.count(n) == 1 else p for n, p in zip(names, paths, strict=True)}


def _leaves(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, given in table.items():
        path = f"{before}.{key}" if before else key
        if isinstance(given, Mapping) and not _is_range(given):
            yield from _leaves(given, path)
        else:
            yield path, given


def _is_range(given: Mapping[str, Any]) -> bool:
    return not given or "low" in given or "high" in given


def _choices(where: str, given: Any, method: str) -> tuple[Any, ...] | Range:
    if isinstance(given, Mapping) and given:
        return _range(where, given, method)
    if not isinstance(given, list):
        raise ConfigError(
            f"{where} = {short(given)}: must be a list of values, or {{ low = ..., high = ... }}"
        )
    if not given:
        raise ConfigError(f"{where} = []: has no values; add some, or leave the axis out")
    seen: dict[str, None] = {}
    for value in given:
        _refuse_no_number(where, value)
        text = _same(value)
        if text in seen:
            raise ConfigError(f"{where}: has {short(value)} twice: leave one of the two out")
        seen[text] = None
    return tuple(given)


def _range(where: str, given: Mapping[str, Any], method: str) -> Range:
    odd = [key for key in given if key not in RANGE]
    if odd:
        raise ConfigError(f"{where}: unknown key {odd[0]!r}; known: {', '.join(RANGE)}")
    for key in ("low", "high"):
        if key not in given:
            raise ConfigError(f"{where}: {key} is missing: a range has low and high")
        if isinstance(given[key], bool) or not isinstance(given[key], int | float):
            raise ConfigError(f"{where}: {key} = {short(given[key])}: must be a number")
        _refuse_no_number(f"{where}: {key}", given[key])
    low, high, is_log = given["low"], given["high"], given.get("log", False)
    if low >= high:
        raise ConfigError(f"{where}: low = {low} and high = {high}: low must be below high")
    if not isinstance(is_log, bool):
        raise ConfigError(f"{where}: log = {short(is_log)}: must be true or false")
    if is_log and low <= 0:
        raise ConfigError(f"{where}: low = {low}: must be above 0 with log = true")
    count = given.get("count")
    if method == "grid":
        if count is None:
            raise ConfigError(
                f"{where}: count is missing: a grid needs to know how many values of the range to "
                "take, at least 2"
            )
        if not isinstance(count, int) or isinstance(count, bool) or count < 2:
            raise ConfigError(
                f"{where}: count = {short(count)}: must be a whole number, at least 2, of values "
                "that a grid takes of the range"
            )
        if count > MOST_VALUES:
            raise ConfigError(f"{where}: count = {short(count)}: must be at most {MOST_VALUES:,}")
    elif count is not None:
        raise ConfigError(f"{where}: count = {short(count)}: only a grid has it; leave it out")
    return Range(low=low, high=high, log=is_log, count=count)


def _same(value: Any) -> str:
    """One text for values that are equal: 1 and 1.0 are one point."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, sort_keys=True, default=str)


def _refuse_no_name(where: str, values: Sequence[Any]) -> None:
    for value in values:
        if not isinstance(value, str):
            raise ConfigError(
                f"{where}, value {short(value)}: must be the name or the file of a schedule, in "
                "quotes"
            )


def _refuse_no_number(where: str, value: Any) -> None:
    """No axis takes NaN or infinity, however deep inside a value."""
    if isinstance(value, float) and not isfinite(value):
        raise ConfigError(f"{where} = {value}: must be a finite number")
    inner = value.values() if isinstance(value, Mapping) else value
    if isinstance(value, Mapping | list):
        for one in inner:
            _refuse_no_number(where, one)


def _refuse_nested(file: str, paths: Sequence[str]) -> None:
    """Two axes must not set the same key, nor one a part of the other's."""
    for path in paths:
        if path == f"{SCHEDULE}.name":
            raise ConfigError(
                f"{file}: axis {path}: name schedules by the axis {SCHEDULE!r}, which takes files "
                "too"
            )
        for other in paths:
            if path != SCHEDULE and other.startswith(f"{path}."):
                raise ConfigError(
                    f"{file}: axis {other}: is a part of axis {path}; leave one of the two out"
                )

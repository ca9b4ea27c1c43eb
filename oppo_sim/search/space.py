"""The axes of a search as Optuna's parameters, and which of its points were there already."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np
from optuna.trial import Trial

from oppo_sim.search.axes import Axis, Range
from oppo_sim.search.problem import Values

MOST_LISTED = 100_000  # points among which the nearest is looked for


class Space:
    """A list of numbers is searched by its order, any other as categories."""

    def __init__(self, axes: Sequence[Axis]) -> None:
        self._axes = axes
        self._lists = {axis.path: _ordered(axis.choices) for axis in axes if _is_listed(axis)}
        self._places = {axis.path: _places(axis) for axis in axes}  # None: not finite
        places = [each for each in self._places.values() if each is not None]
        self.size = prod(map(len, places)) if len(places) == len(axes) else None

    def ask(self, trial: Trial) -> Values:
        """The values of a trial; an index is asked for where they are listed."""
        for axis in self._axes:
            if isinstance(axis.choices, Range):
                _ask_range(trial, axis.path, axis.choices)
            elif _is_numeric(axis.choices):
                trial.suggest_int(axis.path, 0, len(axis.choices) - 1)
            else:
                trial.suggest_categorical(axis.path, range(len(axis.choices)))
        return self.values(trial.params)

    def values(self, params: Mapping[str, Any]) -> Values:
        return {
            axis.path: self._lists[axis.path][params[axis.path]]
            if axis.path in self._lists
            else params[axis.path]
            for axis in self._axes
        }

    def is_whole(self, params: Mapping[str, Any]) -> bool:
        """Whether a trial has been asked for all its values."""
        return all(axis.path in params for axis in self._axes)

    def beginnings(self, count: int, seed: int) -> list[dict[str, Any]]:
        """Parameters that are spread over the space, each part of every axis once."""
        random = np.random.default_rng(seed)
        columns = {
            axis.path: (random.permutation(count) + random.random(count)) / count
            for axis in self._axes
        }
        return [
            self._params({axis.path: axis.at(columns[axis.path][place]) for axis in self._axes})
            for place in range(count)
        ]

    def nearest_new(self, params: Mapping[str, Any], seen: Collection[str]) -> dict[str, Any]:
        """Of a finite space's points that are not seen, the one with the fewest steps from here."""
        best: tuple[int, tuple[int, ...]] | None = None
        here = [params[axis.path] for axis in self._axes]
        for there in product(*(places for places in self._places.values() if places is not None)):
            steps = sum(abs(a - b) for a, b in zip(here, there, strict=True))
            if (best is None or (steps, there) < best) and self._key(there) not in seen:
                best = (steps, there)
        assert best is not None
        return dict(zip(self._places, best[1], strict=True))

    def _key(self, places: Sequence[int]) -> str:
        return key(self.values(dict(zip(self._places, places, strict=True))))

    def _params(self, values: Values) -> dict[str, Any]:
        return {
            path: self._lists[path].index(value) if path in self._lists else value
            for path, value in values.items()
        }


def key(values: Values) -> str:
    """The same for the same point."""
    return json.dumps(values, sort_keys=True)


def _is_listed(axis: Axis) -> bool:
    return not isinstance(axis.choices, Range)


def _places(axis: Axis) -> range | None:
    """The parameters of an axis, where they can be counted."""
    if not isinstance(axis.choices, Range):
        return range(len(axis.choices))
    low, high = axis.choices.low, axis.choices.high
    if isinstance(low, int) and isinstance(high, int):
        return range(low, high + 1)
    return None


def _is_numeric(choices: Sequence[Any]) -> bool:
    return all(type(choice) in (int, float) for choice in choices)


def _ordered(choices: Any) -> list[Any]:
    return sorted(choices) if _is_numeric(choices) else list(choices)


def _ask_range(trial: Trial, path: str, within: Range) -> None:
    if isinstance(within.low, int) and isinstance(within.high, int):
        trial.suggest_int(path, within.low, within.high, log=within.log)
    else:
        trial.suggest_float(path, within.low, within.high, log=within.log)

"""The values of axes tried on their scenario, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oppo_sim.config import ConfigError
from oppo_sim.config.errors import short
from oppo_sim.search.axes import Axis
from oppo_sim.search.problem import Kind, Problem, Values
from oppo_sim.simulate import check

MOST_TRIED = 1000  # values of an axis


def try_values(file: str, problem: Problem, axes: Sequence[Axis]) -> None:
    """ConfigError names the first axis, and the value, that the scenario refuses.

    Each is tried with the first values of the other axes, then with their last; of an axis of more
    than MOST_TRIED values so many are.
    """
    lists = {axis.path: axis.listed() for axis in axes}
    ends = [{path: values[end] for path, values in lists.items()} for end in (0, -1)]
    for path, values in lists.items():
        for value in spread(values):
            mistakes = [_mistake(problem, {**ends[0], path: value})]
            if mistakes[0] is not None:
                mistakes.append(_mistake(problem, {**ends[1], path: value}))
            if None in mistakes:
                continue
            if _mistake(problem, ends[0]) is not None:
                _blame_origin(file, problem, ends[0])
            raise _of_axis(file, path, value, str(mistakes[0]))
    if problem.baseline is not None:
        found = [_mistake(problem, end, "baseline") for end in ends]
        if None not in found:
            raise ConfigError(f"{file}: baseline = {problem.baseline!r}: {found[0]}")


def spread(values: Sequence[Any]) -> Sequence[Any]:
    """All of them, or MOST_TRIED from the first to the last."""
    if len(values) <= MOST_TRIED:
        return values
    return [values[place * (len(values) - 1) // (MOST_TRIED - 1)] for place in range(MOST_TRIED)]


def _blame_origin(file: str, problem: Problem, origin: Values) -> None:
    """The first values of all axes are refused: by the scenario as it is, or from which axis on."""
    mistake = _mistake(problem, {})
    last, values = "", dict[str, Any]()
    for path, value in origin.items():
        before, values[path] = mistake, value
        mistake = _mistake(problem, values)
        if mistake is not None and mistake != before:
            last = path
    assert mistake is not None
    if not last:
        raise ConfigError(f"{file}: {mistake}")
    raise _of_axis(file, last, origin[last], mistake)


def _of_axis(file: str, path: str, value: Any, mistake: str) -> ConfigError:
    return ConfigError(f"{file}: axis {path}, value {short(value)}: {mistake}")


def _mistake(problem: Problem, values: Values, kind: Kind = "point") -> str | None:
    try:
        scenario, schedule = problem.built(kind, values)
        check(scenario, schedule, scenario.steps if problem.steps is None else problem.steps)
    except (ValueError, OverflowError) as error:
        return str(error)
    return None

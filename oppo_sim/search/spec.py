"""A sweep file: which scenario, which axes, which points; checked before anything runs."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationError

from oppo_sim.config import ConfigError, read_text
from oppo_sim.config.errors import explain, short
from oppo_sim.config.fields import Count, Seed, Share, Table
from oppo_sim.search.axes import Axis, read_axes
from oppo_sim.search.design import Design, check_size
from oppo_sim.search.problem import BASELINE, SCHEDULE, Kind, Problem, Values, named_or_at
from oppo_sim.search.result import Seeds
from oppo_sim.simulate import check

NO_BASELINE = "none"
SEARCH = "search"  # the method of what is no sweep
File = TypeVar("File", bound="Common")


class Common(Table):
    """What the files of sweeps and searches say. Paths in them are relative to their folder."""

    scenario: str  # a shipped name, or a file
    about: str = ""
    set: dict[str, Any] = Field(
        default_factory=dict
    )  # keys of the scenario, the same at all points
    schedule: str | None = None  # a name or a file; None: the scenario's, or the axis `schedule`
    baseline: str = BASELINE  # "none": no speed-ups
    steps: Count | None = None  # None: the scenario's
    seed: Seed | None = None  # the first; None: the scenario's
    seeds: Count = 5  # of every point
    enough: Share | None = (
        None  # more seeds until half the interval is below this share of the mean
    )
    max_seeds: Count | None = None  # with `enough`
    axes: dict[str, Any]  # by dotted path: a list, or { low, high, log, count }


class SweepFile(Common):
    """What a sweep file says."""

    method: Literal["grid", "random", "latin"] = "grid"
    points: Count | None = None  # of random and latin
    draw_seed: Seed = 0  # of random and latin


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """A sweep that can run."""

    file: str
    problem: Problem
    axes: tuple[Axis, ...]
    seeds: Seeds
    method: str
    points: int | None = None
    draw_seed: int = 0

    def design(self) -> Design:
        return Design(self.axes, self.method, self.points, self.draw_seed)

    def first(self) -> Values:
        """Its first point; of a search, which has no design, where all axes begin."""
        if self.method == SEARCH:
            return {axis.path: axis.listed()[0] for axis in self.axes}
        return self.design()[0].values


def load_sweep(
    path: str | Path,
    *,
    overrides: Mapping[str, object] | None = None,
    steps: int | None = None,
    seeds: int | None = None,
) -> Sweep:
    """The sweep of a file; `steps` and `seeds` instead of the file's. ConfigError in one line.

    Every value of every axis is tried on the scenario; what two axes together do not allow is left
    for the points to find.
    """
    file, own = str(path), read(path, SweepFile)
    sweep = build(file, own, own.method, overrides=overrides, steps=steps, seeds=seeds)
    check_size(file, sweep.axes, own.method, own.points)
    try_values(sweep)
    return replace(sweep, points=own.points, draw_seed=own.draw_seed)


def read(path: str | Path, kind: type[File]) -> File:
    """What a file says, as its kind has it."""
    file = str(path)
    document = _parse(file)
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        raise explain(file, document, error) from error


def build(
    file: str,
    own: Common,
    method: str,
    *,
    overrides: Mapping[str, object] | None = None,
    steps: int | None = None,
    seeds: int | None = None,
) -> Sweep:
    """The axes of a file on its scenario, not yet tried."""
    folder = Path(file).parent
    axes = read_axes(file, own.axes, method)
    settings = dict(_settings(own.set))
    _refuse_odd(file, own, axes, {**settings, **(overrides or {})})
    try:
        problem = Problem.of(
            named_or_at(own.scenario, folder),
            {**settings, **(overrides or {})},
            schedule=own.schedule,
            baseline=None if own.baseline == NO_BASELINE else own.baseline,
            steps=steps or own.steps,
        )
        problem = replace(problem, schedules=folder)
        first = own.seed if own.seed is not None else problem.document.get("seed", 0)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from error
    return Sweep(
        file=file,
        problem=problem,
        axes=axes,
        seeds=_seeds(file, own, first, seeds or own.seeds),
        method=method,
    )


def _parse(file: str) -> dict[str, Any]:
    text = read_text(Path(file), "sweep")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: is not valid TOML: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: is no sweep: {error}") from error


def _settings(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """By dotted path. A quoted path sets the whole of its table, an unquoted one a key of it."""
    for key, value in table.items():
        path = f"{before}.{key}" if before else key
        if isinstance(value, Mapping) and "." not in key:
            yield from _settings(value, path)
        else:
            yield path, value


def _refuse_odd(
    file: str, own: Common, axes: tuple[Axis, ...], settings: Mapping[str, object]
) -> None:
    """Keys that would be set twice, or to no effect."""
    paths = [axis.path for axis in axes]
    for path in paths:
        if path in settings:
            raise ConfigError(f"{file}: axis {path}: set says it too; leave one of the two out")
    if "seed" in paths:
        raise ConfigError(f"{file}: axis seed: every point has the same; use seed and seeds")
    if "steps" in paths and own.steps is not None:
        raise ConfigError(f"{file}: axis steps: steps = {own.steps} says it too; leave one out")
    if SCHEDULE in paths and own.schedule is not None:
        raise ConfigError(
            f"{file}: axis schedule: schedule = {own.schedule!r} says it too; leave one out"
        )


def _seeds(file: str, own: Common, first: int, least: int) -> Seeds:
    if own.enough is None:
        if own.max_seeds is not None:
            raise ConfigError(
                f"{file}: max_seeds = {own.max_seeds}: is for sweeps that say what is enough; "
                "add enough = 0.02, or leave it out"
            )
        return Seeds(first, least, least)
    if least < 2:
        raise ConfigError(f"{file}: seeds = {least}: enough needs at least 2, for an interval")
    most = 4 * least if own.max_seeds is None else own.max_seeds
    if most < least:
        raise ConfigError(f"{file}: max_seeds = {most}: must be at least seeds = {least}")
    return Seeds(first, least, most, own.enough)


def try_values(sweep: Sweep) -> None:
    """ConfigError names the first axis, and the value, that the scenario refuses.

    Each is tried with the first values of the other axes, then with their last.
    """
    lists = {axis.path: axis.listed() for axis in sweep.axes}
    ends = [{path: values[end] for path, values in lists.items()} for end in (0, -1)]
    for path, values in lists.items():
        for value in values:
            mistakes = [_mistake(sweep.problem, {**ends[0], path: value})]
            if mistakes[0] is not None:
                mistakes.append(_mistake(sweep.problem, {**ends[1], path: value}))
            if None in mistakes:
                continue
            if _mistake(sweep.problem, ends[0]) is not None:
                _blame_origin(sweep, ends[0])
            raise _of_axis(sweep.file, path, value, str(mistakes[0]))
    if sweep.problem.baseline is not None:
        found = [_mistake(sweep.problem, end, "baseline") for end in ends]
        if None not in found:
            raise ConfigError(f"{sweep.file}: baseline = {sweep.problem.baseline!r}: {found[0]}")


def _blame_origin(sweep: Sweep, origin: Values) -> None:
    """The first values of all axes are refused: by the scenario as it is, or from which axis on."""
    mistake = _mistake(sweep.problem, {})
    last, values = "", dict[str, Any]()
    for path, value in origin.items():
        before, values[path] = mistake, value
        mistake = _mistake(sweep.problem, values)
        if mistake is not None and mistake != before:
            last = path
    assert mistake is not None
    if not last:
        raise ConfigError(f"{sweep.file}: {mistake}")
    raise _of_axis(sweep.file, last, origin[last], mistake)


def _of_axis(file: str, path: str, value: Any, mistake: str) -> ConfigError:
    return ConfigError(f"{file}: axis {path}, value {short(value)}: {mistake}")


def _mistake(problem: Problem, values: Values, kind: Kind = "point") -> str | None:
    try:
        scenario, schedule = problem.built(kind, values)
        check(scenario, schedule, scenario.steps if problem.steps is None else problem.steps)
    except (ValueError, OverflowError) as error:
        return str(error)
    return None

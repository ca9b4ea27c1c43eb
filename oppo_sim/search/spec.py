"""A sweep file: which scenario, which axes, which points; checked before anything runs."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationError

from oppo_sim.config import ConfigError, read_text, shipped_scenarios
from oppo_sim.config.errors import explain, short
from oppo_sim.config.fields import Count, Seed, Share, Table
from oppo_sim.search.axes import Axis, read_axes
from oppo_sim.search.design import Design, check_size
from oppo_sim.search.problem import BASELINE, SCHEDULE, Problem, Values, named_or_at
from oppo_sim.search.result import Seeds
from oppo_sim.search.tries import spread, try_values

NO_BASELINE = "none"
SEARCH = "search"  # the method of what is no sweep
MOST_RUNS = 20_000_000  # of a sweep
FIRST = 100  # points of which one is likely to be possible
File = TypeVar("File", bound="Common")


class Common(Table):
    """What the files of sweeps and searches say.

    Paths in them are relative to their folder; those of a scenario's keys to that of its file, if
    it has one of its own.
    """

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

    def first(self) -> Iterator[Values]:
        """Its first points; of a search, which has no design, where all axes begin and end."""
        if self.method == SEARCH:
            for end in (0, -1):
                yield {axis.path: axis.listed()[end] for axis in self.axes}
            return
        design = self.design()
        for place in range(min(FIRST, len(design))):
            yield design[place].values

    def some(self) -> Iterator[Values]:
        """All its points; of very many some, from the first to the last; of a search `first`."""
        if self.method == SEARCH:
            yield from self.first()
            return
        design = self.design()
        for place in spread(range(len(design))):
            yield design[place].values


def load_sweep(
    path: str | Path,
    *,
    overrides: Mapping[str, object] | None = None,
    steps: int | None = None,
    seeds: int | None = None,
) -> Sweep:
    """The sweep of a file; `steps` and `seeds` instead of the file's. ConfigError in one line.

    The values of every axis are tried on the scenario; what two axes together do not allow is left
    for the points to find.
    """
    file, own = str(path), read(path, SweepFile)
    sweep = build(file, own, own.method, overrides=overrides, steps=steps, seeds=seeds)
    check_size(file, sweep.axes, own.method, own.points)
    sweep = replace(sweep, points=own.points, draw_seed=own.draw_seed)
    _refuse_endless(sweep)
    try_values(file, sweep.problem, sweep.axes)
    return sweep


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
    _refuse_odd(file, own, axes, {**settings, **(overrides or {})}, steps)
    try:
        problem = Problem.of(
            named_or_at(own.scenario, folder),
            {**settings, **(overrides or {})},
            schedule=own.schedule,
            baseline=None if own.baseline == NO_BASELINE else own.baseline,
            steps=steps or own.steps,
        )
        own_folder = folder if own.scenario in shipped_scenarios() else problem.folder
        problem = replace(problem, schedules=folder, folder=own_folder)
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
    file: str,
    own: Common,
    axes: tuple[Axis, ...],
    settings: Mapping[str, object],
    steps: int | None,
) -> None:
    """Keys that would be set twice, or to no effect."""
    paths = [axis.path for axis in axes]
    for path in paths:
        for key in settings:
            if path != SCHEDULE and f"{key}.".startswith(f"{path}."):
                said = "set says it too" if key == path else f"it replaces {key}, which is set"
                raise ConfigError(f"{file}: axis {path}: {said}; leave one of the two out")
    if "seed" in paths:
        raise ConfigError(f"{file}: axis seed: every point has the same; use seed and seeds")
    steps = steps or own.steps
    if "steps" in paths and steps is not None:
        raise ConfigError(f"{file}: axis steps: steps = {steps} says it too; leave one out")
    if SCHEDULE in paths and own.schedule is not None:
        raise ConfigError(
            f"{file}: axis schedule: schedule = {own.schedule!r} says it too; leave one out"
        )
    _refuse_deaf(file, own, settings, SCHEDULE in paths)


def _refuse_deaf(file: str, own: Common, settings: Mapping[str, object], is_named: bool) -> None:
    """Settings of the scenario that the file's own keys would outdo."""
    for key in ("steps", "seed"):
        given = getattr(own, key)
        if key in settings and given is not None:
            raise ConfigError(
                f"{file}: set {key} = {short(settings[key])}: {key} = {given} of the file counts "
                "instead; leave one of the two out"
            )
    if SCHEDULE in settings and not isinstance(settings[SCHEDULE], Mapping):
        raise ConfigError(
            f"{file}: set {SCHEDULE} = {short(settings[SCHEDULE])}: is the table of its choices; "
            f'name one by schedule = "oppo" above all tables of the file'
        )
    if f"{SCHEDULE}.name" in settings and (is_named or own.schedule is not None):
        other = f"the axis {SCHEDULE}" if is_named else f"{SCHEDULE} = {own.schedule!r}"
        raise ConfigError(
            f"{file}: set {SCHEDULE}.name = {short(settings[f'{SCHEDULE}.name'])}: {other} counts "
            "instead; leave one of the two out"
        )


def _refuse_endless(sweep: Sweep) -> None:
    points = sweep.points or len(sweep.design())  # a grid has no number of them
    seeds = max(sweep.seeds.least, sweep.seeds.most)
    if points * seeds > MOST_RUNS:
        raise ConfigError(
            f"{sweep.file}: {points:,} points of up to {seeds:,} seeds are {points * seeds:,} "
            f"runs, of which a sweep has at most {MOST_RUNS:,}; take fewer seeds, or fewer points"
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

"""What all points share, and how a point becomes a scenario and a schedule."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from oppo_sim.config import (
    Scenario,
    load_schedule,
    parse_scenario,
    read_scenario,
    text_of,
    with_value,
)
from oppo_sim.policies import Schedule

SCHEDULE = "schedule"  # the axis whose values are names or files of whole schedules
BASELINE = "trl"
# What a step trains on: the baseline's too. Every other choice of a schedule is the point's alone.
SHARED = ("schedule.batch", "schedule.group")

Values = Mapping[str, Any]  # by dotted path, what an axis has at a point
Kind = Literal["point", "baseline"]


class Point(NamedTuple):
    """A place in the space of the axes."""

    id: int
    values: Values


class Unit(NamedTuple):
    """One run: of a point or of a baseline, with one seed. `id`: the point's, or the baseline's."""

    kind: Kind
    id: int
    seed: int
    values: Values


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A scenario, unchecked as its file says it, and what is run on it; it goes to every worker."""

    document: Mapping[str, Any]
    file: str  # the scenario's, as errors name it
    folder: Path  # what the paths in the scenario are relative to
    schedule: str | None = None  # of points without the axis `schedule`; None: the scenario's
    baseline: str | None = BASELINE
    steps: int | None = None  # None: the scenario's
    schedules: Path = Path()  # what paths of schedule files are relative to
    keep: Path | None = None  # where each unit leaves a run folder
    sets: Mapping[str, str] = field(default_factory=dict)  # keys of it that are not the file's

    @classmethod
    def of(
        cls,
        scenario: str | Path,
        overrides: Values | None = None,
        *,
        schedule: str | None = None,
        baseline: str | None = BASELINE,
        steps: int | None = None,
    ) -> Self:
        """The problem of a scenario by its name or file, with keys set by their dotted path."""
        document, file, folder = read_scenario(scenario)
        for path, value in (overrides or {}).items():
            document = with_value(document, path, value)
        return cls(
            document=document,
            file=file,
            folder=folder,
            schedule=schedule,
            baseline=baseline,
            steps=steps,
            sets={path: text_of(value) for path, value in (overrides or {}).items()},
        )

    def scenario(self, values: Values) -> Scenario:
        """The scenario at a point; ConfigError where it cannot be."""
        document: Mapping[str, Any] = self.document
        changed = dict(self.sets)
        for path, value in values.items():
            if path != SCHEDULE:
                document = with_value(document, path, value)
                changed[path] = text_of(value)
        return parse_scenario(document, self.file, self.folder, changed)

    def built(self, kind: Kind, values: Values) -> tuple[Scenario, Schedule]:
        """What a unit of that kind runs."""
        if kind == "baseline":
            assert self.baseline is not None
            scenario = self.scenario(self.shared(values))
            return scenario, self._named(self.baseline, scenario)
        scenario = self.scenario(values)
        name = values.get(SCHEDULE, self.schedule)
        return scenario, scenario.schedule() if name is None else self._named(name, scenario)

    def shared(self, values: Values) -> Values:
        """Those that the baseline has too: all but the choices of the point's schedule."""
        return {path: value for path, value in values.items() if is_shared(path)}

    def baseline_key(self, values: Values) -> str:
        """The same for points that have a baseline in common."""
        return json.dumps(self.shared(values), sort_keys=True)

    def _named(self, name: str, scenario: Scenario) -> Schedule:
        return load_schedule(named_or_at(name, self.schedules), scenario)


def is_shared(path: str) -> bool:
    """Whether an axis is the baseline's too."""
    return path in SHARED or not (path == SCHEDULE or path.startswith(f"{SCHEDULE}."))


def named_or_at(name: str, folder: Path) -> str:
    """A name as it is; the path of a file from that folder."""
    is_path = "/" in name or name.lower().endswith(".toml")
    return str(folder / name) if is_path else name

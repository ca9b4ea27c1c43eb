"""The best point as a schedule file, and what else of it there is to set."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oppo_sim.analysis.documents import schedule_document
from oppo_sim.config import text_of
from oppo_sim.policies import CATALOG
from oppo_sim.search.problem import SCHEDULE, SHARED, Problem, Values, is_shared, named_or_at

WINNER = "winner.toml"
_PREFIX = f"{SCHEDULE}."
UNKNOWN = "-"


def schedule_file(problem: Problem, values: Values, name: str, about: str) -> str:
    """A schedule file that `run`, `compare`, `train` and `validate` take, as TOML.

    It says every axis in which the point's schedule is not that of the catalogue. Batch and group
    are the scenario's, unless they were searched. What the scenario has to be given is a comment.
    """
    scenario, schedule = problem.built("point", values)
    base = _base(problem, values) or scenario.defaults.name
    own, plain = schedule_document(schedule), schedule_document(CATALOG[base])
    asked = [
        path.removeprefix(_PREFIX).split(".")[0] for path in values if path.startswith(_PREFIX)
    ]
    taken = {
        axis: value
        for axis, value in own.items()
        if axis != "name"
        and value is not None
        and (axis in asked or (value != plain[axis] and f"{_PREFIX}{axis}" not in SHARED))
    }
    rows = {"base": base, "name": name, "about": about, **taken}
    text = "".join(f"{key} = {_toml(value)}\n" for key, value in rows.items())
    if given := sets(problem, values):
        options = " ".join(f"--set '{' '.join(text.split())}'" for text in given)
        text += f"# What the scenario needs, for a baseline too: {options}\n"
    return text


def sets(problem: Problem, values: Values) -> list[str]:
    """What a scenario has to be given for the point, as KEY=VALUE.

    Its schedule is in the file; batch and group are here too, for the baseline has the same.
    """
    own = {path: text_of(value) for path, value in values.items() if path != SCHEDULE}
    rest = {**problem.sets, **own}
    return [f"{path}={text}" for path, text in rest.items() if is_shared(path)]


def as_it_stands(problem: Problem, path: str) -> str:
    """What the scenario or its schedule has in place of an axis; of a policy its name."""
    scenario, schedule = problem.built("point", {})
    if path == SCHEDULE:
        return schedule.name
    there: Any = scenario.document()
    if path.startswith(_PREFIX):
        there = {SCHEDULE: schedule_document(schedule)}
    for key in path.split("."):
        if not isinstance(there, Mapping) or key not in there:
            return UNKNOWN
        there = there[key]
    if isinstance(there, Mapping) and "policy" in there:
        return str(there["policy"])
    return UNKNOWN if there is None else text_of(there)


def _base(problem: Problem, values: Values) -> str | None:
    """The name in the catalogue of what the point's schedule is made of."""
    name: str | None = values.get(SCHEDULE, problem.schedule)
    if name is None or name in CATALOG:
        return name
    file = Path(named_or_at(name, problem.schedules))
    base = tomllib.loads(file.read_text(encoding="utf-8-sig"))["base"]
    return str(base)


def _toml(value: Any) -> str:
    match value:
        case Mapping():
            given = {key: inner for key, inner in value.items() if inner is not None}
            return f"{{ {', '.join(f'{k} = {_toml(v)}' for k, v in given.items())} }}"
        case list() | tuple():
            return f"[{', '.join(map(_toml, value))}]"
        case str():
            return json.dumps(value, ensure_ascii=False)
    return text_of(value)

"""Scenarios and schedules from TOML files, or by the name of a shipped one."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from oppo_sim.config.errors import ConfigError, blaming, explain, nearest
from oppo_sim.config.scenario import Scenario
from oppo_sim.config.schedules import ScheduleFile, compose
from oppo_sim.policies import CATALOG, Schedule


def shipped_scenarios() -> tuple[str, ...]:
    """The names that `load_scenario` takes, in alphabetical order."""
    return tuple(sorted(_shelf()))


def load_scenario(
    name_or_path: str | Path, overrides: Mapping[str, object] | None = None
) -> Scenario:
    """A shipped scenario by name, or the one in a TOML file.

    `overrides` sets keys by their dotted path before anything is checked; a text is read as a TOML
    value if it is one: {"workload.max_response_tokens": "1024"}. ConfigError, in one line.
    """
    document, file, folder = read_scenario(name_or_path)
    for path, value in (overrides or {}).items():
        document = with_value(document, path, value_of(value))
    changed = {path: text_of(value) for path, value in (overrides or {}).items()}
    return parse_scenario(document, file, folder, changed)


def read_scenario(name_or_path: str | Path) -> tuple[dict[str, Any], str, Path]:
    """What `parse_scenario` takes: the document, unchecked, its file's name, and its folder."""
    name = str(name_or_path)
    shelf = _shelf()
    if name in shelf:
        return _parse(name, shelf[name].read_text(encoding="utf-8")), name, Path()
    if not _is_path(name_or_path):
        raise ConfigError(
            f"no scenario is called {name!r}; {nearest(name, shipped_scenarios())}; "
            "or give the path of a TOML file"
        )
    return _parse(name, read_text(Path(name), "scenario")), name, Path(name).parent


def scenario_path(name_or_path: str | Path) -> Path:
    """The file of a shipped scenario, or the one whose path that is."""
    shelf = _shelf()
    return Path(str(shelf.get(str(name_or_path), name_or_path)))


def parse_scenario(
    document: Mapping[str, Any],
    file: str = "scenario",
    folder: Path = Path(),
    changed: Mapping[str, str] = MappingProxyType({}),
) -> Scenario:
    """A scenario from what its file says; `file` is how errors name it.

    `changed` says which keys of the document are not the file's.
    """
    try:
        scenario = Scenario.model_validate(document)
    except ValidationError as error:
        raise explain(file, document, error) from error
    scenario = scenario.read_from(file, folder, changed)
    with blaming(file, "schedule"):
        scenario.schedule()
    return scenario


def load_schedule(name_or_path: str | Path, scenario: Scenario) -> Schedule:
    """A schedule of the catalogue by name, or the one in a TOML file, as it runs on `scenario`.

    A file that is not here is looked for beside the scenario's.
    """
    name = str(name_or_path)
    if name in CATALOG:
        return scenario.schedule(name)
    if not _is_path(name_or_path):
        raise ConfigError(
            f"no schedule is called {name!r}; {nearest(name, CATALOG)}; "
            "or give the path of a TOML file"
        )
    beside = scenario.folder / name
    file = beside if beside.is_file() and not Path(name).exists() else Path(name)
    document = _parse(name, read_text(file, "schedule"))
    try:
        own = ScheduleFile.model_validate(document)
    except ValidationError as error:
        raise explain(name, document, error) from error
    with blaming(name, f"on {scenario.name}"):
        base = CATALOG[own.base]
        return compose(base, scenario.defaults, own.axes(), own.name or Path(name).stem)


def load_schedules(names: str | None, scenario: Scenario) -> list[Schedule]:
    """Those of a list "A,B,C"; without one those that the scenario's `[real]` table names."""
    if names is not None:
        return [load_schedule(name, scenario) for name in names.split(",")]
    own = () if scenario.real is None else scenario.real.schedules
    return [
        load_schedule(scenario.folder / name if _is_path(name) else name, scenario) for name in own
    ]


def _shelf() -> dict[str, Traversable]:
    folder = files("oppo_sim") / "data" / "scenarios"
    return {
        entry.name.removesuffix(".toml"): entry
        for entry in folder.iterdir()
        if entry.name.endswith(".toml")
    }


def _is_path(name: str | Path) -> bool:
    return isinstance(name, Path) or name.lower().endswith(".toml") or "/" in name


def read_text(path: Path, kind: str) -> str:
    """A file that a user names; ConfigError says what kind of file cannot be read, and why."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: the {kind} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text; save it as UTF-8") from error


def _parse(file: str, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: is not valid TOML: {error}") from error
    except ValueError as error:
        raise ConfigError(f"{file}: a number has thousands of digits; correct it") from error
    except RecursionError as error:
        raise ConfigError(f"{file}: tables or lists are nested too deeply") from error


def with_value(document: Mapping[str, Any], path: str, value: object) -> dict[str, Any]:
    """A copy of the document with the key at that dotted path set."""
    key, _, rest = path.partition(".")
    if not rest:
        return {**document, key: value}
    inner = document.get(key, {})
    if not isinstance(inner, Mapping):
        inner = {}  # a shorthand makes way for the table that replaces it
    return {**document, key: with_value(inner, rest, value)}


def value_of(value: object) -> object:
    """A text as the TOML value that it is, where it is one; anything else as it is."""
    if not isinstance(value, str):
        return value
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):  # not TOML, or nothing that TOML can mean: a text
        return value


def text_of(value: object) -> str:
    """What `value_of` reads as the value; a text as it is."""
    return value if isinstance(value, str) else _toml(value)


def _toml(value: object) -> str:
    match value:
        case Mapping():
            return f"{{ {', '.join(f'{key} = {_toml(inner)}' for key, inner in value.items())} }}"
        case list() | tuple():
            return f"[{', '.join(map(_toml, value))}]"
        case str() | bool():
            return json.dumps(value)
        case _:
            return str(value)

"""What was set beside a scenario's file, in words and as options of a command."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

SHOWN = 40  # characters of a value


def called(scenario: object, sets: Mapping[str, str]) -> str:
    """A scenario's name with what was changed: `tiny with workload.prompt_tokens = 30`."""
    return f"{scenario} with {_listed(sets)}" if sets else str(scenario)


def assumed(sets: Mapping[str, str]) -> list[str]:
    """What joins the scenario's assumptions, which were written for the values before."""
    if not sets:
        return []
    return [f"Changed by --set: {_listed(sets)}. What is assumed of that above may no longer hold."]


def options(sets: Mapping[str, str]) -> str:
    """For a shell, each with a space before it."""
    return "".join(f" --set {shlex.quote(f'{key}={value}')}" for key, value in sets.items())


def _listed(sets: Mapping[str, str]) -> str:
    pairs = [f"{key} = {_short(value)}" for key, value in sets.items()]
    *rest, last = pairs
    return f"{', '.join(rest)} and {last}" if rest else last


def _short(value: str) -> str:
    return value if len(value) <= SHOWN else f"{value[: SHOWN - 3]}..."

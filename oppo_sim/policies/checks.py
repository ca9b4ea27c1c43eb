"""Checks of a policy's numbers; an error names the field, the value and what is allowed."""

from __future__ import annotations

import math


def whole(field: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{field} = {value!r}: must be a whole number")


def at_least(field: str, value: int, least: int) -> None:
    whole(field, value)
    if value < least:
        raise ValueError(f"{field} = {value}: must be at least {least}")


def finite(field: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{field} = {value!r}: must be a finite number")


def one_of(field: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{field} = {value!r}: must be one of {', '.join(map(repr, allowed))}")

"""Refuses values that no cost, rate or shape can have: field, value, what is allowed."""

from __future__ import annotations

import math
from typing import cast

LARGEST = (1 << 63) - 1  # of TOML; products of a few of them are still finite as a float


def finite(owner: str, **values: object) -> None:
    for name, value in values.items():
        if not _is_finite(value):
            raise ValueError(f"{owner}.{name} is {value!r}; it must be a finite number")


def not_negative(owner: str, **values: object) -> None:
    """Finite numbers, zero allowed."""
    for name, value in values.items():
        if not (_is_finite(value) and cast(float, value) >= 0):
            raise ValueError(f"{owner}.{name} is {value!r}; it must be a finite number, at least 0")


def positive(owner: str, **values: object) -> None:
    """Finite numbers above zero."""
    for name, value in values.items():
        if not (_is_finite(value) and cast(float, value) > 0):
            raise ValueError(f"{owner}.{name} is {value!r}; it must be a finite number above 0")


def within(owner: str, name: str, value: float, least: float, most: float, unit: str) -> None:
    """Where no device is: a number in another unit, most likely."""
    if not least <= value <= most:
        raise ValueError(
            f"{owner}.{name} is {value!r}; it must be from {least:.0e} to {most:.0e}, in {unit}"
        )


def share(owner: str, **values: object) -> None:
    """Numbers in (0, 1]: efficiencies."""
    for name, value in values.items():
        if not (_is_finite(value) and 0 < cast(float, value) <= 1):
            raise ValueError(f"{owner}.{name} is {value!r}; it must be above 0 and at most 1")


def count(owner: str, least: int, **values: object) -> None:
    """Whole numbers, `least` or more."""
    for name, value in values.items():
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not (whole and cast(int, value) >= least):
            raise ValueError(
                f"{owner}.{name} is {value!r}; it must be a whole number, at least {least}"
            )
        if cast(int, value) > LARGEST:
            raise ValueError(f"{owner}.{name} is too large; it must be at most {LARGEST}")


def one_of(owner: str, allowed: tuple[str, ...], **values: object) -> None:
    for name, value in values.items():
        if value not in allowed:
            raise ValueError(f"{owner}.{name} is {value!r}; it must be one of {', '.join(allowed)}")


def truth(owner: str, **values: object) -> None:
    for name, value in values.items():
        if not isinstance(value, bool):
            raise ValueError(f"{owner}.{name} is {value!r}; it must be true or false")


def at_least_one(owner: str, **values: tuple[object, ...]) -> None:
    for name, value in values.items():
        if not value:
            raise ValueError(f"{owner}.{name} is empty; it must have at least one entry")


def _is_finite(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        return number and math.isfinite(cast(float, value))
    except OverflowError:  # an int beyond all floats
        return False

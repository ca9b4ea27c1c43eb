"""Checks of a policy and its numbers; an error names the field, the value and what is allowed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from inspect import signature
from operator import index


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


def policy(field: str, value: object, method: str, numbers: Mapping[str, str]) -> None:
    """ValueError unless it has the method and the whole numbers that its protocol names.

    `numbers`: what each of them says.
    """
    name = type(value).__name__
    if isinstance(value, type):
        name = value.__name__
        raise ValueError(f"{field} = {name} is a class: give an object of it, such as {name}()")
    if not callable(getattr(value, method, None)):
        shown = name if type(value).__repr__ is object.__repr__ else repr(value)
        raise ValueError(
            f"{field} = {shown}: must be a whole number, or a policy with a method "
            f"{method}(self, seen)"
        )
    if not _takes_one(getattr(value, method)):
        raise ValueError(f"{name}.{method}: must take one argument, as in {method}(self, seen)")
    for number, meaning in numbers.items():
        if not hasattr(value, number):
            raise ValueError(
                f"{field}: {name} has no attribute {number}: add a whole number, {meaning}"
            )
        at_least(f"{name}.{number}", getattr(value, number), 0)


def chosen(policy: object, method: str, value: object, least: int, most: int | None) -> int:
    """What the policy's method returned, as an int; ValueError names both if it is none."""
    try:
        number = index(value)  # type: ignore[arg-type]  # numpy's numbers, too
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or number < least or (most is not None and number > most):
        called = f"{type(policy).__name__}.{method}"
        allowed = (
            f", at least {least}, or None" if most is None else f" from {least} to most = {most}"
        )
        raise ValueError(f"{called} returned {value!r}: must be a whole number{allowed}")
    return number


def _takes_one(method: object) -> bool:
    try:
        signature(method).bind(None)  # type: ignore[arg-type]
    except TypeError:
        return False
    except ValueError:  # a built-in that does not say what it takes
        return True
    return True

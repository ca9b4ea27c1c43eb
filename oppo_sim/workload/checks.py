"""The two checks that a workload's numbers pass, with errors that name field, value and limits."""

import math

import numpy as np


def whole(field: str, value: object, least: int = 1, most: int | None = None) -> int:
    """`value` as an int; ValueError unless it is a whole number in [least, most]."""
    allowed = f">= {least}" if most is None else f"from {least} to {most}"
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        number = int(value)
        if number >= least and (most is None or number <= most):
            return number
    raise ValueError(f"{field} must be a whole number {allowed}, not {value!r}")


def finite(field: str, value: object, least: float = -math.inf, above: float = -math.inf) -> float:
    """`value` as a float; ValueError unless it is finite, >= least and > above."""
    if isinstance(value, int | float | np.number) and not isinstance(value, bool):
        number = float(value)
        if math.isfinite(number) and number >= least and number > above:
            return number
    limits = [f" >= {least:g}"] * (least > -math.inf) + [f" > {above:g}"] * (above > -math.inf)
    raise ValueError(f"{field} must be a finite number{''.join(limits)}, not {value!r}")

"""Rows of a run folder read strictly: JSON whose values are of the types that the schema has."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from oppo_sim.records import Span, StepRecord, span_from_row, step_from_row

Kind = tuple[Callable[[Any], bool], str]  # whether a JSON value is of it, and what it is called
MOST = 1e20  # of any number: a seed has 64 bits, and no run takes as many seconds
STAGES = ("taken_s", "scored_s", "train_start_s", "train_end_s", "end_s")
LISTS = ("tokens", "staleness", "deferrals", "rewards")  # as long as `trained`


def from_json(text: bytes) -> dict[str, Any]:
    """An object; ValueError for what is none."""
    try:
        row = json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(row, dict):
        raise ValueError("not an object")
    return row


def step_of(text: bytes) -> StepRecord:
    """The step of a line; ValueError says what is wrong with it."""
    row = from_json(text)
    refuse_other_kinds(row, STEP)
    record = step_from_row(row)
    if not record.trained or any(len(row[name]) != len(record.trained) for name in LISTS):
        raise ValueError(f"trained, {', '.join(LISTS)} must be lists of one length, not empty")
    times = [getattr(record, name) for name in STAGES]
    if times != sorted(times) or record.start_s > record.end_s:
        raise ValueError(f"start_s, {', '.join(STAGES)} are not in order")
    return record


def span_of(text: bytes) -> Span:
    """The span of a line; ValueError says what is wrong with it."""
    row = from_json(text)
    refuse_other_kinds(row, SPAN)
    span = span_from_row(row)
    if span.start_s > span.end_s:
        raise ValueError("start_s is after end_s")
    return span


def kinds_of(record: type) -> dict[str, Kind]:
    """The kind of each field of a record."""
    return {name: KINDS[hint] for name, hint in get_type_hints(record).items()}


def refuse_other_kinds(row: Mapping[str, Any], kinds: Mapping[str, Kind]) -> None:
    """ValueError names the first field whose value is of another kind."""
    for name, (is_right, words) in kinds.items():
        if name in row and not is_right(row[name]):
            shown = json.dumps(row[name], default=str)
            shown = shown if len(shown) <= 40 else f"{shown[:37]}..."
            raise ValueError(f"{name} is {shown}: must be {words}")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def _all(value: Any, *types: type) -> bool:
    """Whether it is a list of nothing else."""
    return isinstance(value, list) and set(map(type, value)) <= set(types)


def _numbers(value: Any, *types: type) -> bool:
    return _all(value, *types) and (not value or (min(value) > -MOST and max(value) < MOST))


def _is_read(value: Any) -> bool:
    """[lane, seconds]."""
    return (
        isinstance(value, list)
        and len(value) == 2
        and isinstance(value[0], str)
        and _numbers(value[1:], int, float)
    )


KINDS: dict[object, Kind] = {
    int: (lambda v: _numbers([v], int), "a whole number"),
    float: (lambda v: _numbers([v], int, float), "a number"),
    str: (lambda v: isinstance(v, str), "a text"),
    bool: (lambda v: isinstance(v, bool), "true or false"),
    int | None: (lambda v: v is None or _numbers([v], int), "a whole number or null"),
    tuple[int, ...]: (lambda v: _numbers(v, int), "a list of whole numbers"),
    tuple[float, ...]: (lambda v: _numbers(v, int, float), "a list of numbers"),
    tuple[str, ...]: (lambda v: _all(v, str), "a list of texts"),
    tuple[tuple[str, float], ...]: (
        lambda v: isinstance(v, list) and all(map(_is_read, v)),
        "a list of [lane, seconds]",
    ),
    Mapping[str, float]: (
        lambda v: isinstance(v, dict) and _numbers(list(v.values()), int, float),
        "an object of numbers",
    ),
    Mapping[str, str]: (
        lambda v: isinstance(v, dict) and _all(list(v.values()), str),
        "an object of texts",
    ),
    Mapping[str, Any]: (lambda v: isinstance(v, dict), "an object"),
}
STEP, SPAN = kinds_of(StepRecord), kinds_of(Span)

"""A user's mistake as one line: the file, the field, the value, what is allowed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from oppo_sim.config.bounds import MOST


class ConfigError(ValueError):
    """A scenario or schedule that cannot be used, in one line that names the remedy."""


def nearest(word: str, known: Collection[str]) -> str:
    """The end of an error about an unknown word: the nearest right one, and all of them."""
    by_lower = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), list(by_lower), n=1, cutoff=0.5)
    hint = f"did you mean {by_lower[close[0]]!r}? " if close else ""
    return f"{hint}known: {', '.join(known)}"


@contextmanager
def blaming(file: str, field: str, folder: Path = Path()) -> Iterator[None]:
    """Turn a ValueError of the layers below or above into a ConfigError about that field.

    `folder`: what a path in the field is relative to.
    """
    try:
        yield
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"{file}: {field}: {error}{_where(error, folder)}") from error


def _where(error: BaseException | None, folder: Path) -> str:
    """Where a file was looked for, if the error is of one that is not there."""
    while error is not None and not isinstance(error, FileNotFoundError):
        error = error.__cause__
    if error is None or folder == Path() or not Path(error.filename).is_relative_to(folder):
        return ""
    return f"; paths are relative to the folder of the scenario's file, {folder}"


def explain(file: str, document: Mapping[str, Any], error: ValidationError) -> ConfigError:
    """The first mistake that pydantic found in `document`."""
    mistakes = error.errors(include_url=False)
    first = min(mistakes, key=lambda mistake: mistake["type"] != "unknown_key")
    field = _field(document, first["loc"], first["type"] == "missing")
    return ConfigError(f"{file}: {_line(field, first)}")


_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "above"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "below"),
}
_KINDS = {
    "finite_number": "must be a finite number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "string_type": "must be a text in quotes",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "model_type": "must be a table",
    "dict_type": "must be a table",
    "model_attributes_type": "must be a table",
}


def _line(field: str, mistake: ErrorDetails) -> str:
    kind, context = mistake["type"], mistake.get("ctx", {})
    value = short(mistake["input"])
    if kind == "unknown_key":
        return f"{field}: {mistake['msg']}" if field else mistake["msg"]
    if kind == "missing":
        return f"{field} is missing: add it"
    if kind == "value_error":
        text = str(context["error"])
        if text.startswith("="):
            return f"{field} {text}"
        return f"{field}{text}" if text.startswith("[") else f"{field}: {text}".lstrip(": ")
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        return f"{field} = {value}: must be {words} {_bound(context[key])}"
    if kind == "float_type" and _is_whole(mistake["input"]):  # one that no float can hold
        words = f"at most {MOST:,}" if mistake["input"] > 0 else f"at least {-MOST:,}"
        return f"{field} = {value}: must be {words}"
    if kind == "literal_error":
        return f"{field} = {value}: must be one of {context['expected']}"
    if kind == "union_tag_not_found":
        key = context["discriminator"].strip("'")
        return f"{field}.{key} is missing: add it, to say which kind of {field} it is"
    if kind == "union_tag_invalid":
        allowed = [tag.strip("'") for tag in context["expected_tags"].split(", ")]
        key = context["discriminator"].strip("'")
        return f"{field}.{key} = {short(context['tag'])}: {nearest(context['tag'], allowed)}"
    return f"{field} = {value}: {_KINDS.get(kind, mistake['msg'])}"


def _field(document: object, path: tuple[int | str, ...], is_missing: bool) -> str:
    """The dotted path of a mistake in the document, without the tags that pydantic puts in."""
    name = ""
    for place, key in enumerate(path):
        if isinstance(document, Mapping):
            if key in document:
                document = document[key]
            elif place < len(path) - 1 or not is_missing:
                continue  # the tag of a union
            name += f".{key}" if name else str(key)
        elif isinstance(document, list) and isinstance(key, int):
            document = document[key]
            name += f"[{key}]"
    return name


def _bound(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else f"{value:g}"


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def short(value: object) -> str:
    """A value as an error shows it, whatever its size."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no whole number of more than 4300 digits
        return "a number of thousands of digits"
    return text if len(text) <= 60 else f"{text[:57]}..."

"""A user's own card, model or table by the path of its file: every mistake names the file."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from oppo_sim.costs.cards import Card, card, model, model_names, parse_card, parse_model
from oppo_sim.costs.huggingface import shape_of
from oppo_sim.costs.models import ModelShape

T = TypeVar("T")


def card_at(name: str, folder: Path = Path()) -> Card:
    """A shipped card by name, or the one in a TOML file; `folder` is what its path is relative to.

    ValueError for a name that is not known and a file that cannot be used.
    """
    if not is_path(name):
        return _or_path(card, name, "TOML file with its keys: my_card.toml")
    file = folder / name
    return _named(file, lambda: parse_card(file.stem, _toml(file)))


def model_at(name: str, folder: Path = Path()) -> ModelShape:
    """A shipped model by name, a Hugging Face config.json, or a TOML file as the shipped ones."""
    if not is_path(name):
        return _or_path(model, name, "config.json")
    file = folder / name
    shipped = [known for known in model_names() if file.name.lower().startswith(known.lower())]
    if shipped and not file.exists():  # a name of the hub, most likely
        raise ValueError(f"{file}: no such file; did you mean {shipped[0]!r}, which is shipped?")
    if file.is_dir():
        file = file / "config.json"
    if file.suffix.lower() == ".toml":
        return _named(file, lambda: parse_model(file.stem, _toml(file)))
    called = file.parent.resolve().name if file.name == "config.json" else file.stem
    return _named(file, lambda: shape_of(called, _json(file)))


def kind_of(name: str) -> str:
    """Whether a path leads to a "card" or to a "model": a TOML file of a model has its layers."""
    file = Path(name)
    if file.suffix.lower() != ".toml":
        return "model"
    return "model" if "layers" in _named(file, lambda: _toml(file)) else "card"


def is_path(name: str) -> bool:
    return name.lower().endswith((".toml", ".json", ".csv")) or "/" in name


def read_text(file: Path) -> str:
    """ValueError where it cannot be read as text."""
    try:
        return file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}; check the path") from error
    except UnicodeDecodeError as error:
        raise ValueError("is not UTF-8 text; save it as UTF-8") from error


def _or_path(find: Callable[[str], T], name: str, kind: str) -> T:
    try:
        return find(name)
    except ValueError as error:
        raise ValueError(f"{error}; or give the path of a {kind}") from error


def _named(file: Path, read: Callable[[], T]) -> T:
    try:
        return read()
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def _toml(file: Path) -> dict[str, Any]:
    text = read_text(file)
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"is not valid TOML: {error}") from error


def _json(file: Path) -> dict[str, Any]:
    text = read_text(file)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not valid JSON: {error}") from error
    if not isinstance(document, dict):
        raise ValueError("is not a JSON object; give a model's config.json")
    return document

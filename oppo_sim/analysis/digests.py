"""Digests of what a run depends on besides its settings: the files it reads, the code that runs."""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path
from typing import Any

import oppo_sim


def of_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def of_files(value: Any, folder: Path) -> dict[str, str]:
    """Of the files that a scenario names (lengths, a card, a model, a cost table), by that name."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return {name: digest for entry in value for name, digest in of_files(entry, folder).items()}
    # isfile, unlike Path.is_file, calls a text that is too long for a path no file
    if isinstance(value, str) and os.path.isfile(folder / value):
        return {value: hashlib.sha256((folder / value).read_bytes()).hexdigest()}
    return {}


@cache
def of_package() -> str:
    """Of the package's code and data, so that no part outlives the code that made it."""
    package = Path(oppo_sim.__file__).parent
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*")):
        if file.suffix in (".py", ".csv", ".toml") and file.is_file():
            digest.update(f"{file.relative_to(package)}\n".encode() + file.read_bytes())
    return digest.hexdigest()

"""The modules of the extra [real], imported where a command needs them."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any


def real_module(name: str, what: str) -> Any:
    """`oppo_real.<name>`; ValueError where the extra is not installed.

    Threads of lanes that have no work sleep instead of spinning, which would slow the others: torch
    reads that once, when it is loaded.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        return import_module(f"oppo_real.{name}")
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{what} needs {error.name}, which is not installed: pip install 'oppo-testbed[real]'"
        ) from None

"""Whether a table is of the machine and models that something else is of, and undisturbed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

# what must be the same for a table to hold; the rest of its header says where it is from
KEYS = ("machine", "versions", "threads", "dtype", "models", "training", "scoring", "lanes")

# A timing is disturbed while others take so much of the machine, or cores so many times as long
# for the same little work: a run is timed again, left out where its schedule has others, and said.
CROWDED, SLOWED = 0.05, 1.1


def digest(said: Mapping[str, str]) -> str:
    """Of the KEYS of a table's header."""
    whole = json.dumps([said.get(key) for key in KEYS])
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


def differences(table: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """In which KEYS a table's header says something else, in words."""
    return [
        f"{key}: the table is of {table.get(key, 'nothing')!r}, this is "
        f"{other.get(key, 'nothing')!r}"
        for key in KEYS
        if table.get(key) != other.get(key)
    ]

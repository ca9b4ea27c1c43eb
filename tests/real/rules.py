"""Rewards by rule that go wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence

BROKEN: int | None = None  # the first id of a prompt; tests set it


def odd_share(prompt: Sequence[int], response: Sequence[int]) -> float:
    """NaN for one prompt, while it is broken."""
    if prompt[0] == BROKEN:
        return math.nan
    return sum(token % 2 for token in response) / len(response)


def raises(prompt: Sequence[int], response: Sequence[int]) -> float:
    raise KeyError("no such word")


def matches(prompt: Sequence[int], response: Sequence[int], *, answer: str) -> float:
    """How often the answer, a column of the prompts, is written; of each prompt it is its own."""
    if int(answer) != prompt[0]:
        raise ValueError(f"{answer} is not the answer to {list(prompt)}")
    return sum(token == int(answer) for token in response) / len(response)


def says(prompt: Sequence[int], response: Sequence[int]) -> str:
    return "good"

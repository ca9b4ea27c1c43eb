"""Rules that can stand in for a reward model: `real.reward = "oppo_real.rewards:NAME"`."""

from __future__ import annotations

from collections.abc import Sequence


def even_token_share(prompt: Sequence[int], response: Sequence[int]) -> float:
    """The share of the response's token ids that are even, 0 to 1; chance is about a half."""
    return sum(token % 2 == 0 for token in response) / len(response)

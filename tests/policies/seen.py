"""Observations made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oppo_sim.records import Observation, StepRecord


def seen(recent: Sequence[StepRecord] = (), **changes: Any) -> Observation:
    """What a policy sees after the steps `recent`, with batches of 8."""
    step = recent[-1].step + 1 if recent else 0
    plain: dict[str, Any] = {
        "step": step,
        "version": step,
        "batch_size": 8,
        "max_response_tokens": 4096,
        "running": 0,
        "carried": 0,
        "finished": 0,
        "queued": 0,
        "kv_used": 0.0,
        "recent": recent,
    }
    return Observation(**{**plain, **changes})

"""Step records made by hand, for tests of what reads them."""

from typing import Any

from oppo_sim.records import StepRecord


def step(number: int = 0, start_s: float = 0.0, **changes: Any) -> StepRecord:
    """Two rollouts, 10 s: 4 generation, 2 scoring, 1 waiting, 2 training, 1 sync."""
    plain: dict[str, Any] = {
        "step": number,
        "start_s": start_s,
        "taken_s": start_s + 4,
        "scored_s": start_s + 6,
        "train_start_s": start_s + 7,
        "train_end_s": start_s + 9,
        "end_s": start_s + 10,
        "chunk_tokens": 256,
        "overcommit": 1,
        "running": 0,
        "carried": 0,
        "finished": 0,
        "queued": 0,
        "kv_used": 0.0,
        "trained": (2 * number, 2 * number + 1),
        "tokens": (10, 30),
        "staleness": (0, 0),
        "deferrals": (0, 0),
        "rewards": (1.0, 2.0),
        "stale_tokens": 0,
        "admitted": 2 * number + 3,
        "dropped": 0,
        "carried_tokens": 5,
        "wasted_tokens": 0,
        "reprefilled_tokens": 0,
        "kv_peak_tokens": 100,
        "score_s": 3.0,
        "hidden_score_s": 1.0,
        "busy_s": {"gpu0": 6.0, "gpu1": 3.0},
    }
    return StepRecord(**{**plain, **changes})

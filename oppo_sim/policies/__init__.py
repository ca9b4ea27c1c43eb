"""Scheduling policies: pure choices from what was seen so far, and schedules made of them."""

from oppo_sim.policies.catalog import CATALOG, named
from oppo_sim.policies.chunk import ChunkPolicy, FixedChunk, ProbedChunk, WholeResponse
from oppo_sim.policies.overcommit import (
    FixedOvercommit,
    OvercommitPolicy,
    RewardSlope,
    StragglerShare,
)
from oppo_sim.policies.schedule import Schedule

__all__ = [
    "CATALOG",
    "ChunkPolicy",
    "FixedChunk",
    "FixedOvercommit",
    "OvercommitPolicy",
    "ProbedChunk",
    "RewardSlope",
    "Schedule",
    "StragglerShare",
    "WholeResponse",
    "named",
]

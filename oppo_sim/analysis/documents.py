"""A schedule as a JSON object, in the words of a schedule file."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from oppo_sim.policies import (
    FixedChunk,
    FixedOvercommit,
    ProbedChunk,
    RewardSlope,
    Schedule,
    StragglerShare,
    WholeResponse,
)
from oppo_sim.policies.schedule import Share

_POLICIES: dict[type, str] = {
    ProbedChunk: "probe",
    RewardSlope: "reward-slope",
    Share: "share",
    StragglerShare: "straggler-share",
}


def schedule_document(schedule: Schedule) -> dict[str, Any]:
    """Every axis of the schedule; a policy that no file can name goes by its class."""
    row = {field.name: getattr(schedule, field.name) for field in fields(schedule)}
    return {**row, "chunk": _policy(schedule.chunk), "overcommit": _policy(schedule.overcommit)}


def _policy(policy: object) -> Any:
    match policy:
        case None | WholeResponse():
            return "whole"
        case FixedChunk(tokens=tokens):
            return tokens
        case FixedOvercommit(rollouts=rollouts):
            return rollouts
    if not is_dataclass(policy):
        return policy
    knobs = {field.name: getattr(policy, field.name) for field in fields(policy)}
    return {"policy": _POLICIES.get(type(policy), type(policy).__name__), **knobs}

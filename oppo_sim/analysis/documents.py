"""Schedules and runs as JSON objects: what they are of, and what they come to."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

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
from oppo_sim.runs import Header

if TYPE_CHECKING:
    from oppo_sim.analysis.metrics import Metrics
    from oppo_sim.config import Scenario

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


def header_of(
    scenario: Scenario,
    schedule: Schedule,
    *,
    seed: int | None,
    steps: int | None,
    spans: bool,
    role: str = "simulated",
) -> Header:
    """What a run is of; None: what the scenario says."""
    return Header(
        scenario=scenario.document(),
        schedule=schedule_document(schedule),
        seed=scenario.seed if seed is None else seed,
        steps=scenario.steps if steps is None else steps,
        spans=spans,
        role=role,
        sets=dict(scenario.changed),
    )


def summary_document(header: Header, metrics: Metrics) -> dict[str, Any]:
    """A run and what it comes to."""
    return {
        "role": header.role,
        "scenario": header.scenario["name"],
        "sets": dict(header.sets),
        "schedule": header.schedule["name"],
        "seed": header.seed,
        "steps": header.steps,
        "mean_step_s": metrics.mean_step_s,
        "metrics": metrics.as_dict(),
    }


def _policy(policy: object) -> Any:
    match policy:
        case None | WholeResponse():
            return "whole"
        case FixedChunk(tokens=tokens):
            return tokens
        case FixedOvercommit(rollouts=rollouts):
            return rollouts
    if isinstance(policy, int):
        return policy
    knobs = (
        {field.name: getattr(policy, field.name) for field in fields(policy)}
        if is_dataclass(policy)
        else dict(getattr(policy, "__dict__", {}))
    )
    return {"policy": _POLICIES.get(type(policy), type(policy).__name__), **knobs}

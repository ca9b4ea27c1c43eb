"""A run's records through its schedule's policies again: do they choose what they chose?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from oppo_sim.policies import Schedule
from oppo_sim.records import Observation, StepRecord


def other_choices(
    schedule: Schedule, scenario: Mapping[str, object], records: Sequence[StepRecord]
) -> list[int]:
    """The steps at whose start the policies, shown what was logged, choose something else.

    `scenario`: as a run's header has it. Real or simulated, there should be none (invariant I8).
    """
    workload = scenario["workload"]
    assert isinstance(workload, Mapping)
    found = []
    for step, record in enumerate(records):
        seen = Observation(
            step=step,
            version=step,
            batch_size=schedule.batch,
            max_response_tokens=workload["max_response_tokens"],
            running=record.running,
            carried=record.carried,
            finished=record.finished,
            queued=record.queued,
            kv_used=record.kv_used,
            recent=records[max(0, step - schedule.window) : step],
        )
        chosen = (
            schedule.chunk_policy.chunk_tokens(seen),
            schedule.overcommit_policy.overcommit(seen),
        )
        if chosen != (record.chunk_tokens, record.overcommit):
            found.append(step)
    return found

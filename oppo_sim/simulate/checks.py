"""Whether a scenario has the memory and the lengths for a run, asked before it starts."""

from __future__ import annotations

from oppo_sim.config import ConfigError, Scenario
from oppo_sim.policies import Schedule
from oppo_sim.simulate.loads import limits, workload
from oppo_sim.simulate.pricing import lane_kv_tokens
from oppo_sim.workload import Replay


def check(scenario: Scenario, schedule: Schedule, steps: int) -> None:
    """ConfigError unless the scenario has the memory and the lengths for that."""
    if steps < 1:
        raise ConfigError(f"{scenario.file}: steps = {steps}: must be at least 1")
    _check_memory(scenario, schedule)
    lengths = workload(scenario).lengths
    needed = (steps + schedule.ahead) * schedule.batch + schedule.overcommit_policy.most
    if isinstance(lengths, Replay) and len(lengths.response_tokens) < needed:
        raise ConfigError(
            f"{scenario.file}: workload.lengths: {lengths.name} holds "
            f"{len(lengths.response_tokens)} lengths, but {schedule.name} needs {needed} for "
            f"steps = {steps} of batch = {schedule.batch}; run fewer steps or record more"
        )


def _check_memory(scenario: Scenario, schedule: Schedule) -> None:
    cluster, most = scenario.cluster, limits(scenario)
    kv_tokens = lane_kv_tokens(scenario)
    if kv_tokens is None:
        return
    response = schedule.kv_reserve_tokens or most.response_tokens
    reserve = most.prompt_tokens + response
    each = kv_tokens // reserve
    arithmetic = (
        f"an actor lane has KV memory for {kv_tokens:,} tokens, a rollout reserves "
        f"{most.prompt_tokens} prompt + {response} response tokens"
    )
    if each < 1:
        raise ConfigError(
            f"{scenario.file}: workload.max_response_tokens = {most.response_tokens}: "
            f"{arithmetic}: not one fits; lower it, or use a larger card or more devices per actor"
        )
    if cluster.slots is None and each * cluster.actors < schedule.batch:
        raise ConfigError(
            f"{scenario.file}: schedule.batch = {schedule.batch}: {arithmetic}, so "
            f"{cluster.actors} lanes x {each} = {each * cluster.actors} rollouts fit at once; "
            f"lower batch to that, add actors, lower max_response_tokens, or set cluster.slots "
            "(at most that many per lane) to generate in waves"
        )

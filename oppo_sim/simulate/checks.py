"""Whether a scenario can run a schedule, asked before anything is simulated or written."""

from __future__ import annotations

from oppo_sim.config import ConfigError, Scenario
from oppo_sim.config.bounds import MOST_COUNT, MOST_IN_FLIGHT
from oppo_sim.config.errors import short
from oppo_sim.policies import Schedule
from oppo_sim.simulate.memory import check_memory
from oppo_sim.simulate.pricing import costs
from oppo_sim.workload import Replay, Workload
from oppo_sim.workload.loads import limits, workload

FREE = "decoding a token takes 0 s, which no clock can count: the costs of decoding must be above 0"


def check(scenario: Scenario, schedule: Schedule, steps: int) -> None:
    """ConfigError unless the scenario has the costs, the memory and the lengths for that."""
    if not 1 <= steps <= MOST_COUNT:
        bound = "at least 1" if steps < 1 else f"at most {MOST_COUNT:,}"
        raise ConfigError(f"{scenario.file}: steps = {short(steps)}: must be {bound}")
    _check_in_flight(scenario, schedule)
    load = workload(scenario)
    most = limits(scenario, load)
    if costs(scenario).decode.token_s(1, 1) <= 0.0:
        raise ConfigError(f"{scenario.file}: {_decode_field(scenario)}: {FREE}")
    check_memory(scenario, schedule, load, most)
    _check_replay(scenario, schedule, steps, load)


def _check_in_flight(scenario: Scenario, schedule: Schedule) -> None:
    batches, beyond = (1 + schedule.ahead) * schedule.batch, schedule.overcommit_policy.most
    if batches + beyond <= MOST_IN_FLIGHT:
        return
    field = (
        f"schedule.ahead = {schedule.ahead}"
        if batches > beyond
        else f"schedule.overcommit, at most {beyond:,}"
    )
    raise ConfigError(
        f"{scenario.file}: {field}: up to {batches + beyond:,} rollouts would be in flight, with "
        f"ahead = {schedule.ahead}, batch = {schedule.batch} and {beyond:,} beyond it; lower one "
        f"of them, to {MOST_IN_FLIGHT:,} in flight at most"
    )


def _decode_field(scenario: Scenario) -> str:
    """What to raise, or where it stands."""
    match scenario.needed_costs().model:
        case "constant":
            return "costs.decode_token_s"
        case "linear":
            return "costs.decode_token_s, decode_rollout_s or decode_context_s"
        case "roofline":
            return "costs.engine"
        case "table":
            return "costs.file"


def _check_replay(scenario: Scenario, schedule: Schedule, steps: int, load: Workload) -> None:
    lengths = load.lengths
    needed = (steps + schedule.ahead) * schedule.batch + schedule.overcommit_policy.most
    if isinstance(lengths, Replay) and len(lengths.response_tokens) < needed:
        raise ConfigError(
            f"{scenario.file}: workload.lengths: {lengths.name} holds "
            f"{len(lengths.response_tokens)} lengths, but {schedule.name} needs {needed} for "
            f"steps = {steps} of batch = {schedule.batch}; run fewer steps or record more"
        )

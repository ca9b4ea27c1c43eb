"""Whether an actor lane's KV memory holds what a schedule puts there, and which field to change."""

from __future__ import annotations

from oppo_sim.config import ConfigError, Scenario
from oppo_sim.engine import Limits
from oppo_sim.policies import Schedule
from oppo_sim.simulate.pricing import lane_kv_tokens
from oppo_sim.workload import Workload
from oppo_sim.workload.loads import longest_prompt, longest_response


def check_memory(scenario: Scenario, schedule: Schedule, load: Workload, most: Limits) -> None:
    """ConfigError unless what a rollout may need, what it reserves, and a batch of them fit."""
    kv_tokens = lane_kv_tokens(scenario)
    if kv_tokens is None:
        return
    response = schedule.kv_reserve_tokens or most.response_tokens
    reserve = most.prompt_tokens + response
    each = kv_tokens // reserve
    if each < 1:
        raise _not_one_fits(scenario, schedule, load, most, kv_tokens)
    if schedule.kv_reserve_tokens is not None:
        _check_growth(scenario, load, most, kv_tokens)
    actors = scenario.cluster.actors
    if scenario.cluster.slots is None and each * actors < schedule.batch:
        shorter = "kv_reserve_tokens" if schedule.kv_reserve_tokens else "max_response_tokens"
        raise ConfigError(
            f"{scenario.file}: schedule.batch = {schedule.batch}: an actor lane has KV memory for "
            f"{kv_tokens:,} tokens, a rollout reserves {most.prompt_tokens} prompt + {response} "
            f"response tokens, so {actors} lanes x {each} = {each * actors} rollouts fit at once; "
            f"lower batch to that, add actors, lower {shorter}, or set cluster.slots "
            "(at most that many per lane) to generate in waves"
        )


def _not_one_fits(
    scenario: Scenario, schedule: Schedule, load: Workload, most: Limits, kv_tokens: int
) -> ConfigError:
    """The reserve of a single rollout is too large; named is the field that alone can mend it."""
    table, reserved = scenario.workload, schedule.kv_reserve_tokens
    response, longest = reserved or most.response_tokens, longest_prompt(load)
    says = (
        f"an actor lane has KV memory for {kv_tokens:,} tokens, a rollout reserves "
        f"{most.prompt_tokens} prompt + {response} response tokens: not one fits"
    )
    room = kv_tokens - most.prompt_tokens
    if table.max_prompt_tokens is not None and longest + response <= kv_tokens:
        field = f"workload.max_prompt_tokens = {table.max_prompt_tokens}"
        remedy = f"set it to {longest}, the longest prompt there is, or leave it out"
    elif reserved is not None and room >= 1:
        field = f"schedule.kv_reserve_tokens = {reserved}"
        remedy = f"lower it to {room}, or {_more_memory(scenario, most.prompt_tokens + reserved)}"
    else:
        field, remedy = _field(scenario, most, most.prompt_tokens, response, kv_tokens)
    return ConfigError(f"{scenario.file}: {field}: {says}; {remedy}")


def _check_growth(scenario: Scenario, load: Workload, most: Limits, kv_tokens: int) -> None:
    """A rollout that reserves less than it may need must still fit when it is alone."""
    prompt, response = longest_prompt(load), longest_response(load)
    if prompt + response <= kv_tokens:
        return
    field, remedy = _field(scenario, most, prompt, response, kv_tokens)
    raise ConfigError(
        f"{scenario.file}: {field}: an actor lane has KV memory for {kv_tokens:,} tokens, and a "
        f"rollout can grow to {prompt} prompt + {response} response tokens, whatever "
        f"kv_reserve_tokens says: alone it would overflow; {remedy}"
    )


def _field(
    scenario: Scenario, most: Limits, prompt: int, response: int, kv_tokens: int
) -> tuple[str, str]:
    """The field to blame where prompt and response are longer than the memory, and the remedy."""
    cluster, room = scenario.cluster, kv_tokens - prompt
    more = _more_memory(scenario, prompt + response)
    shorter = "shorten the prompts"
    if room >= 1:
        shorter = f"lower workload.max_response_tokens to {room}"
    if cluster.kv_tokens is not None:
        return f"cluster.kv_tokens = {cluster.kv_tokens}", f"{more}, or {shorter}"
    if room >= 1:
        field = f"workload.max_response_tokens = {most.response_tokens}"
        return field, f"lower it to {room}, or {more}"
    name = "lengths" if scenario.workload.prompt_tokens is None else "prompt_tokens"
    return f"workload.{name}, prompts of {prompt} tokens", f"{shorter}, or {more}"


def _more_memory(scenario: Scenario, needed: int) -> str:
    if scenario.cluster.kv_tokens is not None:
        return f"raise cluster.kv_tokens to {needed}"
    return "use a larger card or more devices per actor"

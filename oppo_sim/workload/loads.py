"""The workload of a scenario: lengths from wherever it says, checked against its limits."""

from __future__ import annotations

import numpy as np

from oppo_sim.config import ConfigError, Lengths, Scenario, blaming
from oppo_sim.config.workload import Curve, Points, Saturating
from oppo_sim.engine import Limits
from oppo_sim.workload import (
    Constant,
    Drift,
    Effects,
    Endless,
    Exponential,
    Gamma,
    Lognormal,
    Mixture,
    QuantileTable,
    Replay,
    RewardCurve,
    RewardPoints,
    Rewards,
    Weibull,
    Workload,
    load,
    read_lengths,
    reward_curve,
)

Family = Lognormal | Gamma | Weibull | Mixture
Source = Constant | Exponential | QuantileTable | Replay | Family | Endless
ALMOST_ONE = 1 - 2.0**-53  # the largest probability that is ever drawn


def workload(scenario: Scenario, seed: int | None = None) -> Workload:
    """Its workload; `seed` None: the scenario's own."""
    table, source = scenario.workload, _checked_source(scenario)
    if table.prompt_tokens is None and source.prompts is None:
        raise ConfigError(
            f"{scenario.file}: workload.prompt_tokens is missing: "
            "these lengths came without prompts, so say how many tokens a prompt has"
        )
    return _workload(scenario, seed, source, _rewards(scenario), table.prompt_tokens)


def lengths_alone(scenario: Scenario, seed: int | None = None) -> Workload:
    """`workload` where only response lengths count: a real run has its own prompts and rewards."""
    source = _checked_source(scenario)
    prompts = None if source.prompts is not None else 1
    return _workload(scenario, seed, source, RewardPoints(((0, 0.0),), 0.0), prompts)


def limits(scenario: Scenario, load: Workload | None = None) -> Limits:
    """What a rollout may need at most. ConfigError where a prompt is longer than that."""
    return limits_with(scenario, longest_prompt(workload(scenario) if load is None else load))


def limits_with(scenario: Scenario, longest: int) -> Limits:
    """`limits` where the longest prompt has this many tokens."""
    table = scenario.workload
    most = table.max_prompt_tokens
    if most is not None and longest > most:
        raise ConfigError(
            f"{scenario.file}: workload.max_prompt_tokens = {most}: the longest prompt has "
            f"{longest} tokens; set it to {longest}, or leave it out"
        )
    return Limits(most or longest, table.max_response_tokens)


def longest_prompt(load: Workload) -> int:
    """Tokens of the longest prompt that can come."""
    prompts = load.prompts
    if isinstance(prompts, Replay):
        return max(prompts.response_tokens)
    return int(prompts.ppf(np.array([ALMOST_ONE]))[0])


def longest_response(load: Workload) -> int:
    """Tokens of the longest response that can come; with a drift they may all grow to the cap."""
    return load.cap_tokens if load.effects.drift is not None else load.describe().max_tokens


def _checked_source(scenario: Scenario) -> Source:
    lengths = scenario.needed_lengths()
    with blaming(scenario.file, "workload.lengths", scenario.folder):
        source = _source(scenario, lengths)
    _check_cap(scenario, source)
    return source


def _workload(
    scenario: Scenario, seed: int | None, source: Source, rewards: Rewards, prompts: int | None
) -> Workload:
    with blaming(scenario.file, "workload"):
        return Workload(
            source,
            cap_tokens=scenario.workload.max_response_tokens,
            rewards=rewards,
            seed=scenario.seed if seed is None else seed,
            prompts=prompts,
            effects=_effects(scenario),
        )


def _rewards(scenario: Scenario) -> Rewards:
    with blaming(scenario.file, "workload.reward"):
        match scenario.needed_reward():
            case Saturating() as law:
                return RewardCurve(law.start, law.plateau, law.tau_steps, law.noise)
            case Points() as given:
                points = tuple([(step, reward) for step, reward in given.points])
                return RewardPoints(points, given.noise)
            case Curve() as shipped:
                return reward_curve(shipped.curve, shipped.noise)


def _effects(scenario: Scenario) -> Effects:
    """By the scenario's own schedule, so that others are compared on the same rollouts."""
    table, schedule = scenario.workload, scenario.schedule()
    group = table.group or (schedule.group if table.prompt_effect else 1)
    drift = None if table.drift is None else Drift(**table.drift.model_dump())
    return Effects(table.prompt_effect, group, table.prompt_set, drift, schedule.batch)


def _law(lengths: Lengths) -> Family | None:
    """The fitted law, if that is the source."""
    if lengths.lognormal is not None:
        return Lognormal(**lengths.lognormal.model_dump())
    if lengths.gamma is not None:
        return Gamma(**lengths.gamma.model_dump())
    if lengths.weibull is not None:
        return Weibull(**lengths.weibull.model_dump())
    if lengths.mixture is not None:
        weight, mu, sigma = (getattr(lengths.mixture, name) for name in ("weight", "mu", "sigma"))
        return Mixture(weight, tuple(mu), tuple(sigma))
    return None


def _source(scenario: Scenario, lengths: Lengths) -> Source:
    law = _law(lengths)
    if law is not None:
        return law if lengths.endless is None else Endless(law, lengths.endless)
    if lengths.table is not None:
        return load(lengths.table)
    if lengths.constant is not None:
        return Constant(lengths.constant)
    if lengths.exponential is not None:
        return Exponential(lengths.exponential)
    if isinstance(lengths.replay, tuple):
        return Replay(lengths.replay, name="replay")
    if lengths.replay is not None:
        return read_lengths(scenario.folder / lengths.replay)
    assert lengths.file is not None
    measured = read_lengths(scenario.folder / lengths.file)
    return QuantileTable.from_samples(
        lengths.file, measured.response_tokens, measured.prompt_tokens, lengths.cut_at_tokens
    )


def _check_cap(scenario: Scenario, source: Source) -> None:
    cap, where = scenario.workload.max_response_tokens, f"{scenario.file}: workload"
    if isinstance(source, Replay) and max(source.response_tokens) > cap:
        place, longest = max(enumerate(source.response_tokens), key=lambda entry: entry[1])
        raise ConfigError(
            f"{where}.lengths: {source.name} has {longest} tokens in place {place}, above "
            f"max_response_tokens = {cap}: a record is never cut, so raise max_response_tokens "
            f"to {longest} or replay another list"
        )
    known = None if isinstance(source, Replay) else source.known_tokens
    if known is not None and cap > known:
        raise ConfigError(
            f"{where}.max_response_tokens = {cap}: these lengths were cut at {known} by their "
            f"source, so nobody knows how long they would have been; lower it to {known}, or take "
            "lengths with a higher cap"
        )

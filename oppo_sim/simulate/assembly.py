"""A scenario's machine, put together from its parts, and the engine on it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from oppo_sim.config import Scenario
from oppo_sim.costs import layout
from oppo_sim.engine import Lane, Listener, run
from oppo_sim.policies import Schedule
from oppo_sim.records import StepRecord
from oppo_sim.simulate.checks import check
from oppo_sim.simulate.pricing import costs, lane_kv_tokens
from oppo_sim.simulator import Contention, Learning, SimPyMachine
from oppo_sim.workload import update_worth
from oppo_sim.workload.loads import limits, workload


def lanes(scenario: Scenario) -> list[Lane]:
    """Its lanes, with the memory that its card and models leave them."""
    return layout.lanes(scenario.cluster, lane_kv_tokens(scenario))


def machine(scenario: Scenario, seed: int | None = None) -> SimPyMachine:
    """A simulated machine on which nothing has run yet; `seed` None: the scenario's own."""
    contention = scenario.cluster.contention
    return SimPyMachine(
        lanes(scenario),
        costs(scenario),
        workload(scenario, seed),
        Contention(**contention.model_dump()) if contention else Contention(),
        round_s=scenario.needed_costs().round_s,
        learning=Learning(partial(update_worth, scenario.needed_reward().stale_penalty)),
    )


def simulate(
    scenario: Scenario,
    schedule: Schedule | None = None,
    *,
    seed: int | None = None,
    steps: int | None = None,
    listen: Listener | None = None,
) -> Iterator[StepRecord]:
    """Run `schedule` on the scenario and yield each step's record; None: what the scenario says.

    ConfigError at the call, not at the first record, if the scenario cannot run it.
    """
    schedule = scenario.schedule() if schedule is None else schedule
    steps = scenario.steps if steps is None else steps
    check(scenario, schedule, steps)
    return run(machine(scenario, seed), schedule, limits(scenario), steps, listen)

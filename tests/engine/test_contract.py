"""I11: one suite for every machine: the referee and a second bookkeeper read its log, and decisions
follow from its events.

What only a machine with a clock of its own choosing can be asked - equal stamps - is in
`test_two_machines.py`; what a real one computes is in `tests/real`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oppo_sim.engine import Backend, Limits, run
from oppo_sim.engine.contract import Entry, Lane
from oppo_sim.policies import CATALOG, Schedule
from oppo_sim.simulator import SimPyMachine
from tests.engine.referee import Referee
from tests.engine.test_replay import assert_decisions_replay
from tests.engine.test_two_machines import Costs, schedules, scripted, small
from tests.simulator.lab import CAP, PROMPT_CAP, Run, Work, room
from tests.simulator.ledger import Ledger

WORK = Work([5, 12, 30, 7, 55, 1, 18, 9, 24, 3, 13])
STEPS = 6
Machine = Callable[[list[Lane]], Backend]


def on_script(lanes: list[Lane]) -> Backend:
    return scripted(lanes, WORK, Costs(), 0.0, eager=False)  # type: ignore[arg-type]


def on_simpy(lanes: list[Lane]) -> Backend:
    return SimPyMachine(lanes, Costs(), WORK)  # type: ignore[arg-type]


def on_torch(host: str) -> Machine:
    """Its kernels are fakes, all else is real: threads, messages, stamps."""

    def made(lanes: list[Lane]) -> Backend:
        from tests.real.fakes import Bench

        return Bench(lanes, host, WORK).backend

    return made


MACHINES: dict[str, Machine] = {
    "scripted": on_script,
    "simpy": on_simpy,
    "torch, inline": on_torch("inline"),
    "torch, threads": on_torch("threads"),
}


def hold_to_the_contract(machine: Machine, schedule: Schedule, lanes: list[Lane]) -> None:
    """I11."""
    log: list[Entry] = []

    def listen(entry: Entry) -> None:
        log.append(entry)
        assert len(log) < 1000 * STEPS, f"it gets nowhere: {log[-8:]}"

    backend, limits = machine(lanes), Limits(PROMPT_CAP, CAP)
    try:
        records = list(run(backend, schedule, limits, STEPS, listen))
    finally:
        getattr(backend, "close", lambda: None)()
    made = Run(schedule, lanes, limits, records, log)
    Referee(lanes, CAP).read(log)
    book = Ledger(log)
    assert (book.admitted, len(book.dropped)) == (records[-1].admitted, records[-1].dropped)
    trained = [rollout for record in records for rollout in record.trained]
    assert book.trained == trained
    assert len(set(trained)) == len(trained)
    tokens = [count for record in records for count in record.tokens]
    assert tokens == [WORK.response_tokens(rollout) for rollout in trained]
    assert_decisions_replay(made)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", CATALOG)
@pytest.mark.parametrize("trainer", ["own", "actors"])
def test_the_catalogue(name: str, trainer: Any, machine: str) -> None:
    hold_to_the_contract(MACHINES[machine], small(name), room(2, trainer=trainer))


@settings(max_examples=120)
@given(
    schedule=schedules(),
    machine=st.sampled_from(sorted(MACHINES)),
    trainer=st.sampled_from(["own", "actors"]),
    scoring=st.sampled_from(["own", "actors"]),
    scorers=st.sampled_from([1, 2]),
    kv_tokens=st.sampled_from([None, 200]),
)
def test_any_schedule(
    schedule: Schedule,
    machine: str,
    trainer: Any,
    scoring: Any,
    scorers: int,
    kv_tokens: int | None,
) -> None:
    lanes = room(2, scorers, trainer=trainer, scoring=scoring, kv_tokens=kv_tokens)
    hold_to_the_contract(MACHINES[machine], schedule, lanes)

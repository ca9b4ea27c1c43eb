"""Invariant I8: a run is its log; folded again it leads to the same state and decisions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oppo_sim.engine import State
from oppo_sim.engine.contract import Entry, Finished
from oppo_sim.engine.loop import replay
from oppo_sim.engine.rules import decide, finishes_needed
from oppo_sim.policies import (
    CATALOG,
    OvercommitPolicy,
    ProbedChunk,
    RewardSlope,
    Schedule,
    StragglerShare,
)
from oppo_sim.records import Observation, step_from_row, to_row
from oppo_sim.simulator import SimPyMachine
from tests.engine.test_two_machines import schedules, small
from tests.simulator.lab import DYADIC, EVENTS, TICK, Run, Work, ends_step, play, room
from tests.simulator.ledger import Ledger

LENGTHS = Work([5, 12, 30, 7, 55, 1, 18, 9, 24, 3, 13])
CONTROLLERS: dict[str, OvercommitPolicy] = {
    "slope, constant": RewardSlope(start=2, most=6, over=3),
    "slope, proportional": RewardSlope(start=9, most=16, over=1, step_rule="proportional"),
    "stragglers": StragglerShare(start=2, most=6, over=2, long=1.5),
}
OPPO = replace(CATALOG["oppo"], batch=8, chunk=ProbedChunk(candidates=(3, 6, 12), every=7))
ADAPTIVE = {
    name: replace(OPPO, name=name, overcommit=controller)
    for name, controller in CONTROLLERS.items()
}
SCHEDULES = {name: small(name) for name in CATALOG} | ADAPTIVE


def run_of(schedule: Schedule, work: Work = LENGTHS, steps: int = 20) -> Run:
    return play(schedule, room(2, trainer="own", kv_tokens=900), DYADIC, work, steps, round_s=TICK)


def folded(run: Run) -> Iterator[State]:
    """The state after each entry of the log. Of a machine only the lanes are needed."""
    idle = SimPyMachine(run.lanes, DYADIC, LENGTHS)
    return replay(run.schedule, idle, run.limits, run.log)


def where(state: State) -> dict[str, Any]:
    """All that a state says of its rollouts."""
    return {
        "running": {actor.name: [*actor.running] for actor in state.actors},
        "carried": [*state.resumed],
        "finished": [*state.done],
        "queued": [*state.fresh],
        "rollouts": {
            r: (row.tokens, row.sent, row.reward, row.deferrals, row.oldest, row.segments)
            for r, row in state.rollouts.items()
        },
        "pending": {s.name: ([*s.urgent], [*s.pending], s.busy) for s in state.scorers},
        "version": (state.step, state.version, state.trained),
    }


# the state


@pytest.mark.parametrize("name", SCHEDULES)
def test_i8_a_folded_log_gives_the_records_of_the_run(name: str) -> None:
    """I8: the n-th record is there as soon as the n-th weight update is folded, field by field."""
    run = run_of(SCHEDULES[name])
    records = [
        state.records[-1]
        for entry, state in zip(run.log, folded(run), strict=True)
        if ends_step(entry)
    ]
    assert records == run.records


@pytest.mark.parametrize("name", SCHEDULES)
def test_i8_a_folded_log_knows_where_every_rollout_is(name: str) -> None:
    """I8: after each step, as a second bookkeeper knows it who reads the log only."""
    run = run_of(SCHEDULES[name], steps=6)
    step = 0
    for entry, state in zip(run.log, folded(run), strict=True):
        if ends_step(entry):
            book = Ledger(run.up_to_step(step))
            running = {r: actor.name for actor in state.actors for r in actor.running}
            assert running == book.running
            assert set(state.resumed) == book.paused
            assert set(state.done) == book.finished
            assert set(state.fresh) == book.queued
            assert {row.id for row in (state.taken.rollouts if state.taken else ())} == book.taken
            step += 1


# the decisions


def assert_decisions_replay(run: Run) -> None:
    """Fold the events alone; whenever the log has decisions, ask for them."""
    told = list(folded(run))[-1]
    asked = State(run.schedule, {lane.name: lane for lane in run.lanes}, run.limits)
    for is_event, group in groupby(run.log, lambda entry: isinstance(entry, EVENTS)):
        entries: list[Entry] = list(group)
        if is_event:
            for event in entries:
                asked.apply(event)
        else:
            assert decide(asked) == entries
    assert where(asked) == where(told)


@pytest.mark.parametrize("name", SCHEDULES)
def test_i8_the_folded_state_decides_what_was_logged(name: str) -> None:
    """I8: decide(state) proposes every command and decision of the log, in its order."""
    assert_decisions_replay(run_of(SCHEDULES[name]))


@settings(max_examples=75)
@given(schedules(), st.lists(st.integers(1, 60), min_size=1, max_size=30))
def test_i8_for_any_schedule(schedule: Schedule, lengths: list[int]) -> None:
    """I8 over any schedule."""
    assert_decisions_replay(run_of(schedule, Work(lengths), steps=5))


@settings(max_examples=75)
@given(schedules(), st.lists(st.integers(1, 60), min_size=1, max_size=30))
def test_i8_nothing_is_decided_before_the_finishes_that_were_called_for(
    schedule: Schedule, lengths: list[int]
) -> None:
    """I8: `finishes_needed` is a lower bound, so a machine may work ahead and miss nothing.

    From any state on, the next decision comes after that many finishes, or after another event.
    """
    run = run_of(schedule, Work(lengths), steps=5)
    states = folded(run)
    places = range(len(run.log))
    for place, state in zip(places, states, strict=True):
        if isinstance(run.log[place], EVENTS) or not isinstance(run.log[place + 1], EVENTS):
            continue  # only after the last decision of a turn does anybody wait
        needed = finishes_needed(state)
        ahead = 0
        while isinstance(run.log[place + 1 + ahead], Finished):
            ahead += 1
        following = run.log[place + 1 + ahead]
        assert isinstance(following, EVENTS) or ahead >= needed


# the policies


@pytest.mark.parametrize("name", ADAPTIVE)
def test_i8_the_policies_decide_again_what_they_decided_from_the_records_on_disk(name: str) -> None:
    """I8: what a policy sees is what is logged: its observation is rebuilt from JSON."""
    schedule = ADAPTIVE[name]
    run = run_of(schedule, steps=40)
    rows = [json.loads(json.dumps(to_row(record))) for record in run.records]
    records = [step_from_row(row) for row in rows]
    for step, record in enumerate(records):
        seen = Observation(
            step=step,
            version=step,
            batch_size=8,
            max_response_tokens=run.limits.response_tokens,
            running=record.running,
            carried=record.carried,
            finished=record.finished,
            queued=record.queued,
            kv_used=record.kv_used,
            recent=records[max(0, step - schedule.window) : step],
        )
        assert schedule.chunk_policy.chunk_tokens(seen) == record.chunk_tokens
        assert schedule.overcommit_policy.overcommit(seen) == record.overcommit
    assert {record.chunk_tokens for record in records} == {3, 6, 12}
    assert len({record.overcommit for record in records}) > 2, "the controller never moved"


def test_i8_a_record_tells_what_its_step_began_with() -> None:
    """I8: running, carried, finished, queued and kv_used are those of the state before the plan.

    Two lanes of 900 tokens have room for 16 reserves of 16 + 40 tokens each.
    """
    run = run_of(SCHEDULES["oppo"])
    assert run.records[0].running == run.records[0].carried == run.records[0].finished == 0
    for step, record in enumerate(run.records[1:]):
        book = Ledger(run.up_to_step(step))
        assert record.running == len(book.running)
        assert record.carried == len(book.running) + len(book.paused)
        assert record.finished == len(book.finished)
        assert record.queued == len(book.queued)
        assert record.kv_used == (len(book.running) + len(book.paused)) / 32

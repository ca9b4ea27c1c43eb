"""A state between two steps survives being written as JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oppo_sim.engine import EngineError, State, restore, snapshot
from oppo_sim.engine.contract import Entry
from oppo_sim.engine.loop import replay
from oppo_sim.engine.rules import decide
from oppo_sim.policies import CATALOG, Schedule
from oppo_sim.simulator import SimPyMachine
from tests.engine.test_replay import where
from tests.engine.test_two_machines import schedules, small
from tests.simulator.lab import DYADIC, Run, Work, ends_step, play, room

LENGTHS = Work([5, 12, 30, 7, 55, 1, 18, 9, 24, 3, 13])


def states(run: Run) -> list[State]:
    """A state at the end of each step, of its own."""
    ends = [place + 1 for place, entry in enumerate(run.log) if ends_step(entry)]
    return [folded(run, run.log[:end]) for end in ends]


def folded(run: Run, log: list[Entry]) -> State:
    idle = SimPyMachine(run.lanes, DYADIC, LENGTHS)
    return list(replay(run.schedule, idle, run.limits, log))[-1]


def reread(run: Run, state: State) -> State:
    saved = json.loads(json.dumps(snapshot(state)))
    return restore(run.schedule, {lane.name: lane for lane in run.lanes}, run.limits, saved)[0]


@settings(max_examples=60)
@given(schedule=schedules() | st.sampled_from([small(name) for name in CATALOG]))
def test_what_waits_between_two_steps_is_read_back(schedule: Schedule) -> None:
    """With the trainer on the actors' devices nothing runs then, and nothing is lost."""
    schedule = replace(schedule, max_staleness=None, stale="keep")
    run = play(schedule, room(2), DYADIC, LENGTHS, steps=4)
    for state in states(run):
        assert not state.running
        again = reread(run, state)
        assert where(again) == where(state) | {"pending": where(again)["pending"]}
        if not any(scorer.busy for scorer in state.scorers):
            assert where(again) == where(state)
            assert decide(again) == decide(state)


@pytest.mark.parametrize("name", CATALOG)
def test_what_was_running_is_paused_without_a_cache(name: str) -> None:
    run = play(small(name), room(2, trainer="own"), DYADIC, LENGTHS, steps=4)
    for state in states(run):
        running = [row for actor in state.actors for row in actor.running.values()]
        again = reread(run, state)
        assert not again.running
        for row in running:
            assert again.resumed[row.id].home is None
            kept = 0 if run.schedule.partial == "nothing" else row.tokens
            assert again.resumed[row.id].tokens == kept
        assert again.admitted == state.admitted
        assert list(again.rollouts) == list(state.rollouts)


def test_a_state_is_not_written_in_the_middle_of_a_step() -> None:
    run = play(small("trl"), room(1), DYADIC, LENGTHS, steps=1)
    with pytest.raises(EngineError, match="between two steps"):
        snapshot(folded(run, run.log[:-1]))


def test_other_lanes_are_refused() -> None:
    run = play(small("trl"), room(2), DYADIC, LENGTHS, steps=1)
    saved = snapshot(folded(run, run.log))
    lanes = {lane.name: lane for lane in room(1)}
    with pytest.raises(EngineError, match=r"actor1.*use the same \[cluster\]"):
        restore(run.schedule, lanes, run.limits, saved)

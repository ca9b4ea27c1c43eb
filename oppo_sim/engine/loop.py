"""The PPO pipeline: decide, submit, wait, fold; one loop for every schedule and machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from oppo_sim.engine.contract import Admit, Backend, Entry, Limits, Plan, Take
from oppo_sim.engine.rules import decide, finishes_needed
from oppo_sim.engine.state import State
from oppo_sim.policies.schedule import Schedule
from oppo_sim.records import StepRecord

Listener = Callable[[Entry], None]
_DECISIONS = (Plan, Admit, Take)


def run(
    backend: Backend,
    schedule: Schedule,
    limits: Limits,
    steps: int,
    listen: Listener | None = None,
    state: State | None = None,
) -> Iterator[StepRecord]:
    """Run until `steps` PPO steps are done and yield the record of each as it ends.

    `listen` hears every command, decision and event, in order: the run's log. `state`: where to go
    on; None: at the beginning. Between two records it is the caller's to look at.
    Raises EngineError when the machine fails or cannot run the schedule.
    """
    if state is None:
        state = State(schedule, backend.lanes(), limits)
    while True:
        choices = decide(state)
        if listen:
            for choice in choices:
                listen(choice)
        backend.submit(*[choice for choice in choices if not isinstance(choice, _DECISIONS)])
        step = state.step
        for event in backend.wait(finishes_needed(state)):
            if listen:
                listen(event)
            state.apply(event)
        if state.step > step:
            yield state.records[-1]
            if state.step == steps:
                return


def replay(
    schedule: Schedule, backend: Backend, limits: Limits, log: Iterable[Entry]
) -> Iterator[State]:
    """Fold a log; yields the state after each entry."""
    state = State(schedule, backend.lanes(), limits)
    for entry in log:
        state.apply(entry)
        yield state

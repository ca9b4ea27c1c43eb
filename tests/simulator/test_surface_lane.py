"""A lane whose token times come from a table: its closed form against a loop over its tokens."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oppo_sim.costs import Linear, Measured, Measurements, Row
from oppo_sim.simulator import SimPyMachine
from tests.simulator.hand import ACTOR, ELSEWHERE, LONG, hear, starts
from tests.simulator.lab import Work

# Times by batch and context of a rollout: as flat as can be for a while, so that some batches cost
# as little as one rollout, and then steep.
FLAT = {
    1: {0: 0.02, 100: 0.02, 200: 0.05},
    4: {0: 0.02, 100: 0.02, 200: 0.08},
    7: {0: 0.03, 100: 0.045, 200: 0.1},
}
STEEP = {
    2: {50: 0.02, 150: 0.03, 300: 0.06},
    6: {60: 0.05},
}
PREFILL_S = 0.003


def measured(times: dict[int, dict[int, float]]) -> Measured:
    rows = [
        Row("decode", batch, batch * context, batch, seconds)
        for batch, curve in times.items()
        for context, seconds in curve.items()
    ]
    return Measured(
        measurements=Measurements("made up", tuple(rows)), rest=Linear(prefill_token_s=PREFILL_S)
    )


def token_by_token(
    costs: Measured, lengths: tuple[int, ...], prompts: tuple[int, ...], chunk: int | None
) -> list[tuple[str, float]]:
    """Finishes and ends of rounds, in order."""
    now_s, done, events = PREFILL_S * sum(prompts), 0, []
    running = set(range(len(lengths)))
    while running:
        context = sum(prompts[r] + done for r in running)
        now_s += costs.decode.token_s(len(running), context)
        done += 1
        for rollout in [r for r in running if lengths[r] == done]:
            running.remove(rollout)
            events.append(("Finished", now_s))
        if chunk is not None and done % chunk == 0 and running:
            events.append(("Emitted", now_s))
    return events


@settings(max_examples=150)
@given(
    times=st.sampled_from([FLAT, STEEP]),
    batch=st.lists(st.tuples(st.integers(1, 120), st.integers(0, 150)), min_size=1, max_size=9),
    chunk=st.none() | st.integers(1, 50),
)
def test_m3_a_lane_of_a_table(
    times: dict[int, dict[int, float]], batch: list[tuple[int, int]], chunk: int | None
) -> None:
    """M3: closed form and token by token agree on every finish and round, to 1e-9."""
    lengths, prompts = zip(*batch, strict=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        costs = measured(times)
        wanted = token_by_token(costs, lengths, prompts, chunk)
        m = SimPyMachine((ACTOR, ELSEWHERE), costs, Work(lengths, prompts, cap=LONG))
        m.submit(starts(*range(len(batch)), chunk=chunk))
        got = [(type(event).__name__, event.at_s) for event in hear(m, len(wanted))]
    assert [kind for kind, _ in got] == [kind for kind, _ in wanted]
    assert [at_s for _, at_s in got] == pytest.approx([at_s for _, at_s in wanted], rel=1e-9)

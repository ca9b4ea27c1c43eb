"""Invariants I1-I7: what holds in every run, whatever the schedule, as DESIGN.md numbers them.

I8 (replay) and I9 (staleness) concern the engine alone: see tests/engine.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oppo_sim import workload
from oppo_sim.costs import Constant, Costs, Linear
from oppo_sim.engine.contract import Finished, Generate, Lane
from oppo_sim.policies import CATALOG, ProbedChunk, RewardSlope, Schedule
from oppo_sim.simulator import Contention
from tests.engine.test_two_machines import schedules, small
from tests.simulator.lab import (
    CAP,
    DYADIC,
    SLOPED,
    TICK,
    Run,
    Work,
    halved,
    instants,
    play,
    room,
    seven_billion,
    until,
)
from tests.simulator.ledger import Ledger, busy_seconds, most_on_a_lane, prefilled_again

LENGTHS = Work([5, 12, 30, 7, 55, 1, 18, 9, 24, 3, 13])
TUG_OF_WAR = Contention(decode_stretch=1.5, score_stretch=1.25, switch_s=3 * TICK)
ADAPTIVE = replace(
    CATALOG["oppo"],
    batch=8,
    chunk=ProbedChunk(candidates=(3, 6, 12), every=5),
    overcommit=RewardSlope(start=2, most=6, over=2),
)
lengths_of_rollouts = st.lists(st.integers(1, 60), min_size=1, max_size=30)


@st.composite
def rooms(draw: st.DrawFn) -> list[Lane]:
    """Any placement: split, colocated, a trainer apart, several of everything, scarce memory."""
    return room(
        draw(st.integers(1, 3)),
        draw(st.integers(1, 2)),
        trainer=draw(st.sampled_from(["actors", "own"])),
        scoring=draw(st.sampled_from(["actors", "own"])),
        slots=draw(st.sampled_from([8, 64])),
        kv_tokens=draw(st.sampled_from([None, 16 + CAP, 150])),
    )


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """A few steps of any schedule in any room, with costs of any kind."""
    return play(
        draw(schedules()),
        draw(rooms()),
        draw(st.sampled_from([DYADIC, SLOPED, replace(DYADIC, handoff_call_s=3 * TICK)])),
        Work(draw(lengths_of_rollouts)),
        steps=5,
        contention=draw(st.sampled_from([Contention(), TUG_OF_WAR])),
        round_s=draw(st.sampled_from([0.0, 5 * TICK])),
    )


def run_of(name: str, **changes: Any) -> Run:
    return play(small(name, **changes), room(2, trainer="own"), DYADIC, LENGTHS, steps=12)


# I1


def assert_nothing_is_lost(run: Run) -> None:
    trained = wasted = 0
    for step, record in enumerate(run.records):
        book = Ledger(run.up_to_step(step))
        assert sorted([*book.trained, *book.dropped, *book.live]) == list(range(book.admitted))
        assert record.admitted == book.admitted
        assert record.dropped == len(book.dropped)
        assert list(record.trained) == book.trained[step * 8 :]
        assert [book.tokens[rollout] for rollout in record.trained] == list(record.tokens)
        trained += sum(record.tokens)
        wasted += record.wasted_tokens
        assert book.decoded_tokens == trained + record.carried_tokens + wasted


@pytest.mark.parametrize("name", CATALOG)
def test_i1_the_catalogue_loses_no_rollout_and_no_token(name: str) -> None:
    """I1: admitted = trained + live + dropped, each rollout trained at most once.

    Tokens decoded = trained + carried + wasted.
    """
    assert_nothing_is_lost(run_of(name))


@settings(max_examples=150)
@given(runs())
def test_i1_no_schedule_loses_a_rollout_or_a_token(run: Run) -> None:
    """I1 over any schedule, room and costs."""
    assert_nothing_is_lost(run)


def test_i1_what_is_thrown_away_is_counted_as_wasted() -> None:
    """I1 by hand: two rollouts for a batch of one; the longer one starts over each time."""
    schedule = Schedule(name="waste", batch=1, overcommit=1, stop="taken", partial="nothing")
    run = play(schedule, room(1), Linear(decode_token_s=1.0), Work([10, 3, 4, 2]), steps=3)
    assert [r.trained for r in run.records] == [(1,), (2,), (3,)]
    assert [r.wasted_tokens for r in run.records] == [3, 4, 2]
    assert [r.carried_tokens for r in run.records] == [0, 0, 0]


# I2


def assert_busy_time_adds_up(run: Run) -> None:
    busy = dict.fromkeys(run.records[0].busy_s, 0.0)
    for step, record in enumerate(run.records):
        for device, seconds in record.busy_s.items():
            assert seconds >= 0.0
            busy[device] += seconds
            assert busy[device] <= record.end_s * (1 + 1e-12)
        assert busy == pytest.approx(busy_seconds(run.up_to_step(step), run.lanes), abs=1e-9)


@pytest.mark.parametrize("name", CATALOG)
def test_i2_the_catalogue_is_never_busier_than_the_clock(name: str) -> None:
    """I2: busy <= wall per device; busy time is the union of the spans that the log tells of."""
    assert_busy_time_adds_up(run_of(name))


@given(runs())
def test_i2_no_schedule_is_busier_than_the_clock(run: Run) -> None:
    """I2 over any schedule, room and costs."""
    assert_busy_time_adds_up(run)


# I3


@pytest.mark.parametrize("name", CATALOG)
@pytest.mark.parametrize(("slots", "rollouts"), [(64, 5), (3, 9)])
def test_i3_memory_and_slots_suffice(name: str, slots: int, rollouts: int) -> None:
    """I3: KV peak <= capacity, and no lane holds more than its slots or than memory has room for.

    A rollout reserves its prompt and its cap, so `rollouts` reserves are room for that many.
    """
    capacity = rollouts * (16 + CAP) + 7
    lanes = room(3, trainer="own", slots=slots, kv_tokens=capacity)
    run = play(small(name), lanes, SLOPED, LENGTHS, steps=12)
    assert max(r.kv_peak_tokens for r in run.records) <= capacity
    assert max(r.kv_used for r in run.records) <= 1.0
    assert max(most_on_a_lane(run.log).values()) <= min(slots, rollouts)


@given(schedule=schedules(), lengths=lengths_of_rollouts, slots=st.sampled_from([3, 8, 64]))
def test_i3_for_any_schedule(schedule: Schedule, lengths: list[int], slots: int) -> None:
    """I3 over any schedule."""
    lanes = room(2, slots=slots, kv_tokens=500)
    run = play(schedule, lanes, DYADIC, Work(lengths, prompts=[16]), steps=5)
    assert max(r.kv_peak_tokens for r in run.records) <= 500
    reserve = 16 + (schedule.kv_reserve_tokens or CAP)
    assert max(most_on_a_lane(run.log).values()) <= min(slots, 500 // reserve)


@pytest.mark.parametrize("name", CATALOG)
def test_i3_a_small_reserve_never_oversells_memory(name: str) -> None:
    """I3: where responses outgrow their reserve, somebody has to leave.

    A lane has room for the longest response alone, and by their reserves for three.
    """
    capacity = 16 + CAP
    run = play(
        small(name, kv_reserve_tokens=2),
        room(2, trainer="own", kv_tokens=capacity),
        DYADIC,
        Work([40, 5, 35, 60, 22]),
        steps=12,
    )
    assert max(most_on_a_lane(run.log).values()) > 1
    assert max(r.kv_peak_tokens for r in run.records) <= capacity


@given(lengths=st.lists(st.integers(1, CAP), min_size=8, max_size=8), prompt=st.integers(0, 16))
def test_i3_the_peak_is_that_of_the_fullest_instant(lengths: list[int], prompt: int) -> None:
    """I3: after t tokens of each, the lane holds prompt + t for all that are at least that long."""
    run = play(small("trl"), room(1), SLOPED, Work(lengths, prompts=[prompt]), steps=1)
    t = np.arange(1, CAP + 1)
    alive = (np.array(lengths)[:, None] >= t).sum(axis=0)
    assert run.records[0].kv_peak_tokens == (alive * (prompt + t)).max()


@given(runs())
def test_what_is_prefilled_again_is_within_what_the_log_allows(run: Run) -> None:
    least, most = prefilled_again(run.log)
    assert least <= sum(r.reprefilled_tokens for r in run.records) <= most


def test_who_is_preempted_where_it_joined_is_not_counted() -> None:
    """Memory for one and a half, placed again and again: many prefills that are due never begin."""
    schedule = small("oppo", kv_reserve_tokens=2, refill="event", scoring="batch")
    lanes = room(2, trainer="own", kv_tokens=16 + CAP)
    run = play(schedule, lanes, DYADIC, Work([40, 5, 35, 60, 22]), steps=12)
    least, most = prefilled_again(run.log)
    assert least <= sum(r.reprefilled_tokens for r in run.records) < most


# I4


@settings(max_examples=150)
@given(
    schedule=st.sampled_from([*map(small, CATALOG), ADAPTIVE]) | schedules(),
    lanes=rooms(),
    lengths=lengths_of_rollouts,
    when=st.floats(0, 1),
    data=st.data(),
)
def test_i4_nobody_sees_the_future(
    schedule: Schedule, lanes: list[Lane], lengths: list[int], when: float, data: st.DataObject
) -> None:
    """I4: lengths that are not known yet at some instant change nothing up to that instant."""
    run = partial(play, schedule, lanes, DYADIC, steps=5, contention=TUG_OF_WAR, round_s=TICK)
    work = Work(lengths)
    log = run(work).log
    moments = instants(log)
    now_s = moments[int(when * (len(moments) - 1))]
    past = until(log, now_s)

    begun = {rollout for e in past if isinstance(e, Generate) for rollout, _ in e.starts}
    finished = {entry.rollout for entry in past if isinstance(entry, Finished)}
    changed = {r: work.raw(r) + data.draw(st.integers(0, 50)) for r in sorted(begun - finished)}
    later = range(max(begun) + 1, max(begun) + 1000)
    draws = data.draw(lengths_of_rollouts)
    changed |= {r: draws[r % len(draws)] for r in later}

    assert until(run(replace(work, changed=changed)).log, now_s) == past


# I5


@pytest.mark.parametrize("name", CATALOG)
def test_i5_the_seed_is_the_run(name: str) -> None:
    """I5: the same seed gives the same log, another seed another."""

    def log(seed: int) -> list[Any]:
        curve = workload.RewardCurve(start=0.0, plateau=1.0, tau_steps=10.0, noise=0.5)
        lengths = workload.Exponential(mean_tokens=300)
        work = workload.Workload(lengths, cap_tokens=1000, prompts=16, rewards=curve, seed=seed)
        lanes = room(2, trainer="own")
        return play(small(name, batch=8), lanes, seven_billion(), work, 6, cap=1000).log

    assert log(7) == log(7)
    assert log(7) != log(8)


# I6


FLAT = Constant(
    decode_token_s=0.03,
    prefill_token_s=1e-3,
    score_call_s=0.1,
    score_token_s=2e-3,
    train_call_s=2.0,
    sync_call_s=0.3,
    handoff_call_s=1e-3,
)


@pytest.mark.parametrize("name", CATALOG)
@pytest.mark.parametrize(
    "costs", [FLAT, SLOPED, seven_billion()], ids=["constant", "linear", "roofline"]
)
@pytest.mark.parametrize("scoring", ["own", "actors"])
def test_i6_half_the_costs_take_half_the_time(name: str, costs: Costs, scoring: Any) -> None:
    """I6: costs, round handling and switches halved halve every time stamp, to the last bit."""
    lanes = room(2, trainer="own", scoring=scoring)
    stretches = {"decode_stretch": 1.3, "score_stretch": 1.7}

    def log(factor: float) -> list[Any]:
        contention = Contention(**stretches, switch_s=0.05 * factor)
        scaled = costs.scaled(factor)
        return play(
            small(name), lanes, scaled, LENGTHS, contention=contention, round_s=0.01 * factor
        ).log

    assert log(0.5) == [halved(entry) for entry in log(1.0)]


# I7


speeds = st.sampled_from([1 / 4, 1 / 2, 3 / 4, 1.0])


@given(
    schedule=st.sampled_from([small("trl"), small("intra")]),
    lengths=lengths_of_rollouts,
    actors=st.integers(1, 3),
    scorers=st.integers(1, 2),
    chunk=st.integers(1, CAP),
    context_ticks=st.sampled_from([0.0, 1 / 8]),
    score_ticks=st.integers(0, 8),
    decode=speeds,
    score=speeds,
    train=speeds,
)
def test_i7_a_faster_device_never_slows_a_step(
    schedule: Schedule,
    lengths: list[int],
    actors: int,
    scorers: int,
    chunk: int,
    context_ticks: float,
    score_ticks: int,
    decode: float,
    score: float,
    train: float,
) -> None:
    """I7: with D = 0, fixed routing, no memory limit, and scoring that costs by the token.

    A scorer that costs by the call escapes this: see below.
    """
    if schedule.chunk is not None:
        schedule = replace(schedule, chunk=chunk)

    def seconds(decode: float, score: float, train: float) -> np.ndarray:
        costs = Linear(
            decode_token_s=4 * TICK * decode,
            decode_context_s=context_ticks * TICK * decode,
            prefill_token_s=TICK / 4 * decode,
            score_token_s=score_ticks * TICK / 4 * score,
            train_call_s=100 * TICK * train,
            train_token_s=TICK * train,
        )
        run = play(schedule, room(actors, scorers), costs, Work(lengths), steps=3, round_s=TICK)
        return np.array([record.seconds for record in run.records])

    assert (seconds(decode, score, train) <= seconds(1.0, 1.0, 1.0)).all()


def test_i7_does_not_hold_where_a_call_costs() -> None:
    """I7's limit, by hand: a slower scorer can win, as it finds two chunks where another found one.

    Rounds end at 1, 2, 3. Calls of 1.5 s: 1-2.5, 2.5-4, 4-5.5. Of 2 s: 1-3, and then both others.
    """

    def scored_s(call_s: float) -> float:
        costs = Linear(decode_token_s=1.0, score_call_s=call_s)
        schedule = small("intra", batch=1, chunk=1)
        return play(schedule, room(1), costs, Work([3]), steps=1).records[0].scored_s

    assert scored_s(1.5) == 5.5
    assert scored_s(2.0) == 5.0

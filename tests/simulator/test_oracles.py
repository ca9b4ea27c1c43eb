"""Oracles O1-O6: answers that are known without a simulator, as DESIGN.md numbers them."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oppo_sim import workload
from oppo_sim.costs import Constant, Costs, Linear
from oppo_sim.engine import Limits, run
from oppo_sim.policies import CATALOG, Schedule
from oppo_sim.simulator import SimPyMachine
from tests.simulator.lab import CAP, DYADIC, SLOPED, TICK, Work, play, room, seven_billion

BATCH = 112
TRL = replace(CATALOG["trl"], batch=8)
INTRA = replace(CATALOG["intra"], batch=8, chunk=7)
lengths_of_a_batch = st.lists(st.integers(1, CAP), min_size=8, max_size=8)


def lots_of_exponential_lengths() -> workload.Workload:
    return workload.Workload(
        workload.Exponential(mean_tokens=20_000),  # rounding to whole tokens is then 0.01 %
        cap_tokens=10**8,
        prompts=1,
        rewards=workload.RewardCurve(start=0.0, plateau=1.0, tau_steps=10.0, noise=0.0),
        seed=1,
    )


# O1


@pytest.mark.slow
@pytest.mark.parametrize(("overcommit", "steps"), [(0, 6400), (4, 2400), (16, 1500), (32, 1200)])
def test_o1_generation_follows_the_harmonic_numbers(overcommit: int, steps: int) -> None:
    """O1: exponential lengths, flat decode, stop at the B-th finish, the rest carried over.

    With k rollouts left the next finish is 1/(k lambda) away on average, and k goes from B + D down
    to D + 1. The exponential has no memory, so a carried rollout counts as a fresh one and the
    first step is like any other.
    """
    lengths = lots_of_exponential_lengths()
    schedule = Schedule(name="harmonic", batch=BATCH, overcommit=overcommit, stop="taken")
    costs = Constant(decode_token_s=1.0, score_call_s=3.0, train_call_s=5.0, sync_call_s=1.0)
    machine = SimPyMachine(room(actors=1, slots=1000), costs, lengths)
    waited_s = [r.taken_s - r.start_s for r in run(machine, schedule, Limits(1, 10**8), steps)]

    rate = -math.log1p(-1 / 20_000)
    left = np.arange(overcommit + 1, overcommit + BATCH + 1)
    expected = float(np.sum(1 / left)) / rate
    deviation = math.sqrt(np.sum(1 / left**2) / steps) / rate
    assert deviation < 0.0031 * expected  # so that 1 % is more than three of them
    assert np.mean(waited_s) == pytest.approx(expected, rel=0.01)


def test_o1_two_of_the_harmonic_sums_by_name() -> None:
    """O1: the numbers that DESIGN.md quotes."""
    assert math.fsum(1 / k for k in range(1, 113)) == pytest.approx(5.300, abs=5e-4)
    assert math.fsum(1 / k for k in range(17, 129)) == pytest.approx(2.052, abs=5e-4)


# O2


@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=40),
    prompts=st.lists(st.integers(1, 16), min_size=1, max_size=40),
    actors=st.integers(1, 4),
    scorers=st.integers(1, 3),
    handoff_ticks=st.integers(0, 3),
)
def test_o2_without_overlap_a_step_is_the_sum_of_its_stages(
    lengths: list[int], prompts: list[int], actors: int, scorers: int, handoff_ticks: int
) -> None:
    """O2: exactly, step by step."""
    costs = replace(DYADIC, handoff_call_s=handoff_ticks * TICK)
    work = Work(lengths, prompts)
    records = play(TRL, room(actors, scorers), costs, work, steps=4).records

    for step, record in enumerate(records):
        batch = range(step * 8, step * 8 + 8)
        response = {i: min(lengths[i % len(lengths)], CAP) for i in batch}
        prompt = {i: prompts[i % len(prompts)] for i in batch}
        decode_s = max(  # rollouts are dealt to the lanes in turn
            TICK / 4 * sum(prompt[i] for i in lane) + 4 * TICK * max(response[i] for i in lane)
            for lane in (batch[first::actors] for first in range(actors))
        )
        score_s = handoff_ticks * TICK + max(  # and to the scorers
            8 * TICK + sum(TICK * (prompt[i] + response[i] + 1) for i in pile)
            for pile in ([i for i in batch if i % scorers == n] for n in range(scorers))
        )
        train_s = 100 * TICK + TICK / 2 * sum(prompt[i] + response[i] for i in batch)
        assert record.taken_s - record.start_s == decode_s
        assert record.scored_s - record.taken_s == score_s
        assert record.train_end_s - record.train_start_s == train_s
        assert record.seconds == decode_s + score_s + train_s + 10 * TICK


# O3


@given(chunks=st.integers(1, 12), chunk=st.integers(1, 9), score_quarters=st.integers(0, 12))
def test_o3_equal_chunks_through_two_stages(chunks: int, chunk: int, score_quarters: int) -> None:
    """O3: n chunks, a to decode and b to score each, take n * max(a, b) + min(a, b)."""
    costs = Linear(decode_token_s=4 * TICK, score_token_s=score_quarters * TICK / 4)
    schedule = replace(INTRA, chunk=chunk)
    work = Work([chunks * chunk], prompts=[0], cap=chunks * chunk)
    record = play(schedule, room(1), costs, work, steps=1, cap=chunks * chunk).records[0]

    a, b = chunk * 4 * TICK, 8 * chunk * score_quarters * TICK / 4
    assert record.scored_s - record.start_s == chunks * max(a, b) + min(a, b)


# O4


def flow_shop(first: np.ndarray, second: np.ndarray) -> float:
    """Jobs pass two machines in order; a machine takes one at a time."""
    out_of_first = np.cumsum(first)
    out_of_second = 0.0
    for arrives, takes in zip(out_of_first, second, strict=True):
        out_of_second = max(out_of_second, arrives) + takes
    return out_of_second


@given(
    lengths=lengths_of_a_batch,
    prompt=st.integers(0, 16),
    chunk=st.integers(1, CAP + 3),
    token_ticks=st.integers(1, 8),
    score_quarters=st.integers(0, 8),
    round_ticks=st.integers(0, 5),
)
def test_o4_unequal_chunks_are_a_flow_shop(
    lengths: list[int],
    prompt: int,
    chunk: int,
    token_ticks: int,
    score_quarters: int,
    round_ticks: int,
) -> None:
    """O4: a round is a job: the lane decodes it, the scorer takes all that it decoded.

    The last round ends with the longest response, and each but the first begins with the handling
    of the one before. The prompts are prefilled before the first and scored with it.
    """
    costs = Linear(
        decode_token_s=token_ticks * TICK,
        prefill_token_s=TICK / 4,
        score_token_s=score_quarters * TICK / 4,
    )
    schedule = replace(INTRA, chunk=chunk)
    work = Work(lengths, prompts=[prompt])
    played = play(schedule, room(1), costs, work, steps=2, round_s=round_ticks * TICK)

    longest = max(lengths)
    starts = np.arange(0, longest, chunk)
    iterations = np.minimum(longest - starts, chunk)
    decoded = np.clip(np.array(lengths)[:, None] - starts, 0, chunk).sum(axis=0)
    decode_s = iterations * token_ticks * TICK
    decode_s[0] += 8 * prompt * TICK / 4
    decode_s[1:] += round_ticks * TICK
    decoded[0] += 8 * prompt
    expected = flow_shop(decode_s, decoded * score_quarters * TICK / 4)
    for record in played.records:
        assert record.scored_s - record.start_s == expected


# O5


@pytest.mark.parametrize("chunk", [CAP, CAP + 1, 10 * CAP])
@pytest.mark.parametrize(
    ("costs", "round_s"), [(DYADIC, 0.0), (SLOPED, 0.125), (seven_billion(), 0.01)]
)
@pytest.mark.parametrize(("actors", "scorers", "slots"), [(1, 1, 64), (3, 1, 64), (3, 2, 2)])
def test_o5_a_chunk_as_long_as_the_cap_is_no_overlap(
    chunk: int, costs: Costs, round_s: float, actors: int, scorers: int, slots: int
) -> None:
    """O5: flush = round, chunk >= cap, D = 0 equals sequential, to the last bit of each field."""
    work = Work([5, 12, 60, 7, 40, 1, 18, 9, 24, 3, 13], prompts=[16, 2, 7])
    lanes = room(actors, scorers, slots=slots)
    played = partial(play, lanes=lanes, costs=costs, work=work, steps=8, round_s=round_s)

    sequential = played(TRL).records
    for schedule in (INTRA, replace(CATALOG["oppo"], batch=8, overcommit=0)):
        streamed = played(replace(schedule, chunk=chunk)).records
        assert [r.chunk_tokens for r in streamed] == [chunk] * 8
        assert [asdict(r) | {"chunk_tokens": None} for r in streamed] == list(
            map(asdict, sequential)
        )


@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=30),
    actors=st.integers(1, 4),
    beyond=st.integers(0, 20),
)
def test_o5_whatever_the_lengths(lengths: list[int], actors: int, beyond: int) -> None:
    """O5 over drawn lengths, where some reach the cap together and others finish early."""
    played = partial(
        play, lanes=room(actors), costs=SLOPED, work=Work(lengths), steps=3, round_s=0.1
    )
    streamed = played(replace(INTRA, chunk=CAP + beyond)).records
    assert [replace(r, chunk_tokens=None) for r in streamed] == played(TRL).records


# O6


@given(
    lengths=st.lists(st.integers(1, 60), min_size=8, max_size=30),
    scoring=st.sampled_from(["chunk", "response"]),
    flush=st.sampled_from(["round", "rollout"]),
    chunk=st.integers(1, CAP),
    actors=st.integers(1, 3),
    scorers=st.integers(1, 2),
    token_ticks=st.integers(1, 8),
    score_quarters=st.integers(0, 16),
    call_ticks=st.integers(0, 8),
    train_ticks=st.integers(0, 400),
)
def test_o6_no_speed_up_beyond_the_longest_stage(
    lengths: list[int],
    scoring: Any,
    flush: Any,
    chunk: int,
    actors: int,
    scorers: int,
    token_ticks: int,
    score_quarters: int,
    call_ticks: int,
    train_ticks: int,
) -> None:
    """O6: with D = 0, speed-up <= sum of the stages / longest stage, in every step."""
    costs = Linear(
        decode_token_s=token_ticks * TICK,
        score_call_s=call_ticks * TICK,
        score_token_s=score_quarters * TICK / 4,
        train_call_s=train_ticks * TICK,
        sync_call_s=10 * TICK,
    )
    played = partial(play, lanes=room(actors, scorers), costs=costs, work=Work(lengths), steps=3)
    overlapped = replace(INTRA, chunk=chunk, scoring=scoring, flush=flush)
    for alone, step in zip(played(TRL).records, played(overlapped).records, strict=True):
        stages = (
            alone.taken_s - alone.start_s,
            alone.scored_s - alone.taken_s,
            alone.end_s - alone.scored_s,
        )
        assert alone.seconds == sum(stages)
        assert alone.seconds / step.seconds <= sum(stages) / max(stages)

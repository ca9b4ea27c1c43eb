"""The SimPy machine by itself: contention (M1), the network (M2), flat memory (M4).

Commands are submitted by hand; what the machine answers was computed by hand. M3 is in
test_sloped_lane.py.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from dataclasses import replace

import pytest

from oppo_sim.costs import Costs, Linear
from oppo_sim.engine import Lane, Limits, run
from oppo_sim.engine.contract import Done, Finished, Pause, Paused, Train
from oppo_sim.policies import CATALOG, Schedule
from oppo_sim.simulator import Contention, SimPyMachine
from tests.engine.test_two_machines import small
from tests.simulator.hand import (
    ACTOR,
    CLOCK,
    ELSEWHERE,
    LONG,
    SCORER,
    TRAINER,
    hear,
    score,
    stamps,
    starts,
)
from tests.simulator.lab import DYADIC, TICK, Work, room

SECONDS = Linear(decode_token_s=1.0, score_token_s=1.5, train_call_s=10.0)
PULL = Contention(decode_stretch=2.0, score_stretch=1.5)


def machine(
    *lengths: int,
    costs: Costs = SECONDS,
    contention: Contention = PULL,
    lanes: Sequence[Lane] = (ACTOR, SCORER, TRAINER),
    prompts: Sequence[int] = (0,),
) -> SimPyMachine:
    return SimPyMachine(lanes, costs, Work(lengths, prompts, cap=LONG), contention)


# M1: contention


def test_m1_decoding_and_scoring_stretch_each_other() -> None:
    """M1, both directions: 6 s of scoring beside decoding take 9; tokens take 2 s meanwhile.

    Round 4-8 takes 4 tokens x 2 s. At 13 the scorer is done, and of the 2 tokens that are left half
    a one is decoded.
    """
    m = machine(10)
    m.submit(starts(0, chunk=4))
    assert stamps(hear(m, 1)) == [("Emitted", 4.0)]
    m.submit(score(0, 0, 4))
    assert stamps(hear(m, 3)) == [("Emitted", 12.0), ("Done", 13.0), ("Finished", 14.5)]


def test_m1_a_lane_that_runs_dry_lets_the_scorer_go_faster() -> None:
    """M1: the last two tokens take 2 s each; 4/1.5 s of scoring are done by then, of 6 s.

    The rest is not stretched.
    """
    m = machine(6)
    m.submit(starts(0, chunk=4))
    hear(m, 1)
    m.submit(score(0, 0, 4))
    finished, done = hear(m, 2)
    assert finished == Finished(8.0, "a", 0, 6, "stop")
    assert done.at_s == pytest.approx(8.0 + (6.0 - 4.0 / 1.5), rel=1e-12)


def test_m1_a_paused_lane_lets_the_scorer_go_faster() -> None:
    """M1: as above, but the lane is emptied by a pause, asked for by a clock in another lane."""
    m = machine(99, 8, lanes=(ACTOR, SCORER, TRAINER, CLOCK))
    m.submit(starts(0, chunk=4), starts(1, lane="c"))
    hear(m, 1)
    m.submit(score(0, 0, 4))
    assert stamps(hear(m, 1)) == [("Finished", 8.0)]
    m.submit(Pause("a", (0,), keep_kv=True))
    paused, done = hear(m, 2)
    assert paused == Paused(8.0, "a", ((0, 6),), True, "asked")
    assert done.at_s == pytest.approx(8.0 + (6.0 - 4.0 / 1.5), rel=1e-12)


def test_m1_a_lane_that_gets_work_slows_the_scorer_that_runs() -> None:
    """M1: 1 s of 6 is scored alone, the other 5 beside decoding; then 2.25 tokens remain of 6."""
    m = machine(6, 1, lanes=(ACTOR, SCORER, TRAINER, CLOCK))
    m.submit(starts(1, lane="c"), score(2, 0, 4))
    assert stamps(hear(m, 1)) == [("Finished", 1.0)]
    m.submit(starts(0))
    assert stamps(hear(m, 2)) == [("Done", 8.5), ("Finished", 8.5 + 2.25)]


def test_m1_a_pause_between_two_speeds_comes_at_the_end_of_its_token() -> None:
    """M1: token 4 takes half of its time at 1 s and half at 2 s a token: it ends at 4.5."""
    other = Lane("s2", "scorer", ("clock",))
    lanes = (ACTOR, SCORER, TRAINER, CLOCK, other)
    m = machine(9, costs=replace(SECONDS, score_call_s=3.5, score_token_s=0.0), lanes=lanes)
    m.submit(starts(0), score(7, 0, 1, lane="s2"))
    assert stamps(hear(m, 1)) == [("Done", 3.5)]
    m.submit(score(8, 0, 1), Pause("a", (0,), keep_kv=True))
    assert hear(m, 1) == [Paused(4.5, "a", ((0, 4),), True, "asked")]


def test_m1_on_one_host_work_on_other_devices_is_slower_too() -> None:
    """M1: beside both others a token takes 1 + 1 + 1 s, a score twice, an update 1.5 times as long.

    At 12 the 6 s of scoring are over, 4 tokens and 8 of 10 s of the update done; the update's rest
    takes 2 x 1.25 s, in which 1.25 tokens of 2 s are decoded, and the last 4.75 take 1 s each.
    """
    host = Contention(
        decode_stretch=2.0,
        decode_train_stretch=2.0,
        score_stretch=1.5,
        score_train_stretch=1.5,
        train_decode_stretch=1.25,
        train_score_stretch=1.25,
        shared_host=True,
    )
    apart = (ACTOR, Lane("s", "scorer", ("gpu-s",)), Lane("t", "trainer", ("gpu-t",)))
    m = machine(10, contention=host, lanes=apart)
    m.submit(starts(0), score(7, 0, 4), Train(("t",), (99,), 0))
    assert stamps(hear(m, 3)) == [("Done", 12.0), ("Done", 14.5), ("Finished", 19.25)]


def test_m1_actor_lanes_of_one_host_slow_each_other() -> None:
    """M1: beside another lane a token takes 2 s: the first 4 of both are there at 8, when one has
    ended; of the other's next 6, 3 take 1 s each, and again 2 s after 11, when a third has joined.
    """
    host = Contention(decode_decode_stretch=2.0, shared_host=True)
    m = machine(4, 10, 2, contention=host, lanes=(ACTOR, CLOCK, SCORER, TRAINER))
    m.submit(starts(0), starts(1, lane="c"), score(7, 0, 5))
    assert stamps(hear(m, 2)) == [("Done", 7.5), ("Finished", 8.0)]
    m.submit(score(8, 0, 2))
    assert stamps(hear(m, 1)) == [("Done", 11.0)]
    m.submit(starts(2))
    assert stamps(hear(m, 2)) == [("Finished", 15.0), ("Finished", 16.0)]


def test_m1_a_device_changes_hands_at_a_price() -> None:
    """M1: 0.5 s whenever the device turns from one kind of work to another, and not within a kind.

    Decode 0-2; score: switch + 3 = 5.5, its second call 3 more; train: switch + 10; decode: switch.
    """
    m = machine(2, 3, contention=replace(PULL, switch_s=0.5))
    m.submit(starts(0))
    assert stamps(hear(m, 1)) == [("Finished", 2.0)]
    m.submit(score(0, 0, 2))
    assert stamps(hear(m, 1)) == [("Done", 5.5)]
    m.submit(score(0, 0, 2))
    assert stamps(hear(m, 1)) == [("Done", 8.5)]
    m.submit(Train(("t",), (0,), 0))
    assert stamps(hear(m, 1)) == [("Done", 19.0)]
    m.submit(starts(1))
    assert stamps(hear(m, 1)) == [("Finished", 22.5)]


def test_m1_a_second_scorer_on_the_device_slows_decoding_too() -> None:
    """M1: one score after the other, 9 s each; decoding is slow all along, 9 tokens in 18 s."""
    m = machine(20, lanes=(ACTOR, SCORER, SCORER._replace(name="s2"), TRAINER))
    m.submit(starts(0), score(1, 0, 4), score(2, 0, 4, lane="s2"))
    assert stamps(hear(m, 3)) == [("Done", 9.0), ("Done", 18.0), ("Finished", 29.0)]


def test_m1_a_prefill_is_stretched_too_while_a_score_runs() -> None:
    """M1: of 4 s of prefill that begin with 3 s of scoring left, 1.5 s are done by its end."""
    costs = replace(SECONDS, prefill_token_s=1.0, score_token_s=1.0)
    m = machine(1, 1, costs=costs, lanes=(ACTOR, SCORER, TRAINER, CLOCK), prompts=(4, 0))
    m.submit(score(3, 0, 3), starts(1, lane="c"))
    assert stamps(hear(m, 1)) == [("Finished", 1.0)]
    m.submit(starts(0))  # of the score 2 s are left, which take 3 s beside decoding
    assert stamps(hear(m, 2)) == [("Done", 4.0), ("Finished", 4.0 + 2.5 + 1.0)]


def test_m1_a_pause_during_a_prefill_comes_at_its_end() -> None:
    """M1: as above, and at 2 s the rollout is asked to leave; its cache is whole by then."""
    costs = replace(SECONDS, prefill_token_s=1.0, score_token_s=1.0)
    lanes = (ACTOR, SCORER, TRAINER, CLOCK)
    m = machine(9, 1, 9, 2, costs=costs, lanes=lanes, prompts=(4, 0, 0, 0))
    m.submit(score(5, 0, 3), starts(1, 3, lane="c"))
    assert stamps(hear(m, 1)) == [("Finished", 1.0)]
    m.submit(starts(0))
    assert stamps(hear(m, 1)) == [("Finished", 2.0)]
    m.submit(Pause("a", (0,), keep_kv=True))
    done, paused = hear(m, 2)
    assert done.at_s == 4.0
    assert paused == Paused(6.5, "a", ((0, 0),), True, "asked")


def test_m1_no_price_and_no_stretch_where_nothing_is_shared() -> None:
    m = machine(10, lanes=(ACTOR, ELSEWHERE, TRAINER), contention=replace(PULL, switch_s=0.5))
    m.submit(starts(0, chunk=4))
    hear(m, 1)
    m.submit(score(0, 0, 4))
    assert stamps(hear(m, 3)) == [("Emitted", 8.0), ("Finished", 10.0), ("Done", 10.0)]


def test_m1_training_waits_for_the_score_on_its_device() -> None:
    m = machine(2)
    m.submit(starts(0))
    hear(m, 1)
    m.submit(score(0, 0, 2), Train(("t",), (0,), 0), score(1, 0, 2))
    scored, trained = hear(m, 2)
    assert (scored.at_s, trained.at_s) == (5.0, 15.0)
    assert isinstance(trained, Done)
    assert trained.start_s == 5.0
    assert stamps(hear(m, 1)) == [("Done", 18.0)]


# M2: two nodes


def test_m2_the_network_delays_the_score_and_not_the_decode() -> None:
    """M2: the chunk is 3 + 4 x 0.25 s on its way; the lane does not wait for it."""
    costs = replace(SECONDS, handoff_call_s=3.0, handoff_token_s=0.25)
    m = machine(10, costs=costs, lanes=(ACTOR, ELSEWHERE, TRAINER))
    m.submit(starts(0, chunk=4))
    hear(m, 1)
    m.submit(score(0, 0, 4))
    events = hear(m, 3)
    assert stamps(events) == [("Emitted", 8.0), ("Finished", 10.0), ("Done", 14.0)]
    assert events[-1].start_s == 8.0  # type: ignore[union-attr]


def test_m2_two_nodes_cost_a_streamed_step_the_last_message_alone() -> None:
    """M2: as long as scorer and network keep up, what is exposed is the last chunk and its message.

    Chunks of 10 tokens come every 10 s; a message takes 3 s, its scoring 2.5 s.
    """
    near = Linear(decode_token_s=1.0, score_token_s=0.25)
    far = replace(near, handoff_call_s=3.0)
    schedule = small("intra", batch=1, chunk=10)
    lanes = room(1)
    for costs, message_s in ((near, 0.0), (far, 3.0)):
        m = SimPyMachine(lanes, costs, Work([40], prompts=[0]))
        (record,) = run(m, schedule, Limits(0, 40), 1)
        assert record.taken_s == 40.0
        assert record.scored_s == 40.0 + message_s + 2.5
        assert record.score_s == 4 * 2.5
        assert record.hidden_score_s == 3 * 2.5


# M4: memory


@pytest.mark.parametrize(
    "schedule",
    [*map(small, CATALOG), small("intra", chunk=1000)],
    ids=[*CATALOG, "intra, no round ever ends"],
)
def test_m4_the_memory_of_a_long_run_is_flat(schedule: Schedule) -> None:
    """M4: with no spans kept, step 1,000 holds no more than step 200 did.

    One object for each rollout in between would be 6,400 blocks.
    """
    lengths = Work([5, 12, 30, 7, 55, 1, 18, 9, 24, 3, 13])
    m = SimPyMachine(room(2, trainer="own"), DYADIC, lengths, round_s=TICK)
    blocks = {}
    for record in run(m, schedule, Limits(16, 40), 1001):
        if record.step in (200, 1000):
            gc.collect()
            blocks[record.step] = sys.getallocatedblocks()
    assert blocks[1000] - blocks[200] < 500

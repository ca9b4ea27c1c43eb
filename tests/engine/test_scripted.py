"""The scripted machine, rule by rule of the contract, against events worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from oppo_sim.engine.contract import (
    Backend,
    Chunk,
    Done,
    Drop,
    Emitted,
    Event,
    Failed,
    Finished,
    Generate,
    Lane,
    Pause,
    Paused,
    Score,
    Sync,
    Train,
)
from tests.scripted import ScriptedMachine

A = Lane("a", "actor", ("gpu0",), slots=4)
B = Lane("b", "actor", ("gpu1",), slots=4)
C = Lane("c", "actor", ("gpu2",), slots=4)
S = Lane("s", "scorer", ("gpu3",))
T = Lane("t", "trainer", ("gpu3", "gpu4"))
# Tokens of b and c end between those of a, so that their events fall into a's tokens.
TOKEN_S = {"a": 1.0, "b": 0.75, "c": 0.875}
LONG = 99


def machine(
    *lanes: Lane, lengths: Mapping[int, int], prompts: Mapping[int, int] | None = None, **costs: Any
) -> ScriptedMachine:
    """Unless given, prompts are empty; only decoding and prefill (1/8 s a token) take time."""
    free: dict[str, Any] = {
        "reward": lambda rollout, version: 100.0 * version + rollout,
        "token_s": TOKEN_S,
        "prefill_s": lambda missing, attention: missing / 8,
        "score_s": lambda sequences, tokens, attention, lasts: 0.0,
        "train_s": lambda sequences, tokens, longest: 0.0,
    }
    return ScriptedMachine(
        lanes,
        lengths=lambda rollout: lengths[rollout],
        prompts=lambda rollout: (prompts or {}).get(rollout, 0),
        **(free | costs),
    )


def generate(lane: str, *rollouts: int, chunk: int | None = None, cap: int = LONG) -> Generate:
    return Generate(lane, tuple((rollout, 0) for rollout in rollouts), cap, chunk)


def waits(backend: Backend, turns: int) -> list[Event]:
    return [event for _ in range(turns) for event in backend.wait()]


# rollouts finish (rules 1 and 3)


def test_a_batch_decodes_in_lockstep_and_then_nothing_runs() -> None:
    m = machine(A, lengths={0: 2, 1: 3})
    m.submit(generate("a", 0, 1))
    assert m.wait() == [Finished(2.0, "a", 0, 2, "stop")]
    assert m.wait() == [Finished(3.0, "a", 1, 3, "stop")]
    with pytest.raises(RuntimeError, match="nothing is running"):
        m.wait()


def test_an_idle_machine_says_so() -> None:
    with pytest.raises(RuntimeError, match="nothing is running"):
        machine(A, lengths={}).wait()


def test_the_cap_cuts_a_response_and_only_what_exceeds_it() -> None:
    m = machine(A, lengths={0: 4, 1: 3})
    m.submit(generate("a", 0, 1, cap=3))
    assert m.wait() == [Finished(3.0, "a", 0, 3, "cap"), Finished(3.0, "a", 1, 3, "stop")]


def test_the_prompts_of_a_command_are_prefilled_in_one_call() -> None:
    calls: list[tuple[int, int]] = []

    def prefill_s(missing: int, attention: int) -> float:
        calls.append((missing, attention))
        return missing / 8

    m = machine(A, lengths={0: 1, 1: 2}, prompts={0: 3, 1: 5}, prefill_s=prefill_s)
    m.submit(generate("a", 0, 1))
    assert m.wait() == [Finished(2.0, "a", 0, 1, "stop")]
    m.submit(Pause("a", (1,), keep_kv=True))
    m.wait()
    m.submit(Generate("a", ((1, 1),), LONG, None))
    assert m.wait() == [Finished(3.0, "a", 1, 2, "stop")]
    assert calls == [(8, 0)]  # none for the cache that was kept


def test_a_rollout_starts_once_where_there_is_room_and_with_the_tokens_it_has() -> None:
    for commands, why in (
        ((Generate("a", ((0, 3),), LONG, None),), "has not decoded"),
        ((generate("a", 0, cap=0),), "has finished"),
        ((generate("a", 0), generate("a", 0)), "is running"),
        ((generate("a", 0, 1, 2, 3, 4),), "no free slot"),
    ):
        m = machine(A, lengths=dict.fromkeys(range(5), 9))
        m.submit(*commands)
        with pytest.raises(ValueError, match=why):
            m.wait()


# rounds (rule 4)


def test_rounds_emit_what_still_runs_and_then_stall() -> None:
    m = machine(A, lengths={0: 5, 1: 3}, round_s=0.5)
    m.submit(generate("a", 0, 1, chunk=2))
    assert waits(m, 4) == [
        Emitted(2.0, "a", ((0, 2), (1, 2))),
        Finished(3.5, "a", 1, 3, "stop"),
        Emitted(4.5, "a", ((0, 4),)),
        Finished(6.0, "a", 0, 5, "stop"),
    ]


def test_a_token_that_finishes_one_rollout_ends_the_round_of_the_others() -> None:
    m = machine(A, lengths={0: 5, 1: 2})
    m.submit(generate("a", 0, 1, chunk=2))
    assert m.wait() == [Finished(2.0, "a", 1, 2, "stop"), Emitted(2.0, "a", ((0, 2),))]


def test_a_dry_lane_emits_nothing_and_its_next_rollouts_open_a_round() -> None:
    m = machine(A, lengths={0: 2, 1: 3, 2: 9}, round_s=0.5)
    m.submit(generate("a", 0, chunk=2))
    assert m.wait() == [Finished(2.0, "a", 0, 2, "stop")]
    m.submit(generate("a", 1, chunk=4))
    assert m.wait() == [Finished(5.0, "a", 1, 3, "stop")]
    m.submit(generate("a", 2, chunk=4))
    assert m.wait() == [Emitted(9.0, "a", ((2, 4),))]


def test_joining_rollouts_share_the_round_and_set_the_size_of_the_next() -> None:
    m = machine(A, B, lengths={0: 9, 1: 9, 2: 2}, prompts={1: 4})
    m.submit(generate("a", 0, chunk=4), generate("b", 2))
    assert m.wait() == [Finished(1.5, "b", 2, 2, "stop")]
    m.submit(generate("a", 1, chunk=1))  # joins at 2.0, and stalls the lane until 2.5
    assert waits(m, 2) == [
        Emitted(4.5, "a", ((0, 4), (1, 2))),
        Emitted(5.5, "a", ((0, 5), (1, 3))),
    ]


def test_the_next_round_opens_before_the_commands_of_its_instant() -> None:
    m = machine(A, lengths={0: LONG, 1: LONG})
    m.submit(generate("a", 0, chunk=2))
    assert m.wait() == [Emitted(2.0, "a", ((0, 2),))]
    m.submit(generate("a", 1, chunk=5))
    assert m.wait() == [Emitted(4.0, "a", ((0, 4), (1, 2)))]
    assert m.wait() == [Emitted(9.0, "a", ((0, 9), (1, 7)))]


def test_a_join_at_a_rounds_end_adds_to_its_stall() -> None:
    m = machine(A, lengths={0: LONG, 1: 1}, prompts={1: 2}, round_s=0.5)
    m.submit(generate("a", 0, chunk=2))
    m.wait()
    m.submit(generate("a", 1, chunk=2))
    assert m.wait() == [Finished(3.75, "a", 1, 1, "stop")]


# pauses (rules 2 and 5)


def test_a_pause_within_a_token_waits_for_its_end() -> None:
    m = machine(A, B, lengths={0: 9, 1: 9, 2: 2})
    m.submit(generate("a", 0, 1), generate("b", 2))
    m.wait()  # until 1.5
    m.submit(Pause("a", (1, 0), keep_kv=True))
    assert m.wait() == [Paused(2.0, "a", ((0, 2), (1, 2)), True, "asked")]


@pytest.mark.parametrize(("keep_kv", "finished_s"), [(True, 4.5), (False, 5.25)])
def test_a_kept_cache_needs_no_prefill(keep_kv: bool, finished_s: float) -> None:
    m = machine(A, lengths={0: 4}, prompts={0: 4})
    m.submit(generate("a", 0, chunk=2))
    assert m.wait() == [Emitted(2.5, "a", ((0, 2),))]
    m.submit(Pause("a", (0,), keep_kv))
    assert m.wait() == [Paused(2.5, "a", ((0, 2),), keep_kv, "asked")]
    m.submit(Generate("a", ((0, 2),), LONG, None))
    assert m.wait() == [Finished(finished_s, "a", 0, 4, "stop")]


def test_a_cache_helps_only_the_lane_that_keeps_it() -> None:
    m = machine(A, B, lengths={0: 5}, prompts={0: 4})
    m.submit(generate("a", 0, chunk=2))
    m.wait()  # until 2.5
    m.submit(Pause("a", (0,), keep_kv=True))
    m.wait()
    m.submit(Generate("b", ((0, 2),), LONG, 2))
    assert m.wait() == [Emitted(2.5 + 0.75 + 1.5, "b", ((0, 4),))]
    m.submit(Pause("b", (0,), keep_kv=True))
    m.wait()
    m.submit(Generate("a", ((0, 4),), LONG, None))  # a's cache is two tokens short: no use
    assert m.wait() == [Finished(4.75 + 1.0 + 1.0, "a", 0, 5, "stop")]


def test_a_rollout_that_starts_over_is_prefilled_again() -> None:
    m = machine(A, lengths={0: 3}, prompts={0: 4})
    m.submit(generate("a", 0, chunk=2))
    m.wait()  # until 2.5
    m.submit(Pause("a", (0,), keep_kv=False))
    m.wait()
    m.submit(generate("a", 0))
    assert m.wait() == [Finished(2.5 + 0.5 + 3.0, "a", 0, 3, "stop")]


def test_the_last_token_answers_a_pause() -> None:
    m = machine(A, B, lengths={0: 2, 1: 9, 2: 2})
    m.submit(generate("a", 0, 1), generate("b", 2))
    m.wait()  # until 1.5
    m.submit(Pause("a", (0,), keep_kv=True), Pause("a", (0, 1), keep_kv=True))
    assert m.wait() == [
        Finished(2.0, "a", 0, 2, "stop"),
        Paused(2.0, "a", ((1, 2),), True, "asked"),
    ]


def test_a_pause_at_the_lanes_boundary_takes_effect_there_in_the_next_wait() -> None:
    m = machine(A, lengths={0: 9, 1: 9}, round_s=0.5)
    m.submit(generate("a", 0, 1, chunk=2))
    assert m.wait() == [Emitted(2.0, "a", ((0, 2), (1, 2)))]
    m.submit(Pause("a", (1,), keep_kv=True))
    assert m.wait() == [Paused(2.0, "a", ((1, 2),), True, "asked")]
    assert m.wait() == [Emitted(4.5, "a", ((0, 4),))]  # who stays pays for the round's end


def test_a_round_and_what_its_end_costs_die_with_the_last_rollout() -> None:
    m = machine(A, lengths={0: 9}, round_s=0.5)
    m.submit(generate("a", 0, chunk=2))
    m.wait()
    m.submit(Pause("a", (0,), keep_kv=True))
    m.wait()
    m.submit(Generate("a", ((0, 2),), LONG, 3))
    assert m.wait() == [Emitted(5.0, "a", ((0, 5),))]


def test_a_pause_that_cuts_a_round_leaves_its_rest_to_those_who_stay() -> None:
    m = machine(A, B, lengths={0: 9, 1: 9, 2: 2})
    m.submit(generate("a", 0, 1, chunk=4), generate("b", 2))
    m.wait()  # until 1.5
    m.submit(Pause("a", (0,), keep_kv=True))
    assert waits(m, 2) == [
        Paused(2.0, "a", ((0, 2),), True, "asked"),
        Emitted(4.0, "a", ((1, 4),)),
    ]


def test_a_pause_within_a_stall_is_answered_at_its_end() -> None:
    m = machine(A, B, lengths={0: 9, 1: 9, 2: 3}, prompts={1: 4}, round_s=1.0)
    m.submit(generate("a", 0, chunk=2), generate("b", 2))
    assert m.wait() == [Emitted(2.0, "a", ((0, 2),))]
    assert m.wait() == [Finished(2.25, "b", 2, 3, "stop")]
    m.submit(Pause("a", (0,), keep_kv=True), generate("a", 1))
    assert m.wait() == [Paused(3.0, "a", ((0, 2),), True, "asked")]
    m.submit(Pause("a", (1,), keep_kv=True))  # it has joined, but was not prefilled
    assert m.wait() == [Paused(3.0, "a", ((1, 0),), False, "asked")]


def test_a_pause_within_a_prefill_keeps_what_was_prefilled() -> None:
    m = machine(A, B, lengths={0: 1, 1: 1}, prompts={0: 16})
    m.submit(generate("a", 0), generate("b", 1))
    assert m.wait() == [Finished(0.75, "b", 1, 1, "stop")]
    m.submit(Pause("a", (0,), keep_kv=True))
    assert m.wait() == [Paused(2.0, "a", ((0, 0),), True, "asked")]
    m.submit(generate("a", 0))
    assert m.wait() == [Finished(3.0, "a", 0, 1, "stop")]


def test_a_rollout_that_is_paused_before_it_joins_never_runs() -> None:
    m = machine(A, B, C, lengths={0: 9, 1: 9, 2: 2, 3: 2, 4: 9}, prompts={1: 4})
    m.submit(generate("a", 0), generate("b", 2), generate("c", 3))
    assert m.wait() == [Finished(1.5, "b", 2, 2, "stop")]
    m.submit(generate("a", 1, 4))
    assert m.wait() == [Finished(1.75, "c", 3, 2, "stop")]
    m.submit(Pause("a", (0, 1), keep_kv=True))
    assert m.wait() == [
        Paused(2.0, "a", ((0, 2),), True, "asked"),
        Paused(2.0, "a", ((1, 0),), False, "asked"),
    ]
    assert m.wait() == [Finished(11.0, "a", 4, 9, "stop")]  # without a stall for 1


def test_pauses_come_before_joins() -> None:
    full = Lane("a", "actor", ("gpu0",), slots=1)
    m = machine(full, lengths={0: 9, 1: 9})
    m.submit(generate("a", 0, chunk=2))
    m.wait()  # until 2.0
    m.submit(generate("a", 1, chunk=3))
    m.submit(Pause("a", (0,), keep_kv=True))
    assert m.wait() == [Paused(2.0, "a", ((0, 2),), True, "asked")]
    assert m.wait() == [Emitted(5.0, "a", ((1, 3),))]  # the lane was dry: a round of its own


# scores (rule 6)


def test_scores_are_charged_by_tokens_and_attention() -> None:
    calls: list[tuple[int, int, float, int]] = []

    def score_s(sequences: int, tokens: int, attention: float, lasts: int) -> float:
        calls.append((sequences, tokens, attention, lasts))
        return 1.25

    m = machine(A, S, lengths={0: 4, 1: 4}, prompts={0: 8, 1: 16}, score_s=score_s, handoff_s=0.5)
    m.submit(generate("a", 0, 1, chunk=3))  # 3 s of prefill
    assert m.wait() == [Emitted(6.0, "a", ((0, 3), (1, 3)))]
    first = Score("s", (Chunk(0, 0, 3, False), Chunk(1, 0, 2, False)))
    m.submit(first)
    m.wait()  # both finish at 7.0
    assert m.wait() == [Done(7.75, "s", first, 6.5)]
    rest = Score("s", (Chunk(0, 3, 4, True), Chunk(1, 2, 4, True)))
    m.submit(rest)
    assert m.wait() == [Done(9.5, "s", rest, 8.25, rewards=((0, 0.0), (1, 1.0)))]
    assert calls == [
        (2, 8 + 3 + 16 + 2, (11**2 + 18**2) / 2, 0),
        (2, 1 + 2, (12**2 - 11**2 + 20**2 - 18**2) / 2, 2),
    ]


def test_a_scorer_takes_one_score_at_a_time_in_order() -> None:
    other = Lane("s2", "scorer", ("gpu3",))
    m = machine(A, S, other, lengths={0: 1, 1: 1}, score_s=lambda *_: 2.0, handoff_s=0.5)
    m.submit(generate("a", 0, 1))
    m.wait()  # until 1.0
    first, second, third = (
        Score(lane, (Chunk(rollout, 0, 1, True),))
        for lane, rollout in (("s", 0), ("s", 1), ("s2", 0))
    )
    m.submit(first, second, third)
    assert m.wait() == [
        Done(3.5, "s", first, 1.5, rewards=((0, 0.0),)),
        Done(3.5, "s2", third, 1.5, rewards=((0, 0.0),)),
    ]
    assert m.wait() == [Done(5.5, "s", second, 3.5, rewards=((1, 1.0),))]


def test_a_score_must_continue_its_row_over_decoded_tokens() -> None:
    for chunk, why in (
        (Chunk(0, 1, 2, False), "no scorer cache"),
        (Chunk(0, 0, 3, False), "not decoded"),
    ):
        m = machine(A, S, lengths={0: 9})
        m.submit(generate("a", 0, chunk=2))
        m.wait()
        m.submit(Score("s", (chunk,)))
        with pytest.raises(ValueError, match=why):
            m.wait()


def test_what_takes_no_time_is_delivered_by_the_next_wait_at_the_same_instant() -> None:
    m = machine(A, S, lengths={0: 2, 1: 9})
    m.submit(generate("a", 0, 1))
    assert m.wait() == [Finished(2.0, "a", 0, 2, "stop")]
    score = Score("s", (Chunk(0, 0, 2, True),))
    m.submit(score, Pause("a", (1,), keep_kv=True))
    assert m.wait() == [
        Paused(2.0, "a", ((1, 2),), True, "asked"),
        Done(2.0, "s", score, 2.0, rewards=((0, 0.0),)),
    ]


def test_a_reward_belongs_to_the_weights_of_the_first_token() -> None:
    m = machine(A, S, lengths={0: 3, 1: 1})
    m.submit(generate("a", 0, chunk=1))
    m.wait()
    sync = Sync(("a",), 1, "keep")
    m.submit(sync)
    assert m.wait() == [Done(1.0, "a", sync, 1.0, counts=((0, 1),), kv_peak_tokens=1)]
    m.submit(generate("a", 1))
    waits(m, 2)  # 1 finishes at 2.0, 0 at 3.0
    score = Score("s", (Chunk(0, 0, 3, True), Chunk(1, 0, 1, True)))
    m.submit(score)
    assert m.wait() == [Done(3.0, "s", score, 3.0, rewards=((0, 0.0), (1, 101.0)))]


# training (rule 7)


def test_a_train_waits_for_running_scores_and_later_scores_wait_for_it() -> None:
    calls: list[tuple[int, int, int]] = []

    def train_s(sequences: int, tokens: int, longest: int) -> float:
        calls.append((sequences, tokens, longest))
        return 4.0

    apart = Lane("s2", "scorer", ("gpu5",))
    m = machine(
        *(A, S, apart, T),
        lengths={0: 1, 1: 1, 2: 2, 3: 3},
        prompts={0: 8, 1: 24},
        score_s=lambda *_: 2.0,
        train_s=train_s,
        handoff_s=0.5,
    )
    m.submit(generate("a", 0, 1, 2, 3))  # 4 s of prefill
    waits(m, 3)  # until 7.0
    before, after, elsewhere = (
        Score(lane, (Chunk(rollout, 0, 1, True),))
        for lane, rollout in (("s", 0), ("s", 2), ("s2", 3))
    )
    train = Train(("t",), (0, 1), 0)
    m.submit(before, train, after, elsewhere)
    assert waits(m, 3) == [
        Done(9.5, "s", before, 7.5, rewards=((0, 0.0),)),
        Done(9.5, "s2", elsewhere, 7.5, rewards=((3, 3.0),)),
        Done(13.5, "t", train, 9.5),
        Done(15.5, "s", after, 13.5, rewards=((2, 2.0),)),
    ]
    assert calls == [(2, 9 + 25, 25)]


def test_a_train_fails_where_rollouts_run_on_its_devices() -> None:
    colocated = Lane("t", "trainer", ("gpu0",))
    m = machine(A, colocated, lengths={0: 1, 1: 9, 2: 9}, train_s=lambda *_: 3.0)
    m.submit(generate("a", 0, 1))
    m.wait()  # until 1.0
    train = Train(("t",), (0,), 0)
    m.submit(train)
    (failed,) = m.wait()
    assert isinstance(failed, Failed)
    assert failed[:4] == (1.0, "t", train, (0,))
    m.submit(train, Pause("a", (1,), keep_kv=True))  # the pause takes effect in time
    assert m.wait() == [Paused(1.0, "a", ((1, 1),), True, "asked")]
    join = generate("a", 2)
    m.submit(join)
    (failed,) = m.wait()
    assert isinstance(failed, Failed)
    assert failed[:4] == (1.0, "a", join, (2,))
    assert m.wait() == [Done(4.0, "t", train, 1.0)]


def test_train_and_drop_free_the_caches_of_their_rollouts() -> None:
    m = machine(A, S, T, lengths={0: 9, 1: 9, 2: 1}, prompts={0: 4, 1: 4})
    m.submit(generate("a", 0, 1, chunk=2))
    m.wait()  # until 3.0: 6 tokens each
    m.submit(Pause("a", (0, 1), keep_kv=True), Score("s", (Chunk(0, 0, 2, False),)))
    m.wait()
    sync = Sync(("a",), 1, "keep")
    m.submit(Drop((0,)), sync)
    assert m.wait() == [Done(3.0, "a", sync, 3.0, kv_peak_tokens=12)]
    m.submit(generate("a", 2))
    m.wait()  # until 4.0: 6 tokens of 1, one of 2
    train = Train(("t",), (1,), 0)
    m.submit(train)
    assert m.wait() == [Done(4.0, "t", train, 4.0)]
    m.submit(sync)
    assert m.wait() == [Done(4.0, "a", sync, 4.0, kv_peak_tokens=7)]
    m.submit(sync)
    assert m.wait() == [Done(4.0, "a", sync, 4.0, kv_peak_tokens=0)]
    m.submit(generate("a", 0, chunk=3))  # a new 0, and its scorer row is gone
    m.wait()
    m.submit(Score("s", (Chunk(0, 2, 3, False),)))
    with pytest.raises(ValueError, match="no scorer cache"):
        m.wait()


def test_what_runs_cannot_be_dropped() -> None:
    m = machine(A, lengths={0: 9})
    m.submit(generate("a", 0, chunk=1))
    m.wait()
    with pytest.raises(ValueError, match="is running"):
        m.submit(Drop((0,)))


# weight swaps (rule 8)


def test_a_sync_in_flight_stops_each_lane_at_its_boundary_and_counts_at_the_swap() -> None:
    m = machine(A, B, C, lengths={0: 3, 1: 4, 2: 2}, sync_s=0.5)
    m.submit(generate("a", 0), generate("b", 1, 2))  # and c is dry
    assert m.wait() == [Finished(1.5, "b", 2, 2, "stop")]
    sync = Sync(("b", "a", "c"), 1, "keep")
    m.submit(sync)  # b stops at 1.5, a at 2.0
    assert m.wait() == [Done(2.5, "b", sync, 2.0, counts=((0, 2), (1, 2)), kv_peak_tokens=4)]
    assert waits(m, 2) == [Finished(3.5, "a", 0, 3, "stop"), Finished(4.0, "b", 1, 4, "stop")]


def test_a_token_that_stops_a_lane_for_a_sync_has_its_own_events_first() -> None:
    m = machine(A, B, lengths={0: 2, 1: 9, 2: 2}, sync_s=0.5, round_s=0.25)
    m.submit(generate("a", 0, 1, chunk=2), generate("b", 2))
    m.wait()  # until 1.5
    sync = Sync(("a",), 1, "keep")
    m.submit(sync)
    assert m.wait() == [Finished(2.0, "a", 0, 2, "stop"), Emitted(2.0, "a", ((1, 2),))]
    assert m.wait() == [Done(2.5, "a", sync, 2.0, counts=((1, 2),), kv_peak_tokens=4)]
    assert m.wait() == [Emitted(4.75, "a", ((1, 4),))]  # the stall of the round's end came last


def test_a_swap_without_length_belongs_to_the_instant_that_stops_the_last_lane() -> None:
    m = machine(A, B, lengths={0: 2, 1: 9, 2: 2})
    m.submit(generate("a", 0, 1), generate("b", 2))
    m.wait()  # until 1.5
    sync = Sync(("a", "b"), 1, "keep")
    m.submit(sync)
    assert m.wait() == [
        Finished(2.0, "a", 0, 2, "stop"),
        Done(2.0, "a", sync, 2.0, counts=((1, 2),), kv_peak_tokens=4),
    ]


def test_commands_during_a_swap_take_effect_at_its_end() -> None:
    m = machine(A, B, lengths={0: 9, 1: 9, 2: 3, 3: 1}, sync_s=1.0)
    m.submit(generate("a", 0, 1, chunk=2), generate("b", 2))
    m.wait()
    sync = Sync(("a",), 1, "keep")
    m.submit(sync)
    assert m.wait() == [Finished(2.25, "b", 2, 3, "stop")]
    m.submit(Pause("a", (0,), keep_kv=True), generate("a", 3))
    assert m.wait() == [
        Paused(3.0, "a", ((0, 2),), True, "asked"),
        Done(3.0, "a", sync, 2.0, counts=((0, 2), (1, 2)), kv_peak_tokens=4),
    ]
    assert waits(m, 2) == [Finished(4.0, "a", 3, 1, "stop"), Emitted(5.0, "a", ((1, 4),))]


def test_recompute_prefills_what_runs_and_throws_kept_caches_away() -> None:
    m = machine(A, lengths={0: 9, 1: 9}, prompts={0: 2, 1: 2}, sync_s=0.5)
    m.submit(generate("a", 0, 1, chunk=2))
    assert m.wait() == [Emitted(2.5, "a", ((0, 2), (1, 2)))]
    m.submit(Pause("a", (1,), keep_kv=True))
    m.wait()
    sync = Sync(("a",), 1, "recompute")
    m.submit(sync)
    assert m.wait() == [Done(3.0, "a", sync, 2.5, counts=((0, 2),), kv_peak_tokens=8)]
    m.submit(Generate("a", ((1, 2),), LONG, 2))  # 1/2 s for 0 and 1/2 s for 1
    assert m.wait() == [Emitted(6.0, "a", ((0, 4), (1, 4)))]


def test_recompute_covers_prefill_that_was_owed() -> None:
    m = machine(A, lengths={0: 1}, prompts={0: 8}, sync_s=0.5)
    sync = Sync(("a",), 1, "recompute")
    m.submit(generate("a", 0), sync)
    assert waits(m, 2) == [
        Done(0.5, "a", sync, 0.0, counts=((0, 0),), kv_peak_tokens=8),
        Finished(2.5, "a", 0, 1, "stop"),
    ]


def test_who_leaves_at_the_swap_is_not_prefilled_again() -> None:
    m = machine(A, B, lengths={0: 9, 1: 9, 2: 4}, prompts={0: 2, 1: 2}, sync_s=1.0)
    m.submit(generate("a", 0, 1, chunk=2), generate("b", 2))
    assert m.wait() == [Emitted(2.5, "a", ((0, 2), (1, 2)))]
    sync = Sync(("a",), 1, "recompute")
    m.submit(sync)
    assert m.wait() == [Finished(3.0, "b", 2, 4, "stop")]
    m.submit(Pause("a", (0,), keep_kv=True))  # in the swap: nothing is left to keep at its end
    assert waits(m, 2) == [
        Paused(3.5, "a", ((0, 2),), False, "asked"),
        Done(3.5, "a", sync, 2.5, counts=((0, 2), (1, 2)), kv_peak_tokens=8),
        Emitted(3.5 + 0.5 + 2.0, "a", ((1, 4),)),
    ]


# KV memory


def test_the_peak_counts_rows_before_they_leave_and_caches_that_are_kept() -> None:
    m = machine(A, B, lengths={0: 2, 1: 9, 2: 2}, prompts={0: 8, 1: 8, 2: 32})
    m.submit(generate("a", 0, 1, chunk=2))
    m.wait()  # until 4.0: 10 tokens each; 0 leaves
    m.submit(Pause("a", (1,), keep_kv=True))
    m.wait()
    sync = Sync(("a", "b"), 1, "keep")
    m.submit(sync)
    assert m.wait() == [Done(4.0, "a", sync, 4.0, kv_peak_tokens=20)]
    m.submit(sync)
    assert m.wait() == [Done(4.0, "a", sync, 4.0, kv_peak_tokens=10)]
    m.submit(generate("a", 2))
    m.wait()  # 10 + 32 at the join, 10 + 34 at the end
    m.submit(sync)
    (done,) = m.wait()
    assert isinstance(done, Done)
    assert done.kv_peak_tokens == 44
    m.submit(Generate("a", ((1, 2),), LONG, None))
    m.wait()  # its cache grows from 10 to 17
    m.submit(sync)
    (done,) = m.wait()
    assert isinstance(done, Done)
    assert done.kv_peak_tokens == 17


def test_a_prefill_counts_as_another_once_it_begins() -> None:
    """Of responses: a prompt is no part of it, and neither is what is fresh or kept."""
    m = machine(A, lengths={0: 9, 1: 9, 2: 9}, prompts={0: 8})
    sync = Sync(("a",), 1, "keep")
    m.submit(generate("a", 0, 1, chunk=2))
    m.wait()  # until 3.0: both have 2 tokens
    m.submit(Pause("a", (0,), keep_kv=False), Pause("a", (1,), keep_kv=True))
    m.wait()
    m.submit(Generate("a", ((0, 2), (1, 2), (2, 0)), LONG, 2), sync)
    (done,) = m.wait()  # before the stall
    assert isinstance(done, Done)
    assert done.reprefilled_tokens == 0
    m.wait()  # (8 + 2) / 8 s of prefill for 0, and two tokens
    m.submit(sync)
    (done,) = m.wait()
    assert isinstance(done, Done)
    assert (done.at_s, done.reprefilled_tokens) == (3.0 + 1.25 + 2.0, 2)


def test_who_leaves_at_the_boundary_where_it_joined_was_not_prefilled_again() -> None:
    small = Lane("a", "actor", ("gpu0",), slots=4, kv_tokens=9)
    m = machine(small, lengths={0: 9, 1: 9})
    m.submit(generate("a", 0, 1))
    preempted = Paused(4.0, "a", ((1, 4),), False, "memory")  # of 4 + 4, and 2 more do not fit
    assert m.wait() == [preempted]
    m.submit(Generate("a", ((1, 4),), LONG, None))
    assert m.wait() == [preempted]
    sync = Sync(("a",), 1, "keep")
    m.submit(sync)
    (done,) = m.wait()
    assert isinstance(done, Done)
    assert done.reprefilled_tokens == 0


def test_recomputed_caches_count_in_place_of_what_was_due() -> None:
    m = machine(A, lengths={0: 9, 1: 9})
    m.submit(generate("a", 0, 1, chunk=2))
    m.wait()
    m.submit(Pause("a", (1,), keep_kv=False))
    m.wait()
    sync = Sync(("a",), 1, "recompute")
    m.submit(Generate("a", ((1, 2),), LONG, 2), sync)
    m.wait()
    m.wait()  # both prefilled, and two more tokens of each
    m.submit(sync)
    (done,) = m.wait()
    assert isinstance(done, Done)
    assert done.reprefilled_tokens == 2 + 2


def test_the_youngest_rollout_is_preempted_when_memory_runs_out() -> None:
    small = Lane("a", "actor", ("gpu0",), slots=4, kv_tokens=10)
    m = machine(small, lengths={0: 6, 1: 9}, prompts={0: 2, 1: 2})
    m.submit(generate("a", 1, 0, chunk=3))  # 1/2 s of prefill; 10 tokens are held at 3.5
    assert m.wait() == [
        Emitted(3.5, "a", ((0, 3), (1, 3))),
        Paused(3.5, "a", ((1, 3),), False, "memory"),
    ]
    assert m.wait() == [Finished(6.5, "a", 0, 6, "stop")]
    m.submit(Generate("a", ((1, 3),), LONG, None))  # 5/8 s of prefill; it grows to 10, not to 11
    with pytest.raises(RuntimeError, match="alone overflows"):
        m.wait()


def test_memory_is_checked_again_after_a_join() -> None:
    small = Lane("a", "actor", ("gpu0",), slots=4, kv_tokens=10)
    m = machine(small, lengths={0: 3, 1: 9}, prompts={0: 4, 1: 4})
    m.submit(generate("a", 0, chunk=2))
    m.wait()  # until 2.5
    m.submit(generate("a", 1, chunk=2))
    assert waits(m, 2) == [
        Paused(2.5, "a", ((1, 0),), False, "memory"),
        Finished(3.5, "a", 0, 3, "stop"),
    ]


# order and hints (rule 9)


def test_an_instant_is_whole_and_sorted() -> None:
    even = {"a": 1.0, "b": 1.0}
    m = machine(
        B, A, S, lengths={0: 2, 1: 2, 2: 9, 3: 1, 4: 9}, token_s=even, score_s=lambda *_: 1.0
    )
    m.submit(generate("a", 4, 1, 0, chunk=2), generate("b", 3, 2, chunk=1))
    assert m.wait() == [Finished(1.0, "b", 3, 1, "stop"), Emitted(1.0, "b", ((2, 1),))]
    score = Score("s", (Chunk(3, 0, 1, True),))
    m.submit(score)
    assert m.wait() == [
        Finished(2.0, "a", 0, 2, "stop"),
        Finished(2.0, "a", 1, 2, "stop"),
        Emitted(2.0, "b", ((2, 2),)),
        Emitted(2.0, "a", ((4, 2),)),
        Done(2.0, "s", score, 1.0, rewards=((3, 3.0),)),
    ]


def test_an_eager_machine_stops_at_the_last_finish_or_the_first_other_event() -> None:
    m = machine(A, B, lengths={0: 1, 1: 2, 2: 3, 3: 9}, eager=True)
    m.submit(generate("a", 0, 1, 2, 3, chunk=4))
    assert [event.at_s for event in m.wait(2)] == [1.0, 2.0]
    assert m.wait(9) == [Finished(3.0, "a", 2, 3, "stop"), Emitted(4.0, "a", ((3, 4),))]
    assert m.wait(9) == [Emitted(8.0, "a", ((3, 8),))]
    assert m.wait(9) == [Finished(9.0, "a", 3, 9, "stop")]
    with pytest.raises(ValueError, match="at least 1"):
        m.wait(0)


@pytest.mark.parametrize("chunk", [None, 3])
def test_waiting_for_many_finishes_is_waiting_many_times(chunk: int | None) -> None:
    lazy, eager = carry_over(False, chunk), carry_over(True, chunk)
    assert lazy == eager
    assert len([event for event in lazy if isinstance(event, Done)]) == 6 * 2
    assert any(isinstance(event, Emitted) for event in lazy) == (chunk is not None)


def carry_over(eager: bool, chunk: int | None) -> list[Event]:
    """Six steps of OPPO in short: at the third finish all pause; train, swap, and carry on."""
    m = machine(
        *(A, B, T),
        lengths={rollout: 1 + rollout * 7 % 11 for rollout in range(60)},
        prompts={rollout: rollout % 3 for rollout in range(60)},
        train_s=lambda sequences, tokens, longest: tokens / 64,
        sync_s=0.25,
        round_s=0.125,
        eager=eager,
    )
    log: list[Event] = []
    left: dict[str, dict[int, int]] = {"a": {}, "b": {}}  # unfinished: lane -> rollout -> tokens
    admitted, finished, paused = 0, list[int](), set[int]()

    def wait(finishes: int) -> None:
        for event in m.wait(finishes):
            log.append(event)
            if isinstance(event, Finished):
                finished.append(event.rollout)
                del left[event.lane][event.rollout]
            elif isinstance(event, Paused):
                left[event.lane].update(event.counts)
                paused.update(rollout for rollout, _ in event.counts)

    for step in range(6):
        for lane, rollouts in left.items():
            for _ in range(4 - len(rollouts)):
                rollouts[admitted] = 0
                admitted += 1
            m.submit(Generate(lane, tuple(rollouts.items()), 9, chunk))
        while len(finished) < 3:
            wait(3 - len(finished))
        paused.clear()
        for lane, rollouts in left.items():
            m.submit(Pause(lane, tuple(rollouts), keep_kv=step % 2 == 0))
        while any(rollout not in paused for rollouts in left.values() for rollout in rollouts):
            wait(1)
        batch, finished[:] = tuple(finished[:3]), finished[3:]
        for command in Train(("t",), batch, step), Sync(("a", "b"), step + 1, "keep"):
            m.submit(command)
            wait(1)
    return log

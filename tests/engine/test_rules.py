"""What the rules decide, event by event; and invariant I9: how stale a trained rollout may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oppo_sim.costs import Linear
from oppo_sim.engine import EngineError, Lane, Limits, State
from oppo_sim.engine.contract import (
    Admit,
    Chunk,
    Command,
    Decision,
    Done,
    Drop,
    Emitted,
    Entry,
    Event,
    Failed,
    Finished,
    Generate,
    Pause,
    Paused,
    Plan,
    Score,
    Sync,
    Take,
    Train,
)
from oppo_sim.engine.rules import decide, finishes_needed
from oppo_sim.policies import CATALOG, Schedule
from tests.engine.test_two_machines import schedules, small
from tests.simulator.lab import CAP, DYADIC, TICK, Run, Work, play, room

A, B = Lane("a", "actor", ("gpu0",), slots=4), Lane("b", "actor", ("gpu1",), slots=4)
SCORER = Lane("s", "scorer", ("gpu2",))
SHARED = Lane("t", "trainer", ("gpu0", "gpu1"))
APART = Lane("t", "trainer", ("gpu3",))
PAIR = Schedule(name="pair", batch=2)
STREAMED = replace(PAIR, chunk=4, scoring="chunk", overcommit=1)


class Story:
    """A state that is told events, and asked what to do after each telling."""

    def __init__(self, schedule: Schedule, *lanes: Lane, cap: int = 100) -> None:
        room = {lane.name: lane for lane in lanes or (A, SCORER, SHARED)}
        self.state = State(schedule, room, Limits(10, cap))

    def tell(self, *events: Event) -> list[Command | Decision]:
        for event in events:
            self.state.apply(event)
        return decide(self.state)

    def scored(self, at_s: float, *rewards: float) -> list[Command | Decision]:
        """The taken batch is scored by one call that has just been decided."""
        assert self.state.taken is not None
        rollouts = [row.id for row in self.state.taken.rollouts]
        command = Score("s", tuple(Chunk(rollout, 0, 1, True) for rollout in rollouts))
        pairs = tuple(zip(rollouts, rewards or (0.0,) * len(rollouts), strict=True))
        return self.tell(Done(at_s, "s", command, at_s, pairs))

    def trained(self, at_s: float) -> list[Command | Decision]:
        assert self.state.training is not None
        command = Train(("t",), (), self.state.training.update)
        return self.tell(Done(at_s, "t", command, at_s))

    def synced(
        self, at_s: float, counts: tuple[tuple[int, int], ...] = ()
    ) -> list[Command | Decision]:
        lanes = tuple(actor.name for actor in self.state.actors)
        command = Sync(lanes, self.state.trained, self.state.schedule.update_kv)
        return self.tell(Done(at_s, lanes[0], command, at_s, (), counts))


def finished(rollout: int, tokens: int, at_s: float = 1.0, lane: str = "a") -> Finished:
    return Finished(at_s, lane, rollout, tokens, "stop")


def starts(lane: str, *starts: tuple[int, int], chunk: int | None = None) -> Generate:
    return Generate(lane, starts, 100, chunk)


# a step, turn by turn


def test_a_sequential_step() -> None:
    story = Story(PAIR)
    assert story.tell() == [Plan(0, None, 0), Admit(range(2)), starts("a", (0, 0), (1, 0))]
    assert story.tell(finished(1, 3)) == []
    assert story.tell(finished(0, 5)) == [
        Take((1, 0)),
        Score("s", (Chunk(1, 0, 3, True), Chunk(0, 0, 5, True))),
    ]
    assert story.scored(2.0, 0.5, 0.25) == [Train(("t",), (1, 0), 0)]
    assert story.trained(3.0) == [Sync(("a",), 1, "keep")]
    assert story.synced(4.0) == [
        Plan(1, None, 0),
        Admit(range(2, 4)),
        starts("a", (2, 0), (3, 0)),
    ]
    (record,) = story.state.records
    assert (record.taken_s, record.scored_s, record.train_end_s, record.end_s) == (1, 2, 3, 4)
    assert (record.trained, record.tokens, record.rewards) == ((1, 0), (3, 5), (0.5, 0.25))


def test_a_streamed_step_scores_the_rest_of_the_batch_before_anything_else() -> None:
    story = Story(STREAMED)
    story.tell()
    emitted = Emitted(1.0, "a", ((0, 4), (1, 4), (2, 4)))
    assert story.tell(emitted) == [
        Score("s", tuple(Chunk(rollout, 0, 4, False) for rollout in (0, 1, 2)))
    ]
    busy_with = Score("s", ())
    assert story.tell(finished(1, 6), Emitted(2.0, "a", ((0, 8), (2, 8)))) == []  # it is busy
    assert story.tell(finished(2, 9)) == [Take((1, 2))]
    assert story.tell(Done(3.0, "s", busy_with, 1.0)) == [
        Score("s", (Chunk(1, 4, 6, True), Chunk(2, 4, 9, True)))
    ]
    assert story.scored(4.0) == [  # the lane is the trainer's: first it is emptied
        Pause("a", (0,), keep_kv=True),
        Score("s", (Chunk(0, 4, 8, False),)),
    ]
    assert story.tell(Paused(4.0, "a", ((0, 11),), True, "asked")) == [Train(("t",), (1, 2), 0)]
    story.trained(5.0)
    assert story.synced(6.0) == [
        Plan(1, 4, 1),
        Admit(range(3, 5)),
        starts("a", (0, 11), (3, 0), (4, 0), chunk=4),
    ]


def test_stop_when_taken_empties_the_lanes_at_once() -> None:
    story = Story(replace(PAIR, overcommit=1, stop="taken", partial="tokens"), A, SCORER, APART)
    story.tell()
    choices = story.tell(finished(0, 3), finished(2, 3))
    assert choices[:2] == [Take((0, 2)), Pause("a", (1,), keep_kv=False)]


def test_a_trainer_apart_lets_the_rest_go_on() -> None:
    story = Story(replace(PAIR, overcommit=1), A, SCORER, APART)
    story.tell()
    story.tell(finished(0, 3), finished(2, 3))
    assert story.scored(2.0) == [Train(("t",), (0, 2), 0)]
    assert story.trained(3.0) == [Sync(("a",), 1, "keep")]


def test_a_surplus_finish_is_first_in_line() -> None:
    story = Story(replace(PAIR, overcommit=1))
    story.tell()
    story.tell(finished(0, 3), finished(1, 3), finished(2, 3))
    story.scored(2.0)
    story.trained(3.0)
    assert story.synced(4.0) == [Plan(1, None, 1), Admit(range(3, 5)), starts("a", (3, 0), (4, 0))]
    assert story.tell(finished(4, 1))[0] == Take((2, 4))


def test_a_surplus_finish_that_is_not_kept_makes_room_for_another() -> None:
    story = Story(replace(PAIR, overcommit=1, surplus="drop"))
    story.tell()
    assert story.tell(finished(0, 3), finished(1, 3), finished(2, 3)) == [
        Take((0, 1)),
        Drop((2,)),
        Score("s", (Chunk(0, 0, 3, True), Chunk(1, 0, 3, True))),
        Admit(range(3, 4)),
        starts("a", (3, 0)),
    ]


def test_the_next_batch_is_taken_while_one_trains_but_trains_after_its_weights_are_in_place() -> (
    None
):
    ahead = replace(PAIR, ahead=1, take="oldest", refill="event")
    story = Story(ahead, A, SCORER, APART)
    assert story.tell()[1:] == [Admit(range(4)), starts("a", *((r, 0) for r in range(4)))]
    story.tell(finished(0, 3), finished(1, 3))
    assert story.scored(2.0) == [Train(("t",), (0, 1), 0)]
    assert story.tell(finished(3, 4, 2.0), finished(2, 4, 2.5))[0] == Take((2, 3))
    assert story.scored(3.0) == []
    assert story.trained(4.0) == [Sync(("a",), 1, "keep")]
    assert story.synced(5.0)[:2] == [Train(("t",), (2, 3), 1), Plan(1, None, 0)][::-1]


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        ("in_flight", [Sync(("a",), 1, "keep")]),
        ("interrupt", [Pause("a", (2, 3), keep_kv=True)]),
        ("drain", []),
    ],
)
def test_running_rollouts_at_a_weight_update(update: Any, expected: list[Command]) -> None:
    story = Story(replace(PAIR, ahead=1, update=update), A, SCORER, APART)
    story.tell()
    story.tell(finished(0, 3), finished(1, 3))
    story.scored(2.0)
    assert story.trained(3.0) == expected
    if update == "interrupt":
        gone = Paused(3.5, "a", ((2, 5), (3, 5)), True, "asked")
        assert story.tell(gone) == [Sync(("a",), 1, "keep")]
    if update == "drain":
        assert story.tell(finished(2, 5, 4.0))[:1] == []
        assert Sync(("a",), 1, "keep") in story.tell(finished(3, 6, 5.0))


def test_nothing_is_begun_that_would_be_dropped_for_its_age() -> None:
    """Once a batch is taken, what the old weights begin is trained one version late at least."""
    strict = replace(PAIR, ahead=1, refill="event", stale="drop", max_staleness=0)
    story = Story(strict, A, SCORER, APART)
    story.tell()
    choices = story.tell(finished(0, 1), finished(1, 1))
    assert Pause("a", (2, 3), keep_kv=False) in choices
    choices = story.tell(Paused(1.0, "a", ((2, 1), (3, 1)), False, "asked"))
    assert choices[0] == Drop((2, 3))
    assert not any(isinstance(choice, Generate) for choice in choices)
    story.scored(2.0)
    story.trained(3.0)
    assert starts("a", (4, 0), (5, 0), (6, 0), (7, 0)) in story.synced(4.0)


def test_what_waits_to_be_dropped_with_its_group_is_not_begun_again() -> None:
    """Rollouts 2 and 3 are too old for the third batch; one stops decoding before the other."""
    schedule = replace(PAIR, group=2, ahead=1, refill="event", stale="drop", max_staleness=1)
    story = Story(schedule, A, B, SCORER, APART)
    assert story.tell()[2:] == [starts("a", (0, 0), (2, 0)), starts("b", (1, 0), (3, 0))]
    story.tell(finished(0, 1), finished(1, 1, lane="b"))
    story.scored(2.0)
    story.trained(3.0)
    assert story.synced(4.0, ((2, 5), (3, 5)))[2:] == [starts("a", (4, 0)), starts("b", (5, 0))]
    assert story.tell(finished(4, 1, 5.0), finished(5, 1, 5.0, lane="b"))[:3] == [
        Take((4, 5)),
        Pause("a", (2,), keep_kv=False),
        Pause("b", (3,), keep_kv=False),
    ]
    assert story.tell(Paused(5.5, "a", ((2, 7),), False, "asked")) == []
    assert story.tell(Paused(6.0, "b", ((3, 7),), False, "asked")) == [
        Drop((2, 3)),
        Admit(range(6, 8)),
        starts("a", (6, 0)),
        starts("b", (7, 0)),
    ]


# where rollouts go


def test_rollouts_go_to_the_least_loaded_lane_and_back_to_their_cache() -> None:
    story = Story(replace(PAIR, batch=3, overcommit=2), A, B, SCORER, SHARED)
    assert story.tell()[2:] == [
        starts("a", (0, 0), (2, 0), (4, 0)),
        starts("b", (1, 0), (3, 0)),
    ]
    story.tell(finished(1, 2, lane="b"), finished(3, 2, lane="b"), finished(0, 2))
    assert story.scored(2.0) == [Pause("a", (2, 4), keep_kv=True)]
    story.tell(Paused(2.0, "a", ((2, 7), (4, 7)), True, "asked"))
    story.trained(3.0)
    assert story.synced(4.0)[2:] == [
        starts("a", (2, 7), (4, 7), (7, 0)),  # 5 and 6 make the lanes even, 7 goes to the first
        starts("b", (5, 0), (6, 0)),
    ]


def test_without_their_cache_they_go_anywhere_and_the_oldest_first() -> None:
    story = Story(replace(PAIR, batch=3, overcommit=2, partial="tokens"), A, B, SCORER, SHARED)
    story.tell()
    story.tell(finished(1, 2, lane="b"), finished(3, 2, lane="b"), finished(0, 2))
    story.scored(2.0)
    story.tell(Paused(2.0, "a", ((2, 7), (4, 7)), False, "asked"))
    story.trained(3.0)
    assert story.synced(4.0)[2:] == [
        starts("a", (2, 7), (5, 0), (7, 0)),
        starts("b", (4, 7), (6, 0)),
    ]


def test_slots_memory_and_the_pool_hold_rollouts_back() -> None:
    small_lane = A._replace(slots=3)
    assert Story(replace(PAIR, batch=8), small_lane, SCORER, SHARED).tell()[2] == starts(
        "a", (0, 0), (1, 0), (2, 0)
    )
    room_for_two = A._replace(kv_tokens=2 * 110 + 109)
    assert Story(replace(PAIR, batch=8), room_for_two, SCORER, SHARED).tell()[2] == starts(
        "a", (0, 0), (1, 0)
    )
    pool = replace(PAIR, batch=8, pool=1, refill="event")
    story = Story(pool)
    assert story.tell()[2] == starts("a", (0, 0))
    assert story.tell(finished(0, 1)) == [starts("a", (1, 0))]


@pytest.mark.parametrize(
    ("refill", "expected"),
    [
        ("event", [[starts("a", (4, 0))], [starts("a", (5, 0))]]),
        ("idle", [[], [starts("a", (4, 0), (5, 0))]]),
        ("batch", [[], []]),
    ],
)
def test_between_steps_lanes_are_topped_up_or_left_alone(
    refill: Any, expected: list[list[Command]]
) -> None:
    lanes = (A._replace(slots=2), B._replace(slots=2), SCORER, SHARED)
    story = Story(replace(PAIR, batch=6, refill=refill), *lanes)
    story.tell()
    assert [story.tell(finished(0, 1)), story.tell(finished(2, 1))] == expected


def test_a_lane_that_holds_no_rollout_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(EngineError, match=r"lane a has KV memory for 109 tokens.* reserves 110"):
        Story(PAIR, A._replace(kv_tokens=109), SCORER, SHARED)


def test_a_machine_without_a_scorer_is_an_error() -> None:
    with pytest.raises(EngineError, match="at least one actor, one scorer and one trainer"):
        Story(PAIR, A, SHARED)


def test_what_failed_is_said() -> None:
    story = Story(PAIR)
    with pytest.raises(EngineError, match=r"Score failed on lane s at 2\.500 s .*7, 8.*: no room"):
        story.tell(Failed(2.5, "s", Score("s", ()), (7, 8), "no room"))


def test_a_dry_lane_hands_over_when_a_round_ends_elsewhere() -> None:
    """Lanes decode their rounds side by side; who is done early does not miss the end of one."""
    lanes = (A, B, SCORER, SHARED)
    story = Story(replace(PAIR, batch=4, chunk=4, scoring="chunk"), *lanes)
    story.tell()
    assert story.tell(finished(0, 1, lane="a")) == []
    assert story.tell(finished(2, 2, lane="a")) == []  # a is dry, inside the round
    assert story.tell(finished(1, 3, lane="b")) == []  # b is not
    sent = Chunk(0, 0, 1, True), Chunk(2, 0, 2, True), Chunk(1, 0, 3, True), Chunk(3, 0, 4, False)
    assert story.tell(Emitted(4.0, "b", ((3, 4),))) == [Score("s", sent)]


def test_a_running_lane_hands_over_at_its_own_rounds_end() -> None:
    story = Story(replace(PAIR, batch=4, chunk=4, scoring="chunk"), A, B, SCORER, SHARED)
    story.tell()
    assert story.tell(finished(0, 1, lane="a")) == []  # 2 still runs on a
    assert story.tell(Emitted(4.0, "b", ((1, 4), (3, 4)))) == [
        Score("s", (Chunk(1, 0, 4, False), Chunk(3, 0, 4, False)))
    ]


# how far ahead a machine may work


def test_the_finishes_that_are_needed() -> None:
    story = Story(replace(PAIR, batch=4, overcommit=2), A._replace(slots=8), SCORER, SHARED)
    story.tell()
    assert finishes_needed(story.state) == 4
    story.tell(finished(5, 1))
    assert finishes_needed(story.state) == 3
    story.tell(finished(0, 2), finished(1, 2), finished(2, 2))
    assert finishes_needed(story.state) == 2  # the batch is taken; news are that nothing runs
    at_once = replace(PAIR, batch=4, scoring="response", flush="rollout")
    story = Story(at_once)
    story.tell()
    assert finishes_needed(story.state) == 1


# I9: staleness and deferrals


def staleness(run: Run) -> list[tuple[int, ...]]:
    return [record.staleness for record in run.records]


lengths_of_rollouts = st.lists(st.integers(1, 60), min_size=1, max_size=30)


@given(lengths_of_rollouts, st.integers(1, 3))
def test_i9_sequential_training_is_never_stale(lengths: list[int], actors: int) -> None:
    """I9: trl trains what the weights in place have just decoded."""
    for name in ("trl", "intra"):
        run = play(small(name), room(actors), DYADIC, Work(lengths), steps=4)
        assert staleness(run) == [(0,) * 8] * 4
        assert all(record.deferrals == (0,) * 8 for record in run.records)
        assert all(record.stale_tokens == 0 for record in run.records)


@given(lengths_of_rollouts, st.integers(1, 3), st.integers(0, 400))
def test_i9_one_step_off_is_exactly_one_version_late(
    lengths: list[int], actors: int, train_ticks: int
) -> None:
    """I9: each batch but the first was decoded by the weights before those that it trains."""
    costs = replace(DYADIC, train_call_s=train_ticks * TICK)
    lanes = room(actors, trainer="own")
    run = play(small("one-step-off"), lanes, costs, Work(lengths), steps=6)
    assert staleness(run) == [(0,) * 8] + [(1,) * 8] * 5


@settings(max_examples=75)
@given(
    lengths=lengths_of_rollouts,
    eta=st.integers(0, 4),
    actors=st.integers(1, 3),
    slots=st.sampled_from([3, 8, 64]),
    pool=st.sampled_from([None, 5, 20]),
    train_ticks=st.integers(0, 1000),
)
def test_i9_admission_and_oldest_first_bound_staleness(
    lengths: list[int], eta: int, actors: int, slots: int, pool: int | None, train_ticks: int
) -> None:
    """I9: AReaL's eta, with D = 0: rollout i is in batch i // B, admitted eta versions before."""
    schedule = small("areal", ahead=eta, pool=pool)
    costs = replace(DYADIC, train_call_s=train_ticks * TICK)
    lanes = room(actors, trainer="own", slots=slots)
    run = play(schedule, lanes, costs, Work(lengths), steps=8)
    assert max(map(max, staleness(run))) <= eta
    for step, record in enumerate(run.records):
        assert sorted(record.trained) == list(range(8 * step, 8 * step + 8))


@settings(max_examples=150)
@given(
    schedule=schedules(),
    bound=st.integers(0, 3),
    lengths=lengths_of_rollouts,
    actors=st.integers(1, 3),
    own_trainer=st.booleans(),
)
def test_i9_what_would_be_too_stale_is_dropped(
    schedule: Schedule, bound: int, lengths: list[int], actors: int, own_trainer: bool
) -> None:
    """I9: `stale = "drop"` never trains beyond its bound, whatever else the schedule does."""
    schedule = replace(schedule, stale="drop", max_staleness=bound)
    lanes = room(actors, trainer="own" if own_trainer else "actors")
    run = play(schedule, lanes, DYADIC, Work(lengths), steps=6)
    assert max(map(max, staleness(run))) <= bound


@settings(max_examples=75)
@given(
    lengths=lengths_of_rollouts,
    overcommit=st.integers(0, 8),
    bound=st.integers(1, 3),
    group=st.sampled_from([1, 2, 4]),
)
def test_i9_what_would_be_too_stale_is_waited_for(
    lengths: list[int], overcommit: int, bound: int, group: int
) -> None:
    """I9: `stale = "wait"` does not either, where a batch has room for all that falls due."""
    schedule = Schedule(
        name="patient",
        batch=8,
        group=group,
        overcommit=overcommit,
        stale="wait",
        max_staleness=bound,
    )
    run = play(schedule, room(2), DYADIC, Work(lengths), steps=8)
    assert max(map(max, staleness(run))) <= bound
    assert run.records[-1].dropped == 0


def lateness(log: Sequence[Entry]) -> dict[int, tuple[int, int]]:
    """By hand, (staleness, deferrals) of each trained rollout, where no tokens are thrown away."""
    versions, takes = 0, 0
    oldest: dict[int, int] = {}  # the version that decoded the first token
    first_take: dict[int, int] = {}  # takes before it began
    late: dict[int, tuple[int, int]] = {}
    for entry in log:
        match entry:
            case Generate(_, starts):
                for rollout, tokens in starts:
                    if tokens == 0:  # not begun, however often it was placed
                        oldest[rollout] = versions
                    first_take.setdefault(rollout, takes)
            case Done(command=Sync()):
                versions += 1
                oldest |= {rollout: versions for rollout, tokens in entry.counts if tokens == 0}
            case Take(rollouts):
                for rollout in rollouts:
                    late[rollout] = (takes - oldest[rollout], takes - first_take[rollout])
                takes += 1
    return late


@settings(max_examples=100)
@given(
    schedule=st.sampled_from([small(name) for name in CATALOG]) | schedules(),
    lengths=lengths_of_rollouts,
    own_trainer=st.booleans(),
)
def test_i9_staleness_and_deferrals_are_counted_right(
    schedule: Schedule, lengths: list[int], own_trainer: bool
) -> None:
    """I9: both as another reader of the log counts them."""
    schedule = replace(
        schedule, partial="kv" if schedule.partial == "nothing" else schedule.partial
    )
    lanes = room(2, trainer="own" if own_trainer else "actors")
    run = play(schedule, lanes, DYADIC, Work(lengths), steps=6)
    late = lateness(run.log)
    for record in run.records:
        assert record.staleness == tuple(late[rollout][0] for rollout in record.trained)
        assert record.deferrals == tuple(late[rollout][1] for rollout in record.trained)


def test_i9_overcommitted_rollouts_by_hand() -> None:
    """I9: three in flight for batches of two, a second a token, all else in no time.

    Rollout 0 needs 10 tokens: the others beat it at 3 s and at 5 s, and it is trained at 14 s after
    two deferrals, 3 + 2 of its tokens by older weights. Then 6, as long as 5, is first in line.
    """
    schedule = Schedule(name="hand", batch=2, overcommit=1)
    work = Work([10, 2, 3, 2, 2, 9, 9, 1, 1])
    records = play(schedule, room(1), Linear(decode_token_s=1.0), work, steps=4, cap=CAP).records
    assert [r.end_s for r in records] == [3.0, 5.0, 14.0, 15.0]
    assert [r.trained for r in records] == [(1, 2), (3, 4), (0, 5), (6, 7)]
    assert [r.deferrals for r in records] == [(0, 0), (0, 0), (2, 0), (1, 0)]
    assert [r.staleness for r in records] == [(0, 0), (0, 0), (2, 0), (1, 0)]
    assert [r.stale_tokens for r in records] == [0, 0, 5, 9]
    assert [r.carried_tokens for r in records] == [3, 5, 9, 1]

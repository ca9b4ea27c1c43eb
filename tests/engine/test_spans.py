"""A log becomes spans: worked by hand, and conserved over whole runs on the scripted machine."""

import gc
import tracemalloc
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import pytest

from oppo_sim import engine
from oppo_sim.engine.contract import (
    Chunk,
    Done,
    Drop,
    Emitted,
    Entry,
    Finished,
    Generate,
    Lane,
    Limits,
    Paused,
    Plan,
    Score,
    Sync,
    Train,
)
from oppo_sim.engine.spans import SpanRecorder
from oppo_sim.policies import Schedule
from oppo_sim.records import Span, StepRecord
from tests.scripted import ScriptedMachine

LANES = {
    lane.name: lane
    for lane in (
        Lane("actor0", "actor", ("gpu0",), slots=8),
        Lane("actor1", "actor", ("gpu1",), slots=8),
        Lane("scorer", "scorer", ("gpu2",)),
        Lane("trainer0", "trainer", ("gpu0",)),
        Lane("trainer1", "trainer", ("gpu1",)),
    )
}


def spans_of(log: Sequence[Entry]) -> list[Span]:
    spans: list[Span] = []
    recorder = SpanRecorder(LANES, spans.append)
    for entry in log:
        recorder(entry)
    return spans


def test_a_decode_span_runs_from_wet_to_dry_and_is_cut_where_a_round_ends() -> None:
    assert spans_of(
        [
            Plan(0, 4, 0),
            Generate("actor0", ((0, 0), (1, 0)), 100, 4),
            Emitted(4.0, "actor0", ((0, 4), (1, 4))),
            Finished(5.0, "actor0", 0, 5, "stop"),
            Generate("actor0", ((2, 0),), 100, 4),  # joins a lane that runs: no new span
            Emitted(8.0, "actor0", ((1, 8), (2, 3))),
            Finished(9.0, "actor0", 2, 4, "stop"),
            Finished(10.0, "actor0", 1, 10, "stop"),
            Generate("actor0", ((3, 0),), 100, None),  # wet again
            Finished(13.0, "actor0", 3, 3, "stop"),
        ]
    ) == [
        Span("actor0", ("gpu0",), "decode", 0.0, 4.0, 0, 2, 8),
        Span("actor0", ("gpu0",), "decode", 4.0, 8.0, 0, 2, 1 + 4 + 3),
        Span("actor0", ("gpu0",), "decode", 8.0, 10.0, 0, 2, 2 + 1),
        Span("actor0", ("gpu0",), "decode", 10.0, 13.0, 0, 1, 3),
    ]


def test_a_pause_dries_a_lane_and_what_resumes_counts_from_where_it_was() -> None:
    assert spans_of(
        [
            Generate("actor0", ((0, 0),), 100, None),
            Paused(3.0, "actor0", ((0, 3),), True, "asked"),
            Generate("actor0", ((0, 3),), 100, None),
            Finished(5.0, "actor0", 0, 5, "stop"),
        ]
    ) == [
        Span("actor0", ("gpu0",), "decode", 0.0, 3.0, 0, 1, 3),
        Span("actor0", ("gpu0",), "decode", 3.0, 5.0, 0, 1, 2),
    ]


def test_a_sync_takes_the_decode_spans_of_its_lanes_apart() -> None:
    sync = Sync(("actor0", "actor1"), 1, "keep")
    assert spans_of(
        [
            Plan(3, None, 0),
            Generate("actor0", ((0, 0),), 100, None),
            Done(6.0, "actor0", sync, 5.0, counts=((0, 5),)),
            Plan(4, None, 0),
            Finished(8.0, "actor0", 0, 7, "cap"),
        ]
    ) == [
        Span("actor0", ("gpu0",), "decode", 0.0, 5.0, 3, 1, 5),
        Span("actor0", ("gpu0", "gpu1"), "sync", 5.0, 6.0, 3, 1, 0),
        Span("actor0", ("gpu0",), "decode", 6.0, 8.0, 4, 1, 2),
    ]


def test_scores_and_updates_count_rows_and_tokens_on_all_their_devices() -> None:
    score = Score("scorer", (Chunk(0, 0, 5, True), Chunk(1, 2, 4, False)))
    train = Train(("trainer0", "trainer1"), (0, 1), 0)
    log: list[Entry] = [
        Generate("actor0", ((0, 0), (1, 0), (2, 0)), 100, None),
        *(Finished(5.0, "actor0", rollout, 5 + rollout, "stop") for rollout in range(3)),
        score,
        Done(7.0, "scorer", score, 6.0, rewards=((0, 1.0),)),
        Drop((2,)),
        Done(9.0, "trainer0", train, 7.5),
    ]
    assert spans_of(log)[1:] == [
        Span("scorer", ("gpu2",), "score", 6.0, 7.0, 0, 2, 7, (("actor0", 5.0),)),
        Span("trainer0", ("gpu0", "gpu1"), "train", 7.5, 9.0, 0, 2, 5 + 6),
    ]


def reads(log: Sequence[Entry]) -> list[tuple[tuple[str, float], ...]]:
    return [span.reads for span in spans_of(log) if span.kind == "score"]


def test_a_score_reads_the_decode_spans_whose_tokens_it_is_given() -> None:
    first = Score("scorer", (Chunk(0, 0, 4, False),))
    second = Score("scorer", (Chunk(0, 4, 8, False), Chunk(1, 0, 3, True)))
    log: list[Entry] = [
        Generate("actor0", ((0, 0),), 100, 4),
        Generate("actor1", ((1, 0),), 100, 4),
        Emitted(4.0, "actor0", ((0, 4),)),
        first,
        Finished(5.0, "actor1", 1, 3, "stop"),
        Emitted(8.0, "actor0", ((0, 8),)),
        Emitted(12.0, "actor0", ((0, 12),)),
        Done(13.0, "scorer", first, 4.0),
        second,  # what was emitted at 12 s waits
        Done(15.0, "scorer", second, 13.0),
    ]
    assert reads(log) == [(("actor0", 4.0),), (("actor0", 8.0), ("actor1", 5.0))]


def test_a_response_scored_at_once_is_handed_over_within_its_decode_span() -> None:
    score = Score("scorer", (Chunk(0, 0, 2, True), Chunk(1, 0, 3, True)))
    log: list[Entry] = [
        Generate("actor0", ((0, 0), (1, 0), (2, 0)), 100, None),
        Finished(2.0, "actor0", 0, 2, "stop"),
        Finished(3.0, "actor0", 1, 3, "stop"),
        score,
        Done(4.0, "scorer", score, 3.0),
        Finished(9.0, "actor0", 2, 9, "stop"),
    ]
    assert reads(log) == [(("actor0", 3.0),)]  # one span, up to the last that it gave


def test_a_rollout_that_began_anew_is_not_read_where_it_was_thrown_away() -> None:
    score = Score("scorer", (Chunk(0, 0, 5, True),))
    log: list[Entry] = [
        Generate("actor0", ((0, 0),), 100, None),
        Paused(3.0, "actor0", ((0, 3),), False, "asked"),
        Generate("actor1", ((0, 0),), 100, None),
        Finished(8.0, "actor1", 0, 5, "stop"),
        score,
        Done(9.0, "scorer", score, 8.0),
    ]
    assert reads(log) == [(("actor1", 8.0),)]


SCHEDULES = [
    Schedule(name="trl", batch=4),
    Schedule(name="oppo", batch=4, overcommit=3, chunk=5, scoring="chunk"),
    Schedule(name="pushed-off", batch=4, overcommit=3, partial="tokens", stop="taken"),
    Schedule(name="recompute", batch=4, overcommit=2, refill="event", update_kv="recompute"),
]


def simulated(schedule: Schedule, steps: int) -> tuple[list[StepRecord], list[Span]]:
    spans: list[Span] = []
    machine = ScriptedMachine(
        [*list(LANES.values())[:3], Lane("trainer", "trainer", ("gpu3",))],
        lengths=lambda rollout: 1 + rollout * 37 % 29,
        prompts=lambda rollout: 2,
        reward=lambda rollout, version: 0.0,
        token_s=1.0,
        prefill_s=lambda tokens, pairs: 0.25,
        score_s=lambda rows, tokens, pairs, lasts: 0.5 * tokens,
        train_s=lambda rows, tokens, longest: 7.0,
        sync_s=0.5,
    )
    recorder = SpanRecorder(machine.lanes(), spans.append)
    records = engine.run(machine, schedule, Limits(2, 29), steps, recorder)
    return list(records), spans


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule.name)
def test_every_token_is_decoded_in_one_span_and_none_is_lost(schedule: Schedule) -> None:
    records, spans = simulated(schedule, 40)
    decoded = sum(span.tokens for span in spans if span.kind == "decode")
    trained = sum(sum(record.tokens) for record in records)
    assert decoded == trained + records[-1].carried_tokens
    assert sum(span.tokens for span in spans if span.kind == "train") == trained


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule.name)
def test_spans_of_a_lane_do_not_overlap_and_stay_in_their_step(schedule: Schedule) -> None:
    records, spans = simulated(schedule, 40)
    by_lane = defaultdict(list)
    for span in spans:
        record = records[span.step]
        assert span.end_s <= record.end_s
        assert span.end_s >= record.start_s
        by_lane[span.lane, span.kind].append(span)
    for of_lane in by_lane.values():
        for earlier, later in pairwise(of_lane):
            assert earlier.end_s <= later.start_s
    assert [span.step for span in by_lane["trainer", "train"]] == list(range(40))


def test_a_score_and_an_update_are_busy_as_long_as_their_spans() -> None:
    records, spans = simulated(SCHEDULES[0], 40)
    for device, kind in (("gpu2", "score"), ("gpu3", "train")):
        busy_s = sum(record.busy_s[device] for record in records)
        assert busy_s == sum(s.end_s - s.start_s for s in spans if s.kind == kind)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule.name)
def test_a_score_reads_only_what_was_decoded_before_it(schedule: Schedule) -> None:
    _, spans = simulated(schedule, 40)
    decoding = [span for span in spans if span.kind == "decode"]
    for score in (span for span in spans if span.kind == "score"):
        assert score.reads
        for lane, at_s in score.reads:
            assert at_s <= score.start_s
            (read,) = [s for s in decoding if s.lane == lane and s.start_s < at_s <= s.end_s]
            assert read.tokens
    assert {s.kind for s in spans if s.reads} == {"score"}


def test_a_longer_run_begins_with_the_spans_of_a_shorter_one() -> None:
    shorter, longer = simulated(SCHEDULES[1], 10)[1], simulated(SCHEDULES[1], 20)[1]
    assert longer[: len(shorter)] == shorter


def test_the_recorder_forgets_what_is_over() -> None:
    recorder = SpanRecorder(LANES, lambda span: None)

    def step(first: int) -> None:
        rollouts = tuple(range(first, first + 8))
        recorder(Generate("actor0", tuple((r, 0) for r in rollouts), 100, None))
        for rollout in rollouts:
            recorder(Finished(float(first), "actor0", rollout, 5, "stop"))
        score = Score("scorer", tuple([Chunk(rollout, 0, 5, True) for rollout in rollouts[:4]]))
        recorder(score)
        recorder(Done(float(first), "scorer", score, 0.0))
        recorder(Drop(rollouts[4:]))
        recorder(Done(float(first), "trainer0", Train(("trainer0",), rollouts[:4], first), 0.0))

    tracemalloc.start()
    held = []
    for steps in (range(8, 8_000, 8), range(8_000, 40_000, 8)):
        for first in steps:
            step(first)
        gc.collect()
        held.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert held[1] - held[0] < 50_000  # free lists of the interpreter; 32,000 rollouts went by

"""A lane where KV traffic matters (M3): its closed form against a loop over its tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oppo_sim.costs import DecodeLaw
from oppo_sim.engine.contract import Counts, Done, Event, Finished, Generate, Pause, Paused
from oppo_sim.simulator import Contention, SimPyMachine
from tests.simulator.hand import ACTOR, ELSEWHERE, LONG, SCORER, hear, score, starts
from tests.simulator.lab import Work, known_counts

PREFILL_S = 0.003  # per token
KV_BOUND = DecodeLaw.of((0.02, 0.0, 0.0), (0.015, 0.0, 1e-4), (0.001, 0.004, 3e-5))


@dataclass(frozen=True)
class KvBound:
    """Decoding in three regimes; a score is an alarm clock, set to milliseconds.

    Tokens end at multiples of 10 us, the alarm rings between them.
    """

    @property
    def decode(self) -> DecodeLaw:
        return KV_BOUND

    @property
    def by_row(self) -> None:
        """Sums are enough."""

    def prefill_s(self, tokens: int, attention: float) -> float:
        return PREFILL_S * tokens

    def score_s(self, sequences: int, tokens: int, attention: float, lasts: int) -> float:
        return tokens / 1000 + 3.3e-6

    def train_s(self, sequences: int, tokens: int, longest: int) -> float:
        return 1.0

    def sync_s(self) -> float:
        return 0.1

    def handoff_s(self, tokens: int) -> float:
        return 0.0

    def scaled(self, factor: float) -> KvBound:
        raise NotImplementedError


@dataclass(frozen=True)
class Outside:
    """What happens to a lane: rollouts are taken out and come back, and for a while it is slow."""

    absent: frozenset[int] = frozenset()
    leave_s: float = inf
    return_s: float = inf
    slow_from_s: float = inf
    slow_until_s: float = inf
    stretch: float = 1.0

    def after(self, now_s: float, work_s: float) -> float:
        """When work that begins now is done."""
        for until_s, stretch in ((self.slow_from_s, 1.0), (self.slow_until_s, self.stretch)):
            fits_s = max(0.0, until_s - now_s) / stretch
            if work_s <= fits_s:
                return now_s + work_s * stretch
            now_s, work_s = max(now_s, until_s), work_s - fits_s
        return now_s + work_s


class TokenByToken:
    """One lane as a loop over its tokens; `events` are (kind, time, counts)."""

    def __init__(
        self,
        lengths: Sequence[int],
        prompts: Sequence[int],
        chunk: int | None,
        *,
        round_s: float = 0.0,
        kv_tokens: int = LONG,
        outside: Outside = Outside(),
    ) -> None:
        self.lengths, self.prompts, self.chunk, self.round_s = lengths, prompts, chunk, round_s
        self.kv_tokens = kv_tokens
        self.tokens = dict.fromkeys(range(len(lengths)), 0)
        self.running = set(self.tokens)
        self.away: set[int] = set()
        self.in_round = 0
        self.events: list[tuple[str, float, Counts]] = []
        self._make_room(0.0)
        now_s = outside.after(0.0, PREFILL_S * sum(prompts[r] for r in self.running))
        present = bool(outside.absent)  # those who will be absent still are here
        while self.running or self.away:
            if present and now_s >= outside.leave_s:
                present = False
                self.away = set(outside.absent & self.running)
                self.running -= self.away
                self._say("Paused", now_s, self.away)
            if self.away and (now_s >= outside.return_s or not self.running):
                now_s = max(now_s, outside.return_s)
                if not self.running:
                    self.in_round = 0
                self.running, self.away = self.running | self.away, set()
            now_s = self._iterate(now_s, outside)

    def _iterate(self, now_s: float, outside: Outside) -> float:
        now_s = outside.after(now_s, KV_BOUND.token_s(len(self.running), self._context()))
        self.in_round += 1
        for rollout in sorted(self.running):
            self.tokens[rollout] += 1
            if self.tokens[rollout] == self.lengths[rollout]:
                self.running.remove(rollout)
                self._say("Finished", now_s, {rollout})
        end_s = now_s
        if self.in_round == self.chunk and self.running:
            self._say("Emitted", now_s, self.running)
            self.in_round, end_s = 0, outside.after(now_s, self.round_s)
        self._make_room(now_s)
        return end_s

    def _make_room(self, now_s: float) -> None:
        """The youngest leave until one more token of each fits."""
        gone: set[int] = set()
        while self.running and self._context() + len(self.running) > self.kv_tokens:
            gone.add(max(self.running))
            self.running -= gone
        if gone:
            self._say("Paused", now_s, gone)

    def _context(self) -> int:
        return sum(self.prompts[r] + self.tokens[r] for r in self.running)

    def _say(self, kind: str, at_s: float, rollouts: Iterable[int]) -> None:
        counts = tuple((r, self.tokens[r]) for r in sorted(rollouts))
        self.events.append((kind, at_s, counts))


def assert_same(events: Iterable[Event], oracle: TokenByToken) -> None:
    got = [event for event in events if not isinstance(event, Done)]
    assert [(type(event).__name__, known_counts(event)) for event in got] == [
        (kind, counts) for kind, _, counts in oracle.events
    ]
    want_s = [at_s for _, at_s, _ in oracle.events]
    assert [event.at_s for event in got] == pytest.approx(want_s, rel=1e-9, abs=1e-9)


batches = st.lists(st.tuples(st.integers(1, 120), st.integers(0, 300)), min_size=1, max_size=8)
stalls = st.sampled_from([0.0, 0.05])
chunks = st.none() | st.integers(1, 50)


@settings(max_examples=200)
@given(batch=batches, chunk=chunks, round_s=stalls)
def test_m3_finishes_and_rounds_of_a_sloped_lane(
    batch: list[tuple[int, int]], chunk: int | None, round_s: float
) -> None:
    """M3: closed form and token by token agree on every finish and round, to 1e-9."""
    lengths, prompts = zip(*batch, strict=True)
    m = SimPyMachine(
        (ACTOR, ELSEWHERE), KvBound(), Work(lengths, prompts, cap=LONG), round_s=round_s
    )
    m.submit(starts(*range(len(batch)), chunk=chunk))
    oracle = TokenByToken(lengths, prompts, chunk, round_s=round_s)
    assert_same(hear(m, len(oracle.events)), oracle)


@settings(max_examples=200)
@given(
    batch=batches,
    chunk=chunks,
    away=st.sets(st.integers(0, 7), min_size=1),
    leave_ms=st.integers(1, 4000),
    stay_ms=st.integers(1, 2000),
)
def test_m3_pauses_of_a_sloped_lane(
    batch: list[tuple[int, int]], chunk: int | None, away: set[int], leave_ms: int, stay_ms: int
) -> None:
    """M3: some rollouts are paused in the middle of a token and join again in the middle of one."""
    lengths, prompts = zip(*batch, strict=True)
    m = SimPyMachine((ACTOR, ELSEWHERE), KvBound(), Work(lengths, prompts, cap=LONG))
    m.submit(starts(*range(len(batch)), chunk=chunk), score(99, 0, leave_ms))

    running = set(range(len(batch)))
    paused: tuple[tuple[int, int], ...] = ()
    events: list[Event] = []
    alarms: list[float] = []
    gone = frozenset[int]()
    while running or paused:
        for event in m.wait():
            events.append(event)
            if isinstance(event, Finished):
                running.remove(event.rollout)
            elif isinstance(event, Paused):
                paused = event.counts
                running -= dict(paused).keys()
                m.submit(score(99, 0, stay_ms))
            elif isinstance(event, Done):
                alarms.append(event.at_s)
                if len(alarms) == 1:
                    gone = frozenset(away & running)
                    m.submit(*[Pause("a", tuple(gone), keep_kv=True)] if gone else ())
                else:
                    m.submit(Generate("a", paused, LONG, chunk))
                    running |= dict(paused).keys()
                    paused = ()
    # a second alarm rang if there was something to pause
    outside = Outside(gone, *alarms) if len(alarms) == 2 else Outside()
    assert_same(events, TokenByToken(lengths, prompts, chunk, outside=outside))


@settings(max_examples=200)
@given(
    batch=batches,
    chunk=chunks,
    round_s=stalls,
    wait_ms=st.integers(1, 4000),
    slow_ms=st.integers(1, 4000),
)
def test_m3_contention_on_a_sloped_lane(
    batch: list[tuple[int, int]], chunk: int | None, round_s: float, wait_ms: int, slow_ms: int
) -> None:
    """M3: for a while, from the middle of a token or stall to that of another, all is stretched."""
    lengths, prompts = zip(*batch, strict=True)
    m = SimPyMachine(
        (ACTOR, SCORER, ELSEWHERE._replace(name="clock")),
        KvBound(),
        Work(lengths, prompts, cap=LONG),
        Contention(decode_stretch=2.5),
        round_s,
    )
    m.submit(
        starts(*range(len(batch)), chunk=chunk),
        score(99, 0, wait_ms, lane="clock"),
    )
    events: list[Event] = []
    while sum(isinstance(event, Finished | Done) for event in events) < len(batch) + 2:
        for event in m.wait():
            events.append(event)
            if isinstance(event, Done) and event.lane == "clock":
                m.submit(score(99, 0, slow_ms))
    slow_from_s, slow_until_s = [event.at_s for event in events if isinstance(event, Done)]
    outside = Outside(slow_from_s=slow_from_s, slow_until_s=slow_until_s, stretch=2.5)
    assert_same(events, TokenByToken(lengths, prompts, chunk, round_s=round_s, outside=outside))


@settings(max_examples=200)
@given(batch=batches, chunk=chunks, round_s=stalls, spare=st.integers(0, 600))
def test_m3_preemptions_of_a_sloped_lane(
    batch: list[tuple[int, int]], chunk: int | None, round_s: float, spare: int
) -> None:
    """M3: where memory runs short the youngest leave, at the very token."""
    lengths, prompts = zip(*batch, strict=True)
    kv_tokens = max(length + prompt for length, prompt in batch) + spare
    lanes = (ACTOR._replace(kv_tokens=kv_tokens), ELSEWHERE)
    m = SimPyMachine(lanes, KvBound(), Work(lengths, prompts, cap=LONG), round_s=round_s)
    m.submit(starts(*range(len(batch)), chunk=chunk))
    oracle = TokenByToken(lengths, prompts, chunk, round_s=round_s, kv_tokens=kv_tokens)
    events = hear(m, len(oracle.events))
    assert_same(events, oracle)
    preempted = [event for event in events if isinstance(event, Paused)]
    assert all((event.why, event.kv_kept) == ("memory", False) for event in preempted)

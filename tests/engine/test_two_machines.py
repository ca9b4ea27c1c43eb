"""Two machines, one loop: the same schedule makes the same log on both, to the last bit.

Costs are multiples of 1/64 s, so that sums of floats are exact whatever their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oppo_sim.costs.interface import DecodeLaw
from oppo_sim.engine import Lane, Limits, run
from oppo_sim.engine.contract import Backend, Entry
from oppo_sim.policies import CATALOG, ProbedChunk, RewardSlope, Schedule, StragglerShare
from oppo_sim.simulator import SimPyMachine
from tests.scripted import ScriptedMachine

TICK = 1 / 64
CAP = 40


@dataclass(frozen=True)
class Costs:
    """A dyadic cost model for both machines."""

    token_s: float = 4 * TICK
    prefill_token_s: float = TICK / 4
    score_call_s: float = 8 * TICK
    score_token_s: float = TICK
    train_call_s: float = 100 * TICK
    sync_call_s: float = 10 * TICK
    handoff_call_s: float = 0.0

    @property
    def decode(self) -> DecodeLaw:
        return DecodeLaw.of((self.token_s, 0.0, 0.0))

    @property
    def by_row(self) -> None:
        """Sums are enough."""

    def prefill_s(self, tokens: int, attention: float) -> float:
        return self.prefill_token_s * tokens

    def score_s(self, sequences: int, tokens: int, attention: float, lasts: int) -> float:
        return self.score_call_s + self.score_token_s * tokens + TICK * (sequences + lasts)

    def train_s(self, sequences: int, tokens: int, longest: int) -> float:
        return self.train_call_s + TICK * longest

    def sync_s(self) -> float:
        return self.sync_call_s

    def handoff_s(self, tokens: int) -> float:
        return self.handoff_call_s


@dataclass(frozen=True)
class Work:
    """Lengths by rollout, repeated; the cap is censored by hand."""

    lengths: tuple[int, ...]
    prompts: tuple[int, ...] = (4, 9, 1)

    def raw(self, rollout: int) -> int:
        return self.lengths[rollout % len(self.lengths)]

    def response_tokens(self, rollout: int) -> int:
        return min(self.raw(rollout), CAP)

    def stop_reason(self, rollout: int) -> str:
        return "cap" if self.raw(rollout) > CAP else "stop"

    def prompt_tokens(self, rollout: int) -> int:
        return self.prompts[rollout % len(self.prompts)]

    def reward(self, rollout: int, version: int) -> float:
        return (rollout * 7 % 11) / 8 + min(version, 6) / 4


def machine_room(
    actors: int = 2,
    scorers: int = 1,
    own_trainer: bool = False,
    slots: int = 64,
    kv_tokens: int | None = None,
) -> list[Lane]:
    gpus = [f"gpu{i}" for i in range(actors)]
    lanes = [Lane(f"actor{i}", "actor", (gpu,), slots, kv_tokens) for i, gpu in enumerate(gpus)]
    lanes += [Lane(f"scorer{i}", "scorer", (f"gpu{actors + i}",)) for i in range(scorers)]
    devices = ("gpu-t0", "gpu-t1") if own_trainer else tuple(gpus)
    return [*lanes, Lane("trainer", "trainer", devices)]


def scripted(
    lanes: Sequence[Lane], work: Work, costs: Costs, round_s: float, eager: bool
) -> Backend:
    return ScriptedMachine(
        lanes,
        lengths=work.raw,
        prompts=work.prompt_tokens,
        reward=work.reward,
        token_s=costs.token_s,
        prefill_s=costs.prefill_s,
        score_s=costs.score_s,
        train_s=costs.train_s,
        sync_s=costs.sync_call_s,
        round_s=round_s,
        handoff_s=costs.handoff_call_s,
        eager=eager,
    )


def log_of(machine: Backend, schedule: Schedule, steps: int) -> list[Entry]:
    log: list[Entry] = []
    list(islice(run(machine, schedule, Limits(16, CAP), steps, log.append), steps))
    return log


def assert_equal_logs(
    schedule: Schedule,
    lanes: Sequence[Lane],
    work: Work,
    costs: Costs,
    round_s: float = 0.0,
    steps: int = 6,
) -> None:
    expected = log_of(scripted(lanes, work, costs, round_s, eager=False), schedule, steps)
    eager = log_of(scripted(lanes, work, costs, round_s, eager=True), schedule, steps)
    simulated = log_of(SimPyMachine(lanes, costs, work, round_s=round_s), schedule, steps)  # type: ignore[arg-type]
    for place, (want, ahead, got) in enumerate(zip(expected, eager, simulated, strict=False)):
        assert want == got, f"entry {place}"
        assert want == ahead, f"entry {place}: wait(k) is not k times wait(1)"
    assert len(expected) == len(simulated) == len(eager)


def small(name: str, **changes: object) -> Schedule:
    """A schedule of the catalogue, for batches of 8."""
    schedule = replace(CATALOG[name], batch=8)
    if schedule.overcommit != 0:
        schedule = replace(schedule, overcommit=4)
    if schedule.chunk is not None:
        schedule = replace(schedule, chunk=6)
    if schedule.group > 1:
        schedule = replace(schedule, group=2)
    return replace(schedule, **changes)  # type: ignore[arg-type]


DISAGGREGATED = ("one-step-off", "areal", "pipeline-rl")
LENGTHS = Work((5, 12, 30, 7, 55, 1, 18, 9, 24, 3, 13))


@pytest.mark.parametrize("name", CATALOG)
def test_every_schedule_of_the_catalogue_makes_equal_logs(name: str) -> None:
    lanes = machine_room(own_trainer=name in DISAGGREGATED)
    assert_equal_logs(small(name), lanes, LENGTHS, Costs(), steps=12)


@pytest.mark.parametrize("name", ["oppo", "areal", "april", "pipeline-rl"])
def test_equal_logs_with_round_costs_and_a_network(name: str) -> None:
    lanes = machine_room(actors=3, scorers=2, own_trainer=name in DISAGGREGATED, slots=4)
    costs = Costs(handoff_call_s=3 * TICK)
    assert_equal_logs(small(name), lanes, LENGTHS, costs, round_s=5 * TICK, steps=10)


def test_equal_logs_with_adaptive_policies() -> None:
    chunk = ProbedChunk(candidates=(3, 6, 12), every=5)
    for overcommit in (
        RewardSlope(start=2, most=6, over=2),
        StragglerShare(start=2, most=6, over=2),
    ):
        schedule = replace(CATALOG["oppo"], batch=8, chunk=chunk, overcommit=overcommit)
        assert_equal_logs(schedule, machine_room(), LENGTHS, Costs(), steps=20)


AXES = {
    "overcommit": st.integers(0, 5),
    "ahead": st.integers(0, 2),
    "pool": st.sampled_from([None, 8, 11]),
    "refill": st.sampled_from(["batch", "idle", "event"]),
    "take": st.sampled_from(["finished", "oldest"]),
    "surplus": st.sampled_from(["keep", "drop"]),
    "staleness": st.sampled_from([("keep", None), ("wait", 1), ("drop", 2)]),
    "stop": st.sampled_from(["taken", "train"]),
    "partial": st.sampled_from(["kv", "tokens", "nothing"]),
    "update": st.sampled_from(["in_flight", "interrupt", "drain"]),
    "update_kv": st.sampled_from(["keep", "recompute"]),
    "chunk": st.sampled_from([None, 3, 7, CAP]),
    "scoring": st.sampled_from(["batch", "response", "chunk"]),
    "flush": st.sampled_from(["round", "rollout"]),
    "group": st.sampled_from([1, 2, 4]),
    "kv_reserve_tokens": st.sampled_from([None, 5, 20]),
}


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Any schedule that the axes allow, for batches of 8."""
    choices = {axis: draw(values) for axis, values in AXES.items()}
    stale, bound = choices.pop("staleness")
    try:
        return Schedule(name="drawn", batch=8, stale=stale, max_staleness=bound, **choices)
    except ValueError:
        from hypothesis import reject

        reject()


@settings(max_examples=150)
@given(
    schedule=schedules(),
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=30),
    own_trainer=st.booleans(),
    actors=st.integers(1, 3),
    scorers=st.integers(1, 2),
    slots=st.sampled_from([8, 64]),
    kv_tokens=st.sampled_from([None, 16 + CAP, 150]),
    round_ticks=st.sampled_from([0, 5]),
    handoff_ticks=st.sampled_from([0, 3]),
    token_ticks=st.sampled_from([1, 4]),
    score_ticks=st.sampled_from([0, 1, 6]),
)
def test_any_schedule_makes_equal_logs(
    schedule: Schedule,
    lengths: list[int],
    own_trainer: bool,
    actors: int,
    scorers: int,
    slots: int,
    kv_tokens: int | None,
    round_ticks: int,
    handoff_ticks: int,
    token_ticks: int,
    score_ticks: int,
) -> None:
    costs = Costs(
        token_s=token_ticks * TICK,
        handoff_call_s=handoff_ticks * TICK,
        score_token_s=score_ticks * TICK / 4,
    )
    lanes = machine_room(actors, scorers, own_trainer, slots, kv_tokens)
    assert_equal_logs(schedule, lanes, Work(tuple(lengths)), costs, round_ticks * TICK)

"""A laboratory for the SimPy machine: lengths by hand, rooms of lanes, runs with their whole log.

Costs are multiples of 1/64 s where a test wants exact sums: floats add up without rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from oppo_sim.costs import Actor, Costs, Hosted, Linear, Roofline, Scorer, Trainer, card, model
from oppo_sim.engine import Lane, Limits, run
from oppo_sim.engine.contract import Done, Emitted, Entry, Event, Failed, Finished, Paused, Sync
from oppo_sim.policies import Schedule
from oppo_sim.records import StepRecord
from oppo_sim.simulator import Contention, SimPyMachine

TICK = 1 / 64
CAP = 40
PROMPT_CAP = 16
NO_CONTENTION = Contention()
EVENTS = (Finished, Emitted, Paused, Done, Failed)

DYADIC = Linear(
    decode_token_s=4 * TICK,
    prefill_token_s=TICK / 4,
    score_call_s=8 * TICK,
    score_token_s=TICK,
    score_response_s=TICK,
    train_call_s=100 * TICK,
    train_token_s=TICK / 2,
    sync_call_s=10 * TICK,
)
SLOPED = Linear(  # KV traffic matters: each token of context slows the next iteration
    decode_token_s=0.03,
    decode_rollout_s=2e-4,
    decode_context_s=1e-4,
    prefill_token_s=1e-3,
    score_call_s=0.1,
    score_token_s=2e-3,
    train_call_s=2.0,
    train_token_s=3e-3,
    sync_call_s=0.3,
)


def seven_billion(**changes: object) -> Roofline:
    """A 7B actor and reward model on H200s."""
    qwen = model("Qwen2.5-7B")
    return Roofline(
        card=card("H200"),
        actor=Actor(model=qwen),
        scorer=Scorer(models=(Hosted(qwen),)),
        trainer=Trainer(trained=(Hosted(qwen, "vocab"), Hosted(qwen)), devices=2),
        **changes,  # type: ignore[arg-type]
    )


@dataclass(frozen=True)
class Work:
    """Rollout i has the i-th length and the i-th prompt of lists that start over at their end."""

    lengths: Sequence[int]  # before the cap
    prompts: Sequence[int] = (4, 9, 1)
    cap: int = CAP
    changed: Mapping[int, int] = field(default_factory=dict)  # lengths of single rollouts

    def raw(self, rollout: int) -> int:
        return self.changed.get(rollout, self.lengths[rollout % len(self.lengths)])

    def response_tokens(self, rollout: int) -> int:
        return min(self.raw(rollout), self.cap)

    def stop_reason(self, rollout: int) -> Literal["stop", "cap"]:
        return "cap" if self.raw(rollout) > self.cap else "stop"

    def prompt_tokens(self, rollout: int) -> int:
        return self.prompts[rollout % len(self.prompts)]

    def reward(self, rollout: int, version: int) -> float:
        return (rollout * 7 % 11) / 8 + min(version, 6) / 4


def room(
    actors: int = 2,
    scorers: int = 1,
    *,
    trainer: Literal["actors", "own"] = "actors",
    scoring: Literal["own", "actors"] = "own",
    slots: int = 64,
    kv_tokens: int | None = None,
) -> list[Lane]:
    """Actors on a device each; scorers and the trainer gang apart, or on those devices."""
    gpus = [f"gpu{i}" for i in range(actors)]
    apart = [f"gpu-s{i}" for i in range(scorers)]
    lanes = [Lane(f"actor{i}", "actor", (gpu,), slots, kv_tokens) for i, gpu in enumerate(gpus)]
    for i in range(scorers):
        devices = (apart[i],) if scoring == "own" else (gpus[i % actors],)
        lanes.append(Lane(f"scorer{i}", "scorer", devices))
    return [*lanes, Lane("trainer", "trainer", ("gpu-t",) if trainer == "own" else tuple(gpus))]


@dataclass(frozen=True)
class Run:
    """What a run leaves behind, and what it was made of."""

    schedule: Schedule
    lanes: Sequence[Lane]
    limits: Limits
    records: list[StepRecord]
    log: list[Entry]

    @property
    def end_s(self) -> float:
        return self.records[-1].end_s

    def up_to_step(self, step: int) -> list[Entry]:
        """The log through the weight update that ends a step."""
        updates = [place for place, entry in enumerate(self.log) if ends_step(entry)]
        return self.log[: updates[step] + 1]


def play(
    schedule: Schedule,
    lanes: Sequence[Lane],
    costs: Costs,
    work: object,
    steps: int = 6,
    *,
    contention: Contention = NO_CONTENTION,
    round_s: float = 0.0,
    cap: int = CAP,
) -> Run:
    """Run on the SimPy machine; a run that gets nowhere is an error rather than endless."""
    machine = SimPyMachine(lanes, costs, work, contention, round_s)  # type: ignore[arg-type]
    limits, log = Limits(PROMPT_CAP, cap), list[Entry]()

    def listen(entry: Entry) -> None:
        log.append(entry)
        assert len(log) < 1000 * steps, f"it gets nowhere: {log[-8:]}"

    records = list(run(machine, schedule, limits, steps, listen))
    return Run(schedule, lanes, limits, records, log)


def ends_step(entry: Entry) -> bool:
    return isinstance(entry, Done) and isinstance(entry.command, Sync)


def until(log: Sequence[Entry], at_s: float) -> list[Entry]:
    """All that was seen and decided up to and at an instant."""
    for place, entry in enumerate(log):
        if isinstance(entry, EVENTS) and entry.at_s > at_s:
            return list(log[:place])
    return list(log)


def instants(log: Sequence[Entry]) -> list[float]:
    return sorted({entry.at_s for entry in log if isinstance(entry, EVENTS)})


def halved(entry: Entry) -> Entry:
    """The entry with every time stamp halved."""
    if isinstance(entry, Done):
        return entry._replace(at_s=entry.at_s / 2, start_s=entry.start_s / 2)
    if isinstance(entry, EVENTS):
        return entry._replace(at_s=entry.at_s / 2)
    return entry


def known_counts(event: Event) -> tuple[tuple[int, int], ...]:
    """(rollout, tokens so far) of all the rollouts that an event tells about."""
    match event:
        case Finished():
            return ((event.rollout, event.tokens),)
        case Emitted() | Paused() | Done():
            return event.counts
        case Failed():
            return ()

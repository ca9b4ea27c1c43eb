"""Commands by hand, for tests that talk to the machine without an engine between."""

from __future__ import annotations

from collections.abc import Iterable

from oppo_sim.engine import Lane
from oppo_sim.engine.contract import Chunk, Event, Generate, Score
from oppo_sim.simulator import SimPyMachine

LONG = 10**9
ACTOR = Lane("a", "actor", ("gpu",))
SCORER = Lane("s", "scorer", ("gpu",))
TRAINER = Lane("t", "trainer", ("gpu",))
CLOCK = Lane("c", "actor", ("clock",), slots=2)  # its rollouts end when a test wants to be woken
ELSEWHERE = SCORER._replace(devices=("other",))


def starts(*rollouts: int, lane: str = "a", chunk: int | None = None) -> Generate:
    return Generate(lane, tuple((rollout, 0) for rollout in rollouts), LONG, chunk)


def score(rollout: int, start: int, end: int, lane: str = "s") -> Score:
    return Score(lane, (Chunk(rollout, start, end, last=False),))


def hear(machine: SimPyMachine, events: int) -> list[Event]:
    """So many events, or a few more if the last ones come together."""
    heard: list[Event] = []
    while len(heard) < events:
        heard += machine.wait()
    return heard


def stamps(events: Iterable[Event]) -> list[tuple[str, float]]:
    return [(type(event).__name__, event.at_s) for event in events]

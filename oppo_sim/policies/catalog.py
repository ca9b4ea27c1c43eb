"""Whole schedules by name: the paper's four, and published systems as values of the same type."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches

from oppo_sim.policies.chunk import ProbedChunk
from oppo_sim.policies.overcommit import RewardSlope
from oppo_sim.policies.schedule import Schedule, Share

TRL = Schedule(name="trl")
INTRA = Schedule(name="intra", chunk=ProbedChunk(), scoring="chunk")
INTER = Schedule(name="inter", overcommit=RewardSlope())
OPPO = Schedule(name="oppo", chunk=ProbedChunk(), scoring="chunk", overcommit=RewardSlope())

CATALOG: dict[str, Schedule] = {
    schedule.name: schedule
    for schedule in (
        TRL,
        INTRA,
        INTER,
        OPPO,
        # a reviewer's question: is handing over each finished response enough?
        replace(OPPO, name="response", chunk=None, scoring="response", flush="rollout"),
        # verl: the next batch is generated while this one trains; exactly one version old
        Schedule(name="one-step-off", ahead=1, take="oldest", refill="batch", update="drain"),
        # AReaL: admission bounded by staleness, oldest first, rollouts interrupted at an update
        Schedule(
            name="areal",
            ahead=4,
            take="oldest",
            refill="event",
            update="interrupt",
            partial="tokens",
            scoring="response",
            flush="rollout",
        ),
        # APRIL: more groups than needed, the rest aborted and resumed with its tokens
        Schedule(
            name="april", group=8, overcommit=Share(of_batch=1.0), stop="taken", partial="tokens"
        ),
        # PipelineRL: weights swapped between two tokens, never interrupted
        Schedule(
            name="pipeline-rl",
            ahead=2,
            refill="event",
            max_staleness=4,
            stale="drop",
            scoring="response",
            flush="rollout",
        ),
    )
}


def named(name: str) -> Schedule:
    """The schedule of that name; ValueError names the nearest one."""
    try:
        return CATALOG[name]
    except KeyError:
        near = get_close_matches(name, CATALOG, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise ValueError(
            f"no schedule is called {name!r}{hint} There are: {', '.join(CATALOG)}"
        ) from None

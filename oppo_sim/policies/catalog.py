"""Whole schedules by name: the paper's four, and published systems as values of the same type."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from typing import NamedTuple

from oppo_sim.policies.chunk import ProbedChunk
from oppo_sim.policies.overcommit import RewardSlope
from oppo_sim.policies.schedule import Schedule, Share


class About(NamedTuple):
    """What a schedule does, in a sentence, and where it is from."""

    idea: str
    source: str


TRL = Schedule(name="trl")
INTRA = Schedule(name="intra", chunk=ProbedChunk(), scoring="chunk")
INTER = Schedule(name="inter", overcommit=RewardSlope())
OPPO = Schedule(name="oppo", chunk=ProbedChunk(), scoring="chunk", overcommit=RewardSlope())

_PAPER = "OPPO, arXiv 2509.25762"
_ENTRIES: tuple[tuple[Schedule, About], ...] = (
    (TRL, About("Sequential: generate the whole batch, score it, train on it.", "TRL's PPO")),
    (INTRA, About("Hand chunks to the scorer, which reads them while the actor decodes.", _PAPER)),
    (
        INTER,
        About(
            "Keep D rollouts beyond the batch in flight, train on the first to finish, carry the "
            "rest over.",
            _PAPER,
        ),
    ),
    (OPPO, About("Both: chunks as in intra, D rollouts beyond the batch as in inter.", _PAPER)),
    (
        replace(OPPO, name="response", chunk=None, scoring="response", flush="rollout"),
        About(
            "As oppo, but hand over each response whole, when it is finished.",
            "a question raised about the paper: are chunks needed?",
        ),
    ),
    (
        Schedule(name="one-step-off", ahead=1, take="oldest", refill="batch", update="drain"),
        About(
            "Begin the next batch before this one is trained, so up to one version old.",
            "verl, one-step-off-policy",
        ),
    ),
    (
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
        About(
            "Admit up to 4 batches ahead, train on the oldest; an update interrupts rollouts.",
            "AReaL, arXiv 2505.24298",
        ),
    ),
    (
        Schedule(
            name="april",
            group=8,
            overcommit=Share(of_batch=1.0),
            stop="taken",
            partial="tokens",
        ),
        About(
            "Start twice the groups that are trained, stop the rest when the batch is complete, "
            "resume them from their tokens.",
            "APRIL, arXiv 2509.18521",
        ),
    ),
    (
        Schedule(
            name="pipeline-rl",
            ahead=2,
            refill="event",
            max_staleness=4,
            stale="drop",
            scoring="response",
            flush="rollout",
        ),
        About(
            "Decode without a break, swap weights between two tokens, drop what gets more than 4 "
            "versions old.",
            "PipelineRL, arXiv 2509.19128",
        ),
    ),
)

CATALOG: dict[str, Schedule] = {schedule.name: schedule for schedule, _ in _ENTRIES}
ABOUT: dict[str, About] = {schedule.name: about for schedule, about in _ENTRIES}


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

"""The engine's state between two steps as plain JSON, so that a run on a real machine can go on.

A machine that starts anew has lost what it was decoding: rollouts that were running are paused in
what is read back, with the tokens that the engine knows of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oppo_sim.engine.contract import Chunk, EngineError, Lane, Limits, Score
from oppo_sim.engine.parts import Actor, Batch, Rollout, Scorer
from oppo_sim.engine.state import State
from oppo_sim.policies.schedule import Schedule
from oppo_sim.records import step_from_row, to_row

_NUMBERS = (
    "now_s",
    "admitted",
    "dropped",
    "step",
    "version",
    "trained",
    "takes",
    "chunk_tokens",
    "overcommit",
)
_ROW = (
    "tokens",
    "emitted",
    "sent",
    "finished",
    "reward",
    "deferrals",
    "oldest",
    "version",
    "since",
)


def snapshot(state: State, scoring: Sequence[Score] = ()) -> dict[str, Any]:
    """A state right after a step's record; `scoring`: what scorers are at work on."""
    if state.planned or state.training is not None or state.updated is not None or state.syncing:
        raise EngineError("a state is written between two steps, before the next is planned")
    taken = state.taken
    return {
        **{name: getattr(state, name) for name in _NUMBERS},
        "rollouts": [_row(row, state.schedule) for row in state.rollouts.values()],
        "fresh": [*state.fresh],
        "paused": [*state.resumed, *[r for actor in state.actors for r in actor.running]],
        "done": [*state.done],
        "taken": None
        if taken is None
        else {
            "update": taken.update,
            "rollouts": [row.id for row in taken.rollouts],
            "taken_s": taken.taken_s,
            "scored_s": taken.scored_s,
        },
        "actors": {actor.name: _actor(actor) for actor in state.actors},
        "scorers": {
            s.name: {"urgent": [*s.urgent], "pending": [*s.pending]} for s in state.scorers
        },
        "scoring": [{"lane": s.lane, "chunks": [list(c) for c in s.chunks]} for s in scoring],
        "records": [to_row(record) for record in state.records],
    }


def restore(
    schedule: Schedule, lanes: Mapping[str, Lane], limits: Limits, saved: Mapping[str, Any]
) -> tuple[State, tuple[Score, ...]]:
    """The state that was written, and the scores that must be asked for again.

    `home` of a rollout says whose lane keeps its cache: clear it where that cache is gone.
    Raises EngineError where the lanes are others.
    """
    state = State(schedule, lanes, limits)
    actors = {actor.name: actor for actor in state.actors}
    scorers = {scorer.name: scorer for scorer in state.scorers}
    if set(actors) != set(saved["actors"]) or set(scorers) != set(saved["scorers"]):
        raise EngineError(
            f"the state was written on the lanes {[*saved['actors'], *saved['scorers']]}, "
            f"here are {[*actors, *scorers]}: use the same [cluster]"
        )
    for name in _NUMBERS:
        setattr(state, name, saved[name])
    state.resume([step_from_row(row) for row in saved["records"]])
    for row in saved["rollouts"]:
        state.rollouts[row["id"]] = _rollout(row, actors)
    rows = state.rollouts
    state.fresh = {r: rows[r] for r in saved["fresh"]}
    state.done = {r: rows[r] for r in saved["done"]}
    taken = saved["taken"]
    if taken is not None:
        members = [rows[r] for r in taken["rollouts"]]
        state.taken = Batch(taken["update"], members, taken["taken_s"])
        state.taken.scored_s = taken["scored_s"]
    state.resumed = {r: rows[r] for r in saved["paused"]}
    for name, actor in actors.items():
        actor.unflushed = [rows[r] for r in saved["actors"][name]["unflushed"] if r in rows]
        actor.tight = saved["actors"][name]["tight"]
    for name, scorer in scorers.items():
        _refill(scorer, saved["scorers"][name], rows)
    scoring = tuple(
        [
            Score(score["lane"], tuple([Chunk(*chunk) for chunk in score["chunks"]]))
            for score in saved["scoring"]
        ]
    )
    for score in scoring:
        scorers[score.lane].busy = True
        state.occupancy.claim(score.lane, state.now_s)
    return state, scoring


def _row(row: Rollout, schedule: Schedule) -> dict[str, Any]:
    kept = {name: getattr(row, name) for name in _ROW}
    segments, home = [list(segment) for segment in row.segments], row.home and row.home.name
    if row.lane is not None and schedule.partial == "nothing":  # it starts over
        kept |= {"tokens": 0, "emitted": 0, "since": 0}
        segments = []
    return {"id": row.id, **kept, "segments": segments, "home": home}


def _rollout(saved: Mapping[str, Any], actors: Mapping[str, Actor]) -> Rollout:
    row = Rollout(saved["id"])
    for name in _ROW:
        setattr(row, name, saved[name])
    row.segments = [(start, end, version) for start, end, version in saved["segments"]]
    if saved["home"] is not None:
        row.home = actors[saved["home"]]
        row.home.kept += 1
    if not row.tokens:
        row.oldest = -1
    return row


def _actor(actor: Actor) -> dict[str, Any]:
    return {"unflushed": [row.id for row in actor.unflushed], "tight": actor.tight}


def _refill(scorer: Scorer, saved: Mapping[str, Any], rows: Mapping[int, Rollout]) -> None:
    scorer.urgent = {r: rows[r] for r in saved["urgent"]}
    scorer.pending = {r: rows[r] for r in saved["pending"]}

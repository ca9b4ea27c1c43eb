"""What to do now: pure rules over the state, in the order in which they are asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice

from oppo_sim.engine.contract import (
    Admit,
    Chunk,
    Command,
    Decision,
    Drop,
    Generate,
    Pause,
    Plan,
    Score,
    Sync,
    Take,
    Train,
)
from oppo_sim.engine.parts import Actor, Rollout
from oppo_sim.engine.state import State
from oppo_sim.policies import admission, release, routing

Choice = Command | Decision
Rule = Callable[[State], Sequence[Choice]]


def decide(state: State) -> list[Choice]:
    """All commands and decisions that the state calls for, each already folded into it."""
    opening = not state.planned
    choices: list[Choice] = []
    if opening:
        _fold(state, plan(state), choices)
    while _ask(BATCHING, state, choices):
        pass  # what is taken, trained or dropped is out of the way of the next batch
    _ask(WORKING, state, choices)
    _fold(state, place(state, opening), choices)
    return choices


def _ask(rules: Iterable[Rule], state: State, choices: list[Choice]) -> bool:
    """Ask some rules in order; whether one of them had something to say."""
    before = len(choices)
    for rule in rules:
        made = rule(state)
        if made:
            _fold(state, made, choices)
    return len(choices) > before


def _fold(state: State, made: Sequence[Choice], choices: list[Choice]) -> None:
    for choice in made:
        state.apply(choice)
    choices += made


def finishes_needed(state: State) -> int:
    """How many finishes, at least 1, any rule needs for news, other events apart."""
    schedule = state.schedule
    if (state.fresh or state.resumed) or (
        schedule.flush == "rollout" and schedule.scoring != "batch"
    ):
        return 1
    if state.pausing:
        return 1
    if (
        state.trained > state.version and not state.syncing
    ):  # a weight update waits for the rollouts
        return 1
    if state.taken is not None:
        return max(1, state.running) if schedule.surplus == "keep" else 1
    return max(1, schedule.batch - len(state.done))


def plan(state: State) -> Sequence[Choice]:
    chunk_tokens, overcommit = state.schedule.choose(state.observe())
    return (Plan(step=state.step, chunk_tokens=chunk_tokens, overcommit=overcommit),)


def drop_stale(state: State) -> Sequence[Choice]:
    """Rollouts that would be trained too late to be wanted; those that run are paused first."""
    if state.schedule.stale != "drop":
        return ()
    stale = _stale(state)
    if not stale:
        return ()
    running = {r // state.schedule.group for r in stale if state.rollouts[r].lane is not None}
    still = tuple(r for r in stale if r // state.schedule.group not in running)
    return (Drop(still),) if still else ()


def take(state: State) -> Sequence[Choice]:
    schedule = state.schedule
    if state.taken is not None or len(state.done) < schedule.batch:
        return ()
    if schedule.stale == "wait":
        chosen = release.due_first(_due(state), state.done, schedule.batch, schedule.group)
    elif schedule.take == "oldest":
        waiting = islice(_untaken(state), schedule.batch)
        chosen = release.oldest(waiting, state.done, schedule.batch)
    else:
        chosen = release.first_finished(state.done, schedule.batch, schedule.group)
    return () if chosen is None else (Take(chosen),)


def drop_surplus(state: State) -> Sequence[Choice]:
    """Finished groups beyond the batch, where they are not kept."""
    if state.schedule.surplus == "keep" or state.taken is None:
        return ()
    surplus = release.complete_groups(state.done, state.schedule.group)
    return (Drop(surplus),) if surplus else ()


def train(state: State) -> Sequence[Choice]:
    if not ready_to_train(state) or any(actor.shared and actor.running for actor in state.actors):
        return ()
    batch = state.taken
    assert batch is not None
    return (Train(state.train_lanes, tuple([row.id for row in batch.rollouts]), batch.update),)


def pause(state: State) -> Sequence[Choice]:
    if not state.running:
        return ()
    schedule = state.schedule
    everywhere = (schedule.stop == "taken" and state.taken is not None) or (
        schedule.update == "interrupt" and state.trained > state.version and not state.syncing
    )
    shared = ready_to_train(state)
    stale = set(_stale(state)) if schedule.stale == "drop" else set()
    pauses = []
    for actor in state.actors:
        whole = everywhere or (shared and actor.shared)
        if not (whole or stale):
            continue
        rows = [row for row in actor.running.values() if not row.pausing]
        rest = tuple([row.id for row in rows if whole and row.id not in stale])
        doomed = tuple([row.id for row in rows if row.id in stale])
        if rest:
            pauses.append(Pause(actor.name, rest, keep_kv=schedule.partial == "kv"))
        if doomed:
            pauses.append(Pause(actor.name, doomed, keep_kv=False))
    return pauses


def score(state: State) -> Sequence[Choice]:
    scores = []
    for scorer in state.scorers:
        rows = scorer.urgent or scorer.pending
        if rows and not scorer.busy:
            chunks = [
                Chunk(row.id, row.sent, row.emitted, row.finished and row.emitted == row.tokens)
                for row in rows.values()
            ]
            scores.append(Score(scorer.name, tuple(chunks)))
    return scores


def sync(state: State) -> Sequence[Choice]:
    if state.trained == state.version or state.syncing:
        return ()
    if state.schedule.update != "in_flight" and state.running:
        return ()
    lanes = tuple(actor.name for actor in state.actors)
    return (Sync(lanes, state.trained, state.schedule.update_kv),)


def admit(state: State) -> Sequence[Choice]:
    schedule = state.schedule
    more = admission.admissible(
        version=state.version,
        batch=schedule.batch,
        group=schedule.group,
        ahead=schedule.ahead,
        overcommit=state.overcommit,
        admitted=state.admitted,
        dropped=state.dropped,
    )
    return (Admit(range(state.admitted, state.admitted + more)),) if more else ()


def place(state: State, opening: bool) -> Sequence[Choice]:
    """Waiting rollouts go home, to their cache, else to the least loaded lane, oldest first."""
    if not (state.fresh or state.resumed) or state.trained > state.version:
        return ()
    pool = (state.schedule.pool or 1 << 60) - state.running
    room = [
        actor.capacity - actor.load if _is_open(state, actor, opening) else -1
        for actor in state.actors
    ]
    joining: list[list[tuple[int, int]]] = [[] for _ in state.actors]
    waiting: list[Rollout] = []
    for row in _wanted(state):
        if row.home is None:
            waiting.append(row)
        elif room[row.home.index] >= 0 and pool > 0:
            joining[row.home.index].append((row.id, row.tokens))
            pool -= 1
    count = min(len(waiting), max(0, pool))
    places = routing.least_loaded(count, [actor.load for actor in state.actors], room)
    for row, lane in zip(waiting, places, strict=False):
        joining[lane].append((row.id, row.tokens))
    cap, chunk = state.limits.response_tokens, state.chunk_tokens
    return [
        Generate(actor.name, tuple(starts), cap, chunk)
        for actor, starts in zip(state.actors, joining, strict=True)
        if starts
    ]


def _wanted(state: State) -> Iterable[Rollout]:
    """Rollouts that wait for a lane, paused ones first, less those that would only be dropped."""
    rows = chain([row for _, row in sorted(state.resumed.items())], state.fresh.values())
    bound = state.schedule.max_staleness
    if state.schedule.stale != "drop" or bound is None:
        return rows
    if state.version < state.takes - bound:
        return ()  # what these weights began would be dropped at once
    stale = set(_stale(state))
    return (row for row in rows if row.id not in stale)


def ready_to_train(state: State) -> bool:
    """A batch is taken and scored, and the trainer has put its last update in place."""
    batch = state.taken
    return (
        batch is not None
        and not batch.unscored
        and state.training is None
        and state.trained == state.version
    )


def _is_open(state: State, actor: Actor, opening: bool) -> bool:
    """Whether the lane may get rollouts now."""
    schedule = state.schedule
    training = state.training is not None
    if schedule.stop == "taken" and (state.taken is not None or training):
        return False
    if actor.tight or (actor.shared and (training or ready_to_train(state))):
        return False
    if opening or schedule.refill == "event":
        return True
    return not (actor.running if schedule.refill == "idle" else state.running)


def _untaken(state: State) -> Iterable[int]:
    """Rollouts that are in no batch yet, oldest first."""
    gone = {row.id for batch in (state.taken, state.training) if batch for row in batch.rollouts}
    return (rollout for rollout in state.rollouts if rollout not in gone)


def _stale(state: State) -> list[int]:
    """Members of the groups in which a rollout has begun too long ago for the next batch."""
    return _members(state, state.takes)


def _due(state: State) -> list[int]:
    """Members of the groups in which a rollout would be too stale in the batch after the next."""
    return _members(state, state.takes + 1)


def _members(state: State, update: int) -> list[int]:
    bound = state.schedule.max_staleness
    group = state.schedule.group
    assert bound is not None
    untaken = list(_untaken(state))
    late = {r // group for r in untaken if 0 <= state.rollouts[r].oldest < update - bound}
    return [r for r in untaken if r // group in late]


BATCHING = (drop_stale, take, drop_surplus, train)
WORKING = (pause, score, sync, admit)

"""The engine's state: a fold of commands, decisions and events, so that a log replays to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

from oppo_sim.engine.contract import (
    Admit,
    Done,
    Drop,
    Emitted,
    EngineError,
    Entry,
    Failed,
    Finished,
    Generate,
    Lane,
    Limits,
    Pause,
    Paused,
    Plan,
    Score,
    Sync,
    Take,
    Train,
)
from oppo_sim.engine.occupancy import Occupancy
from oppo_sim.engine.parts import Actor, Batch, Rollout, Scorer, capacity
from oppo_sim.policies.schedule import Schedule
from oppo_sim.records import Observation, StepRecord


class State:
    def __init__(self, schedule: Schedule, lanes: Mapping[str, Lane], limits: Limits) -> None:
        self.schedule = schedule
        self.limits = limits
        self.now_s = 0.0
        trainers = [lane for lane in lanes.values() if lane.kind == "trainer"]
        train_devices = {device for lane in trainers for device in lane.devices}
        self.train_lanes = tuple(lane.name for lane in trainers)
        reserve = limits.prompt_tokens + (schedule.kv_reserve_tokens or limits.response_tokens)
        self.actors = [
            Actor(lane, index, capacity(lane, reserve), not train_devices.isdisjoint(lane.devices))
            for index, lane in enumerate(lane for lane in lanes.values() if lane.kind == "actor")
        ]
        self.scorers = [Scorer(lane) for lane in lanes.values() if lane.kind == "scorer"]
        self._actor = {actor.name: actor for actor in self.actors}
        self._scorer = {scorer.name: scorer for scorer in self.scorers}
        if not (self.actors and self.scorers and trainers):
            raise EngineError("a machine needs at least one actor, one scorer and one trainer lane")
        self._kv_capacity = sum(
            a.capacity for a in self.actors if lanes[a.name].kv_tokens is not None
        )
        # rollouts, by where they are
        self.rollouts: dict[
            int, Rollout
        ] = {}  # all that are admitted and neither trained nor dropped, oldest first
        self.fresh: dict[int, Rollout] = {}  # admitted, not begun
        self.resumed: dict[int, Rollout] = {}  # paused
        self.done: dict[int, Rollout] = {}  # finished, not taken, in order of finishing
        self.running = 0
        self.pausing = 0  # running ones whose pause has not been answered
        self.admitted = 0
        self.dropped = 0
        # the step
        self.step = 0
        self.version = 0  # the weights that the actors have
        self.trained = 0  # the weights that the trainer has
        self.takes = 0
        self.planned = False
        self.taken: Batch | None = None
        self.training: Batch | None = None
        self.updated: Batch | None = None  # trained, its weights on their way
        self.syncing = False
        self.chunk_tokens: int | None = None
        self.overcommit = 0
        self.records: deque[StepRecord] = deque(maxlen=max(1, schedule.window))
        self.occupancy = Occupancy(lanes.values())
        self._start_s = 0.0
        self._seen = self.observe()
        self._wasted = 0
        self._score_s = self._hidden_s = 0.0

    def apply(self, entry: Entry) -> None:
        _HANDLERS[type(entry)](self, entry)

    def observe(self) -> Observation:
        window = self.schedule.window
        kept = sum(actor.kept for actor in self.actors)
        return Observation(
            step=self.step,
            version=self.version,
            batch_size=self.schedule.batch,
            max_response_tokens=self.limits.response_tokens,
            running=self.running,
            carried=self.running + len(self.resumed),
            finished=len(self.done),
            queued=len(self.fresh),
            kv_used=(self.running + kept) / self._kv_capacity if self._kv_capacity else 0.0,
            recent=tuple(self.records) if window else (),
        )

    def resume(self, records: Iterable[StepRecord]) -> None:
        """The step begins now, after these."""
        self.records.extend(records)
        self._start_s = self.now_s

    # decisions

    def _plan(self, plan: Plan) -> None:
        self._seen = self.observe()
        self.chunk_tokens = plan.chunk_tokens
        self.overcommit = plan.overcommit
        self.planned = True

    def _admit(self, admit: Admit) -> None:
        for rollout in admit.rollouts:
            self.rollouts[rollout] = self.fresh[rollout] = Rollout(rollout)
        self.admitted = admit.rollouts.stop

    def _take(self, take: Take) -> None:
        rollouts = [self.done.pop(rollout) for rollout in take.rollouts]
        for rollout in rollouts:
            if rollout.sent < rollout.tokens:
                rollout.emitted = rollout.tokens
                scorer = self.scorer_of(rollout.id)
                scorer.pending.pop(rollout.id, None)
                scorer.urgent[rollout.id] = rollout
        self.taken = Batch(self.takes, rollouts, self.now_s)
        self.takes += 1
        for left in chain(
            self.done.values(), self.resumed.values(), *(a.running.values() for a in self.actors)
        ):
            left.deferrals += 1

    # commands

    def _generate(self, command: Generate) -> None:
        lane = self._actor[command.lane]
        if not lane.running:
            self.occupancy.begin(lane.name, self.now_s)
            lane.unflushed = [row for row in lane.unflushed if row.id in self.done]
        for rollout, tokens in command.starts:
            row = self.fresh.pop(rollout, None) or self.resumed.pop(rollout)
            if row.home is not None:
                row.home.kept -= 1
                row.home = None
            if row.oldest < 0:
                row.oldest = self.version
            row.change_version(tokens, self.version)
            row.lane = lane
            lane.running[rollout] = row
        self.running += len(command.starts)

    def _pause(self, command: Pause) -> None:
        running = self._actor[command.lane].running
        for rollout in command.rollouts:
            running[rollout].pausing = True
        self.pausing += len(command.rollouts)

    def _score(self, command: Score) -> None:
        scorer = self._scorer[command.lane]
        (scorer.urgent or scorer.pending).clear()
        for chunk in command.chunks:
            self.rollouts[chunk.rollout].sent = chunk.end
        scorer.busy = True
        self.occupancy.claim(command.lane, self.now_s)

    def _train(self, command: Train) -> None:
        self.training, self.taken = self.taken, None
        for lane in command.lanes:
            self.occupancy.claim(lane, self.now_s)

    def _sync(self, command: Sync) -> None:
        self.syncing = True

    def _drop(self, command: Drop) -> None:
        for rollout in command.rollouts:
            row = self.rollouts.pop(rollout)
            for place in (self.fresh, self.resumed, self.done):
                place.pop(rollout, None)
            for rows in (self.scorer_of(rollout).urgent, self.scorer_of(rollout).pending):
                rows.pop(rollout, None)
            if row.home is not None:
                row.home.kept -= 1
            self._wasted += row.tokens
        self.dropped += len(command.rollouts)

    # events

    def _finished(self, event: Finished) -> None:
        self.now_s = event.at_s
        lane = self._actor[event.lane]
        row = lane.running.pop(event.rollout)
        self.running -= 1
        row.tokens = event.tokens
        row.finished = True
        row.lane = None
        lane.tight = False
        self.pausing -= row.pausing
        row.pausing = False
        self.done[event.rollout] = row
        if self.schedule.scoring != "batch":
            if self.schedule.flush == "rollout":
                self._flush(row)
            else:
                lane.unflushed.append(row)
        if not lane.running:
            self.occupancy.end(lane.name, event.at_s)

    def _emitted(self, event: Emitted) -> None:
        self.now_s = event.at_s
        lane = self._actor[event.lane]
        for actor in self.actors:
            if actor.unflushed and (actor is lane or not actor.running):
                for row in actor.unflushed:
                    self._flush(row)
                actor.unflushed.clear()
        if self.schedule.scoring == "chunk":
            running = lane.running
            for rollout, tokens in event.counts:
                row = running[rollout]
                row.tokens = row.emitted = tokens
                if tokens > row.sent:
                    self.scorer_of(rollout).pending[rollout] = row
        else:
            for rollout, tokens in event.counts:
                lane.running[rollout].tokens = tokens

    def _flush(self, row: Rollout) -> None:
        """Hand a finished response to its scorer, unless that has happened with its batch."""
        if row.sent < row.tokens and row.id in self.done:
            row.emitted = row.tokens
            self.scorer_of(row.id).pending[row.id] = row

    def _paused(self, event: Paused) -> None:
        self.now_s = event.at_s
        lane = self._actor[event.lane]
        for rollout, tokens in event.counts:
            row = lane.running.pop(rollout)
            row.tokens = tokens
            row.lane = None
            self.pausing -= row.pausing
            row.pausing = False
            if event.kv_kept:
                row.home = lane
                lane.kept += 1
            if self.schedule.partial == "nothing":
                self._wasted += tokens
                row.tokens = row.since = row.emitted = 0
                row.segments.clear()
            if row.tokens == 0:
                row.oldest = -1  # whatever weights decode its first token
            self.resumed[rollout] = row
        self.running -= len(event.counts)
        lane.tight = event.why == "memory" and bool(lane.running)
        if not lane.running:
            self.occupancy.end(lane.name, event.at_s)

    def _done(self, event: Done) -> None:
        self.now_s = event.at_s
        match event.command:
            case Score():
                self._scored(event, event.command)
            case Train():
                self._trained(event, event.command)
            case Sync():
                self._synced(event, event.command)

    def _scored(self, event: Done, command: Score) -> None:
        self._scorer[command.lane].busy = False
        self.occupancy.release(command.lane, event.start_s, event.at_s)
        self._score_s += event.at_s - event.start_s
        exposed_from = self.taken.taken_s if self.taken else event.at_s
        self._hidden_s += max(0.0, min(event.at_s, exposed_from) - event.start_s)
        for rollout, reward in event.rewards:
            row = self.rollouts.get(rollout)
            if row is None:
                continue
            row.reward = reward
            if self.taken and rollout not in self.done:
                self.taken.unscored -= 1
                self.taken.scored_s = event.at_s

    def _trained(self, event: Done, command: Train) -> None:
        for lane in command.lanes:
            self.occupancy.release(lane, event.start_s, event.at_s)
        batch = self.training
        assert batch is not None
        batch.train_start_s, batch.train_end_s = event.start_s, event.at_s
        for row in batch.rollouts:
            del self.rollouts[row.id]
        self.trained += 1
        self.training, self.updated = None, batch

    def _synced(self, event: Done, command: Sync) -> None:
        self.syncing = False
        for rollout, tokens in event.counts:
            row = self.rollouts[rollout]
            row.change_version(tokens, command.version)
            if tokens == 0:
                row.oldest = command.version
        if command.kv == "recompute":
            for row in self.resumed.values():
                if row.home is not None:
                    row.home.kept -= 1
                    row.home = None
        self.version = command.version
        assert self.updated is not None
        self.records.append(self._record(self.updated, event))
        self.updated = None
        self.step += 1
        self.planned = False
        self._start_s = event.at_s
        self._wasted = 0
        self._score_s = self._hidden_s = 0.0

    def _failed(self, event: Failed) -> None:
        rollouts = ", ".join(map(str, event.rollouts)) or "none"
        name = type(event.command).__name__
        raise EngineError(
            f"{name} failed on lane {event.lane} at {event.at_s:.3f} s "
            f"(rollouts {rollouts}): {event.why}"
        )

    def _record(self, batch: Batch, event: Done) -> StepRecord:
        seen, rows = self._seen, batch.rollouts
        return StepRecord(
            step=self.step,
            start_s=self._start_s,
            taken_s=batch.taken_s,
            scored_s=batch.scored_s,
            train_start_s=batch.train_start_s,
            train_end_s=batch.train_end_s,
            end_s=event.at_s,
            chunk_tokens=self.chunk_tokens,
            overcommit=self.overcommit,
            running=seen.running,
            carried=seen.carried,
            finished=seen.finished,
            queued=seen.queued,
            kv_used=seen.kv_used,
            trained=tuple([row.id for row in rows]),
            tokens=tuple([row.tokens for row in rows]),
            staleness=tuple([batch.update - row.oldest for row in rows]),
            deferrals=tuple([row.deferrals for row in rows]),
            rewards=tuple([row.reward or 0.0 for row in rows]),
            stale_tokens=sum([row.stale_tokens(batch.update) for row in rows]),
            admitted=self.admitted,
            dropped=self.dropped,
            carried_tokens=sum([row.tokens for row in self.rollouts.values()]),
            wasted_tokens=self._wasted,
            reprefilled_tokens=event.reprefilled_tokens,
            kv_peak_tokens=event.kv_peak_tokens,
            score_s=self._score_s,
            hidden_score_s=self._hidden_s,
            busy_s=self.occupancy.settle(event.at_s),
        )

    def scorer_of(self, rollout: int) -> Scorer:
        """Rows stick to their scorer, which keeps their cache; siblings share one."""
        scorers = self.scorers
        return (
            scorers[0]
            if len(scorers) == 1
            else scorers[rollout // self.schedule.group % len(scorers)]
        )


_HANDLERS: dict[type, Callable[[State, Any], None]] = {
    Plan: State._plan,
    Admit: State._admit,
    Take: State._take,
    Generate: State._generate,
    Pause: State._pause,
    Score: State._score,
    Train: State._train,
    Sync: State._sync,
    Drop: State._drop,
    Finished: State._finished,
    Emitted: State._emitted,
    Paused: State._paused,
    Done: State._done,
    Failed: State._failed,
}

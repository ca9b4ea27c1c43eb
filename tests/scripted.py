"""The scripted machine: the contract, token by token; the oracle that closed forms have to match.

Time moves to the nearest instant at which a lane reaches a boundary or a task ends, and at every
instant the same steps run in the same order. Numbers in comments are the contract's rules.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from oppo_sim.engine.contract import (
    Command,
    Counts,
    Done,
    Drop,
    Emitted,
    Event,
    Failed,
    Finished,
    Generate,
    Lane,
    Pause,
    Paused,
    Score,
    Sync,
    Train,
)

ORDER = (Finished, Emitted, Paused, Done, Failed)


@dataclass(eq=False)
class _Task:
    command: Score | Train | Sync
    lanes: tuple[str, ...]
    devices: set[str]
    ready_s: float  # it may not start before
    seconds: float
    rewards: tuple[tuple[int, float], ...] = ()
    counts: Counts = ()
    start_s: float = 0.0
    end_s: float | None = None  # None: it has not started


@dataclass(eq=False)
class _Actor:
    """An actor lane. It is at a boundary while `ends_s` and `stopped` are None."""

    lane: Lane
    running: dict[int, int] = field(default_factory=dict)  # rollout -> its cap_tokens
    cached: dict[int, int] = field(default_factory=dict)  # paused rollout -> tokens of its cache
    pauses: list[Pause] = field(default_factory=list)  # those that wait for a boundary
    joins: list[Generate] = field(default_factory=list)
    ends_s: float | None = None  # end of the token or stall that the lane is in
    stalled: bool = False  # ... and which of the two it is
    stopped: _Task | None = None  # the Sync that holds the lane
    prefills: list[set[int]] = field(default_factory=list)  # owed before the next token
    round_ended: bool = False  # its handling is owed before the next token
    round_left: int | None = None  # tokens until Emitted
    chunk_tokens: int | None = None
    version: int = 0
    peak_tokens: int = 0
    reprefilled_tokens: int = 0  # of responses

    @property
    def at_boundary(self) -> bool:
        return self.ends_s is None and self.stopped is None


class ScriptedMachine:
    """A Backend that reads off what everything costs.

    lengths, prompts: tokens by rollout; a length over the command's cap is cut. reward(rollout,
    version): the weights version of its first token. token_s: of every lane, or by lane.
    prefill_s(missing tokens, 0): once per Generate. round_s: the stall that follows Emitted.
    score_s, train_s: as in `oppo_sim.costs`. handoff_s: from a Score's submission to its start.
    eager: wait(finishes) goes on through instants that only finish; else it returns each of them.
    """

    def __init__(
        self,
        lanes: Sequence[Lane],
        *,
        lengths: Callable[[int], int],
        prompts: Callable[[int], int],
        reward: Callable[[int, int], float],
        token_s: float | Mapping[str, float],
        prefill_s: Callable[[int, int], float],
        score_s: Callable[[int, int, float, int], float],
        train_s: Callable[[int, int, int], float],
        sync_s: float = 0.0,
        round_s: float = 0.0,
        handoff_s: float = 0.0,
        eager: bool = False,
    ) -> None:
        self._lanes = {lane.name: lane for lane in lanes}
        self._places = {lane.name: place for place, lane in enumerate(lanes)}
        self._actors = {lane.name: _Actor(lane) for lane in lanes if lane.kind == "actor"}
        self._rows: dict[str, dict[int, int]] = {  # by scorer: rollout -> response tokens scored
            lane.name: {} for lane in lanes if lane.kind == "scorer"
        }
        self._lengths, self._prompts, self._reward = lengths, prompts, reward
        self._token_s, self._prefill_s, self._round_s = token_s, prefill_s, round_s
        self._score_s, self._train_s = score_s, train_s
        self._sync_s, self._handoff_s, self._eager = sync_s, handoff_s, eager
        self._now = 0.0
        self._tokens: dict[int, int] = {}  # response tokens so far
        self._versions: dict[int, int] = {}  # that decoded the first token
        self._submitted: list[Score | Train | Sync] = []
        self._tasks: list[_Task] = []  # in order of submission
        self._events: list[Event] = []  # of this instant

    def lanes(self) -> Mapping[str, Lane]:
        return self._lanes

    def submit(self, *commands: Command) -> None:
        """Only files them: they take effect at this instant, when `wait` is called (2)."""
        for command in commands:
            if isinstance(command, Generate):
                self._actors[command.lane].joins.append(command)
            elif isinstance(command, Pause):
                self._actors[command.lane].pauses.append(command)
            elif isinstance(command, Drop):
                self._free(command.rollouts)
            else:
                self._submitted.append(command)

    def wait(self, finishes: int = 1) -> Sequence[Event]:
        if finishes < 1:
            raise ValueError(f"finishes = {finishes}: must be at least 1")
        events = self._settle()  # what the commands cause at this very instant
        while True:
            only_finishes = all(isinstance(event, Finished) for event in events)
            if events and not (self._eager and only_finishes and len(events) < finishes):
                return events
            for actor in self._actors.values():
                self._set_off(actor)
            ends = [actor.ends_s for actor in self._actors.values() if actor.ends_s is not None]
            ends += [task.end_s for task in self._tasks if task.end_s is not None]
            if not ends:
                if events:
                    return events
                raise RuntimeError("nothing is running")
            self._now = min(ends)
            for actor in self._actors.values():
                if actor.ends_s == self._now:
                    self._reach_boundary(actor)
            events = [*events, *self._settle()]

    # one instant

    def _settle(self) -> list[Event]:
        """What happens at this instant after the lanes' own tokens; all events of the instant."""
        completed = True
        while completed:  # what the end of a task lets happen belongs to the same instant
            for actor in self._actors.values():
                self._pause(actor)
            for actor in self._actors.values():
                self._join(actor)
            self._accept_tasks()
            self._start_tasks()
            completed = self._complete_tasks()
        events, self._events = sorted(self._events, key=self._order), []
        return events

    def _order(self, event: Event) -> tuple[int, int, int]:  # (9)
        kind, place, rollout = ORDER.index(type(event)), self._places[event.lane], 0
        if isinstance(event, Finished):
            rollout = event.rollout
        elif isinstance(event, Emitted | Paused):
            rollout = event.counts[0][0]
        return kind, place, rollout

    # lanes

    def _set_off(self, actor: _Actor) -> None:
        """Leave the boundary, for one token or for the stalls that are owed, all in one (1)."""
        if not actor.running or not actor.at_boundary:
            return
        stall_s = self._round_s if actor.round_ended else 0.0
        for rollouts in actor.prefills:
            actor.reprefilled_tokens += sum(self._tokens[rollout] for rollout in rollouts)
            missing = sum(map(self._context, rollouts))
            stall_s += self._prefill_s(missing, 0) if missing else 0.0
        actor.prefills, actor.round_ended, actor.stalled = [], False, stall_s > 0.0
        name, token_s = actor.lane.name, self._token_s
        token_s = token_s[name] if isinstance(token_s, Mapping) else token_s
        actor.ends_s = self._now + (stall_s if actor.stalled else token_s)

    def _reach_boundary(self, actor: _Actor) -> None:
        """The token's own events: finishes, the round's end, memory (1, 4)."""
        actor.ends_s = None
        if actor.stalled:
            return
        for rollout in actor.running:
            self._tokens[rollout] += 1
            if self._tokens[rollout] == 1:
                self._versions[rollout] = actor.version
        actor.peak_tokens = max(actor.peak_tokens, self._held(actor))
        for rollout, cap in list(actor.running.items()):
            tokens, raw = self._tokens[rollout], self._lengths(rollout)
            if tokens == min(raw, cap):
                del actor.running[rollout]
                reason: Literal["stop", "cap"] = "cap" if raw > cap else "stop"
                self._log(Finished(self._now, actor.lane.name, rollout, tokens, reason))
        if actor.running and actor.round_left is not None:
            actor.round_left -= 1
            if actor.round_left == 0:
                self._log(Emitted(self._now, actor.lane.name, self._counts(actor.running)))
                actor.round_left, actor.round_ended = actor.chunk_tokens, True
        self._make_room(actor)

    def _pause(self, actor: _Actor) -> None:  # (5)
        if not actor.at_boundary:
            return
        for pause in actor.pauses:
            kept, lost = [], []
            for rollout in pause.rollouts:
                if rollout in actor.running:
                    has_cache = not any(rollout in group for group in actor.prefills)
                    self._take_out(actor, rollout)
                elif self._withdraw(actor, rollout):  # it has not joined yet
                    has_cache = actor.cached.get(rollout) == self._context(rollout)
                else:
                    continue  # Finished, or Paused for memory, has answered
                actor.cached.pop(rollout, None)
                if pause.keep_kv and has_cache:
                    actor.cached[rollout] = self._context(rollout)
                    kept.append(rollout)
                else:
                    lost.append(rollout)
            for rollouts, kv_kept in (kept, True), (lost, False):
                if rollouts:
                    counts = self._counts(rollouts)
                    self._log(Paused(self._now, actor.lane.name, counts, kv_kept, "asked"))
        actor.pauses = []

    def _join(self, actor: _Actor) -> None:  # (3)
        if not actor.at_boundary or not actor.joins:
            return
        for generate in actor.joins:
            claimed = {d for t in self._tasks if isinstance(t.command, Train) for d in t.devices}
            if claimed & set(actor.lane.devices):
                self._fail(generate, generate.lane, [r for r, _ in generate.starts], "a Train runs")
                continue
            if not actor.running:  # a round opens; nothing of the last one is owed (4)
                actor.round_left, actor.round_ended = generate.chunk_tokens, False
            actor.chunk_tokens = generate.chunk_tokens
            actor.prefills.append(set())
            for rollout, tokens in generate.starts:
                self._check_start(actor, rollout, tokens, generate.cap_tokens)
                self._tokens[rollout] = tokens
                actor.running[rollout] = generate.cap_tokens
                if actor.cached.pop(rollout, None) != self._context(rollout):
                    actor.prefills[-1].add(rollout)
        actor.joins = []
        self._make_room(actor)
        actor.peak_tokens = max(actor.peak_tokens, self._held(actor))

    def _check_start(self, actor: _Actor, rollout: int, tokens: int, cap: int) -> None:
        if tokens not in (0, self._tokens.get(rollout, 0)):
            raise ValueError(f"rollout {rollout} starts at {tokens}, which it has not decoded")
        if tokens >= min(cap, self._lengths(rollout)):
            raise ValueError(f"rollout {rollout} starts at {tokens}, but has finished")
        if any(rollout in other.running for other in self._actors.values()):
            raise ValueError(f"rollout {rollout} starts, but is running")
        if len(actor.running) == actor.lane.slots:
            raise ValueError(f"rollout {rollout} starts, but {actor.lane.name} has no free slot")

    def _withdraw(self, actor: _Actor, rollout: int) -> bool:
        """Whether the rollout was waiting to join; it no longer is."""
        for place, join in enumerate(actor.joins):
            for start in join.starts:
                if start[0] == rollout:
                    self._tokens[rollout] = start[1]
                    left = tuple(other for other in join.starts if other != start)
                    actor.joins[place : place + 1] = [join._replace(starts=left)] if left else []
                    return True
        return False

    def _take_out(self, actor: _Actor, rollout: int) -> None:
        del actor.running[rollout]
        for group in actor.prefills:
            group.discard(rollout)

    def _make_room(self, actor: _Actor) -> None:
        """Preempt the youngest until one more token of each fits; caches that are kept stay (5)."""
        limit, lost = actor.lane.kv_tokens or sys.maxsize, []
        while actor.running and self._held(actor) + len(actor.running) > limit:
            lost.append(max(actor.running))
            self._take_out(actor, lost[-1])
            if self._context(lost[-1]) >= limit:
                raise RuntimeError(f"rollout {lost[-1]} alone overflows lane {actor.lane.name}")
        if lost:
            self._log(Paused(self._now, actor.lane.name, self._counts(lost), False, "memory"))

    def _held(self, actor: _Actor) -> int:
        return sum(map(self._context, actor.running)) + sum(actor.cached.values())

    def _context(self, rollout: int) -> int:
        return self._prompts(rollout) + self._tokens[rollout]

    def _counts(self, rollouts: Iterable[int]) -> Counts:
        return tuple((rollout, self._tokens[rollout]) for rollout in sorted(rollouts))

    # tasks

    def _accept_tasks(self) -> None:
        for command in self._submitted:
            lanes = (command.lane,) if isinstance(command, Score) else command.lanes
            devices = {device for name in lanes for device in self._lanes[name].devices}
            task = _Task(command, lanes, devices, self._now, self._sync_s)
            if isinstance(command, Score):
                task.ready_s += self._handoff_s
                task.seconds, task.rewards = self._score(command)
            elif isinstance(command, Train):
                actors = self._actors.values()
                if any(a.running and devices & set(a.lane.devices) for a in actors):  # (7)
                    self._fail(command, lanes[0], command.rollouts, "rollouts run on its devices")
                    continue
                contexts = [self._context(rollout) for rollout in command.rollouts]
                task.seconds = self._train_s(len(contexts), sum(contexts), max(contexts))
            self._tasks.append(task)
        self._submitted = []

    def _score(self, score: Score) -> tuple[float, tuple[tuple[int, float], ...]]:  # (6)
        """Seconds and rewards."""
        rows, tokens, pairs, rewards = self._rows[score.lane], 0, 0, []
        for rollout, start, end, last in score.chunks:
            if start != 0 and rows.get(rollout) != start:
                raise ValueError(f"rollout {rollout}: no scorer cache ends at {start}")
            if not start < end <= self._tokens[rollout]:
                raise ValueError(f"rollout {rollout}: [{start}, {end}) is not decoded")
            rows[rollout] = end
            prompt = self._prompts(rollout)
            first = 0 if start == 0 else prompt + start
            tokens += prompt + end - first
            pairs += (prompt + end) ** 2 - first**2
            if last:
                rewards.append((rollout, self._reward(rollout, self._versions[rollout])))
        seconds = self._score_s(len(score.chunks), tokens, pairs / 2, len(rewards))
        return seconds, tuple(rewards)

    def _start_tasks(self) -> None:
        for place, task in enumerate(self._tasks):
            if task.end_s is not None:
                continue
            if isinstance(task.command, Sync):  # (8)
                actors = [self._actors[name] for name in task.lanes]
                for actor in actors:
                    if actor.at_boundary:
                        actor.stopped = task
                if any(actor.stopped is not task for actor in actors):
                    continue
                task.counts = self._counts(rollout for a in actors for rollout in a.running)
            elif any(self._goes_first(other, task) for other in self._tasks[:place]):
                continue
            task.start_s = max(self._now, task.ready_s)
            task.end_s = task.start_s + task.seconds

    def _goes_first(self, earlier: _Task, later: _Task) -> bool:
        if isinstance(earlier.command, Sync):
            return False
        if isinstance(earlier.command, Score) and isinstance(later.command, Score):
            return earlier.lanes == later.lanes  # (6)
        return not earlier.devices.isdisjoint(later.devices)  # (7)

    def _complete_tasks(self) -> bool:
        done = [task for task in self._tasks if task.end_s == self._now]
        for task in done:
            self._tasks.remove(task)
            command, lane, start_s, peak, again = task.command, task.lanes[0], task.start_s, 0, 0
            if isinstance(command, Train):
                self._free(command.rollouts)
            elif isinstance(command, Sync):
                actors = [self._actors[name] for name in task.lanes]
                peak = max(actor.peak_tokens for actor in actors)
                for actor in actors:
                    actor.stopped, actor.version = None, command.version
                    if command.kv == "recompute":  # includes all prefill that was owed
                        actor.cached, actor.prefills = {}, [set(actor.running)]
                    actor.peak_tokens = self._held(actor)
                    again, actor.reprefilled_tokens = again + actor.reprefilled_tokens, 0
            done = Done(self._now, lane, command, start_s, task.rewards, task.counts, peak, again)
            self._log(done)
        return bool(done)

    def _free(self, rollouts: Sequence[int]) -> None:
        for rollout in rollouts:
            if any(rollout in actor.running for actor in self._actors.values()):
                raise ValueError(f"rollout {rollout} is running, and cannot be forgotten")
            caches = [actor.cached for actor in self._actors.values()]
            for known in (*caches, *self._rows.values(), self._tokens, self._versions):
                known.pop(rollout, None)

    def _fail(self, command: Command, lane: str, rollouts: Sequence[int], why: str) -> None:
        self._log(Failed(self._now, lane, command, tuple(rollouts), why))

    def _log(self, event: Event) -> None:
        self._events.append(event)

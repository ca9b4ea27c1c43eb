"""The SimPy machine: lanes, devices and memory behind the engine's Backend protocol."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from math import inf

from oppo_sim.costs.interface import Costs
from oppo_sim.engine.contract import (
    Command,
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
from oppo_sim.simulator import work
from oppo_sim.simulator.clock import Clock
from oppo_sim.simulator.devices import Contention, Devices
from oppo_sim.simulator.lane import ActorLane
from oppo_sim.simulator.learning import Learning
from oppo_sim.simulator.tasks import Task, Tasks
from oppo_sim.simulator.work import Workload


class SimPyMachine:
    """Implements `engine.contract.Backend`; every rule that it keeps is stated there."""

    def __init__(
        self,
        lanes: Sequence[Lane],
        costs: Costs,
        workload: Workload,
        contention: Contention | None = None,
        round_s: float = 0.0,
        learning: Learning | None = None,
    ) -> None:
        if costs.decode.token_s(1, 1.0) <= 0.0:  # of the shortest context: a prompt of one token
            raise ValueError("decoding a token takes 0 s: the costs of decoding must be above 0")
        self._lanes = {lane.name: lane for lane in lanes}
        self._place = {lane.name: place for place, lane in enumerate(lanes)}
        self._costs = costs
        self._workload = workload
        self._contention = contention = contention or Contention()
        self._clock = Clock()
        self._now_s = 0.0
        self._out: list[Event] = []
        self._version = 0
        self._learning = learning or Learning()
        self._begun: dict[int, int] = {}  # the weights version that decoded a rollout's first token
        self._home: dict[int, ActorLane] = {}  # where the cache of a paused rollout is
        self._devices = Devices(lanes, contention)
        self._rivals: list[ActorLane] = []  # actor lanes that share a device with a scorer
        self._tasks = Tasks(self._clock, self._pace, self._tasks_changed)
        self._actors: dict[str, ActorLane] = {}
        for index, lane in enumerate(lane for lane in lanes if lane.kind == "actor"):
            rival = lane.name in self._devices.rivals
            self._actors[lane.name] = ActorLane(
                lane,
                index,
                costs,
                round_s,
                self._clock,
                self._out.append,
                self._decoding_changed if rival else None,
            )
        self._actor_list = list(self._actors.values())
        self._rivals += [lane for lane in self._actor_list if lane.name in self._devices.rivals]
        self._slow_each_other = len(self._rivals) > 1 and (
            contention.decode_decode_stretch > 1.0
            or (costs.by_row is not None and costs.by_row.decode_beside("decode") is not None)
        )

    def lanes(self) -> Mapping[str, Lane]:
        return self._lanes

    def submit(self, *commands: Command) -> None:
        for command in commands:
            match command:
                case Generate():
                    self._generate(command)
                case Pause():
                    self._pause(command)
                case Score():
                    self._score(command)
                case Train():
                    self._train(command)
                case Sync():
                    self._sync(command)
                case Drop():
                    self._forget(command.rollouts)

    def wait(self, finishes: int = 1) -> Sequence[Event]:
        clock, out = self._clock, self._out
        events: list[Event] = []
        while True:
            at_s = self._now_s if out else clock.peek()
            at_s = self._pop_finishes(at_s, finishes - len(events), events)
            if at_s == inf:
                raise RuntimeError(
                    "nothing is running and nothing was submitted: it would wait for ever"
                )
            self._now_s = at_s
            while clock.peek() == at_s:
                clock.step()
            if out:
                events += sorted(out, key=self._order) if len(out) > 1 else out
                out.clear()
                return events
            if len(events) >= finishes:
                return events

    def _pop_finishes(self, until_s: float, finishes: int, events: list[Event]) -> float:
        """Take finishes up to an instant, or up to that of the `finishes`-th; the instant reached.

        Lanes foresee them, so that a finish which leads to nothing costs no event of the clock.
        """
        actors = self._actor_list
        ahead = [(lane.plan[-1][0], lane.index) for lane in actors if lane.plan]
        heapify(ahead)
        at_s = until_s
        while ahead and ahead[0][0] <= until_s:
            next_s, index = ahead[0]
            if finishes <= 0 and next_s > at_s:
                return at_s
            at_s = next_s
            lane = actors[index]
            row = lane.pop_finish()
            events.append(Finished(at_s, lane.name, row.id, row.end - row.offset, row.reason))
            finishes -= 1
            if lane.plan:
                heapreplace(ahead, (lane.plan[-1][0], index))
            else:
                heappop(ahead)
        return at_s if finishes <= 0 else until_s

    # actors

    def _generate(self, command: Generate) -> None:
        lane = self._actors[command.lane]
        lane.at_boundary(self._now_s, lambda at_s: self._join(lane, command, at_s))

    def _join(self, lane: ActorLane, command: Generate, at_s: float) -> None:
        workload, version = self._workload, self._version
        was_dry = not lane.batch.rows
        lane.open(command.chunk_tokens)
        for rollout, tokens in command.starts:
            if tokens == 0:
                self._begun[rollout] = version
            home = self._home.pop(rollout, None)
            if home is not None and home is not lane:
                home.batch.forget(rollout)
            prompt, final = workload.prompt_tokens(rollout), workload.response_tokens(rollout)
            lane.add(rollout, tokens, final, prompt, workload.stop_reason(rollout))
        if was_dry:
            lane.stall(self._devices.switch_s(lane.devices, "decode"))
            self._pace_changed(lane, at_s)

    def _pause(self, command: Pause) -> None:
        lane = self._actors[command.lane]
        lane.at_boundary(self._now_s, lambda at_s: self._take_out(lane, command, at_s))

    def _take_out(self, lane: ActorLane, command: Pause, at_s: float) -> None:
        kept, lost = lane.remove(command.rollouts, command.keep_kv)
        self._home.update((rollout, lane) for rollout, _ in kept)
        self._out += [
            Paused(at_s, lane.name, counts, counts is kept, "asked")
            for counts in (kept, lost)
            if counts
        ]
        if not lane.batch.rows:
            self._pace_changed(lane, at_s)

    def _sync(self, command: Sync) -> None:
        lanes = [self._actors[name] for name in command.lanes]
        arrived: list[ActorLane] = []

        def arrive(lane: ActorLane, at_s: float) -> None:
            lane.hold()
            arrived.append(lane)
            if len(arrived) == len(lanes):
                self._swap(command, lanes, at_s)

        for lane in lanes:
            lane.at_boundary(self._now_s, lambda at_s, lane=lane: arrive(lane, at_s))  # type: ignore[misc]

    def _swap(self, command: Sync, lanes: Sequence[ActorLane], start_s: float) -> None:
        counts = tuple(sorted(count for lane in lanes for count in lane.batch.counts()))
        recompute = command.kv == "recompute"
        if recompute:
            self._lose_caches(lanes)
        end_s = start_s + self._costs.sync_s()

        def done() -> None:
            self._version = command.version
            self._begun.update((r, command.version) for r, tokens in counts if tokens == 0)
            for lane in lanes:
                lane.release(end_s, recompute)
            peak = max(lane.batch.take_peak() for lane in lanes)
            again = sum([lane.take_reprefilled() for lane in lanes])
            done = Done(end_s, command.lanes[0], command, start_s, (), counts, peak, again)
            self._out.append(done)

        self._clock.at(end_s, Clock.TASK, done)

    def _lose_caches(self, lanes: Sequence[ActorLane]) -> None:
        for lane in lanes:
            for rollout in list(lane.batch.kept):
                lane.batch.forget(rollout)
                del self._home[rollout]

    # scorers and trainers

    def _score(self, command: Score) -> None:
        lane = self._lanes[command.lane]
        tokens = sum(chunk.end - chunk.start for chunk in command.chunks)
        handoff_s = self._costs.handoff_s(tokens)
        rewards = self._rewards(command)
        seconds = work.score_s(command, self._workload, self._costs)

        def done(start_s: float, end_s: float) -> None:
            self._out.append(Done(end_s, command.lane, command, start_s, rewards))

        task = Task(
            lane.name,
            lane.devices,
            lambda: self._devices.switch_s(lane.devices, "score") + seconds,
            done,
            0 if self._costs.by_row is None else work.score_tokens(command, self._workload),
        )
        if handoff_s:
            arrive_s = self._now_s + handoff_s
            self._clock.at(arrive_s, Clock.TASK, lambda: self._tasks.submit(task, arrive_s))
        else:
            self._tasks.submit(task, self._now_s)

    def _rewards(self, command: Score) -> tuple[tuple[int, float], ...]:
        reward, begun, updates = self._workload.reward, self._begun, self._learning.updates
        lasts = [chunk.rollout for chunk in command.chunks if chunk.last]
        return tuple([(rollout, reward(rollout, updates(begun[rollout]))) for rollout in lasts])

    def _train(self, command: Train) -> None:
        devices = tuple(
            dict.fromkeys(d for name in command.lanes for d in self._lanes[name].devices)
        )
        held = [
            row
            for lane in self._actor_list
            if not set(devices).isdisjoint(lane.devices)
            for row in lane.batch.rows
        ]
        if held:
            why = "an actor lane on the trainer's devices still holds running rollouts"
            self._out.append(Failed(self._now_s, command.lanes[0], command, tuple(held), why))
            return
        seconds = work.train_s(command, self._workload, self._costs)

        def done(start_s: float, end_s: float) -> None:
            begun = [self._begun.get(rollout, command.update) for rollout in command.rollouts]
            self._learning.trained(command.update, begun)
            self._forget(command.rollouts)
            self._out.append(Done(end_s, command.lanes[0], command, start_s))

        task = Task(
            command.lanes[0],
            devices,
            lambda: self._devices.switch_s(devices, "train") + seconds,
            done,
            0 if self._costs.by_row is None else work.train_tokens(command, self._workload),
        )
        self._tasks.submit(task, self._now_s)

    def _forget(self, rollouts: Sequence[int]) -> None:
        for rollout in rollouts:
            self._begun.pop(rollout, None)
            home = self._home.pop(rollout, None)
            if home is not None:
                home.batch.forget(rollout)

    # devices

    def _pace_changed(self, lane: ActorLane, now_s: float) -> None:
        """A lane began or ended to decode: scoring on its devices changes pace."""
        if lane.name in self._devices.rivals:
            self._decoding_changed(now_s)

    def _decoding_changed(self, now_s: float) -> None:
        self._tasks.pace_changed(now_s)
        if self._slow_each_other:
            self._set_speeds(now_s)

    def _pace(self, task: Task) -> float:
        """Wall seconds per second of a score's or an update's work now."""
        if not self._rivals:
            return 1.0
        beside = {
            _WORK[self._lanes[other.lane].kind]
            for other in self._tasks.running
            if other is not task and self._is_beside(task.devices, other.devices)
        }
        if any(
            lane.batch.rows and self._is_beside(task.devices, lane.devices) for lane in self._rivals
        ):
            beside.add("decode")
        return 1.0 + sum([self._excess(task, other) for other in sorted(beside)])

    def _excess(self, task: Task, other: str) -> float:
        """By how much other work stretches a task: as measured for its size, if it was."""
        kind, by_row = _WORK[self._lanes[task.lane].kind], self._costs.by_row
        measured = None if by_row is None else by_row.beside(kind, other, task.tokens)
        stretch = self._contention.stretch(kind, (other,)) if measured is None else measured
        return stretch - 1.0

    def _tasks_changed(self, now_s: float) -> None:
        """Scoring or training may have begun or ended: what runs beside it changes speed."""
        if not self._rivals:
            return
        if self._contention.shared_host:
            self._tasks.pace_changed(now_s)
        self._set_speeds(now_s)

    def _set_speeds(self, now_s: float) -> None:
        """Of decoding, by what runs beside it."""
        for actor in self._rivals:
            beside = {
                _WORK[self._lanes[task.lane].kind]
                for task in self._tasks.running
                if self._is_beside(actor.devices, task.devices)
            }
            if self._slow_each_other and any(
                other.batch.rows and self._is_beside(actor.devices, other.devices)
                for other in self._rivals
                if other is not actor
            ):
                beside.add("decode")
            by_row, law = self._costs.by_row, None
            if by_row is not None and len(beside) == 1:
                law = by_row.decode_beside(*beside)
            actor.set_speed(now_s, self._contention.stretch("decode", beside), law)

    def _is_beside(self, one: Collection[str], other: Collection[str]) -> bool:
        return self._contention.shared_host or not set(one).isdisjoint(other)

    def _order(self, event: Event) -> tuple[int, int, int]:
        first = event.counts[0][0] if isinstance(event, Paused) else 0
        return _RANK[type(event)], self._place[event.lane], first


_WORK = {"actor": "decode", "scorer": "score", "trainer": "train"}
_RANK: dict[type, int] = {Finished: 0, Emitted: 1, Paused: 2, Done: 3, Failed: 4}

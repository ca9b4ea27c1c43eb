"""One kind of work at a time on a scenario's lanes, told to them as the machine would."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import count

from oppo_real.machine.actor import ActorLane
from oppo_real.machine.messages import Join, Learn, Read, Worker
from oppo_real.networks.scoring import ScoreChunk
from oppo_real.ppo.batch import Batch
from oppo_real.profile.lanes import Subjects
from oppo_sim.engine.contract import Chunk, Drop, Generate, Pause, Score, Train

FILL = (1.0, 0.7)  # rows of a micro-batch, from its longest to its shortest
# Shares by which one call after the other is longer: on average not at all. Calls of a run are
# hardly ever of a shape that was there, and one that was finds memory and kernels at hand.
LONGER = (0.0, 0.015, -0.015, 0.03, -0.03, 0.045, -0.045)


def varied(size: int, turn: int) -> int:
    """About that size, and another one at every turn, where a share of it is a whole token."""
    return size + round(size * LONGER[turn % len(LONGER)])


def timed(worker: Worker) -> float:
    """Seconds of a worker's next step."""
    begin_s = time.perf_counter()
    worker.step()
    return time.perf_counter() - begin_s


class Decoding:
    """A batch of rows on an actor lane, if not given the first, at about the same context."""

    _ids = count()

    def __init__(
        self, on: Subjects, rows: int, context: int, actor: ActorLane | None = None
    ) -> None:
        self._on, self._rows, self._actor = on, rows, actor or on.actor
        self._tokens = max(0, context - len(on.prompt))  # of each response, when it joins
        self._room = 0  # iterations until the cap is near
        self._running: tuple[int, ...] = ()
        self.context = 0  # that rows hold now
        self.seen: list[int] = []  # contexts, by iteration

    def join(self) -> float:
        """Rows anew; the seconds of their prefill."""
        self.leave()
        on, cap = self._on, self._on.limits.response_tokens
        response = tuple([on.prompt[-1]] * self._tokens)
        self._running = tuple([next(self._ids) for _ in range(self._rows)])
        starts = tuple([(rollout, self._tokens) for rollout in self._running])
        command = Generate(on.places["actor"].name, starts, cap, None)
        self._actor.give(Join(command, tuple([(on.prompt, response)] * self._rows)))
        self._actor.step()
        seconds = timed(self._actor)
        self._room = cap - self._tokens - 1
        self.context = len(on.prompt) + self._tokens
        return seconds

    def once(self) -> float:
        """One iteration."""
        if self._room < 1:
            self.join()
        self._room -= 1
        self.context += 1
        self.seen.append(self.context)
        return timed(self._actor)

    def leave(self) -> None:
        if self._running:
            lane = self._on.places["actor"].name
            self._actor.give(Pause(lane, self._running, keep_kv=False))
            self._actor.step()
            self._running, self._room = (), 0

    def pause(self) -> float:
        """Put all caches aside and bring them back: seconds of both."""
        on, cap = self._on, self._on.limits.response_tokens
        lane = on.places["actor"].name
        begin_s = time.perf_counter()
        self._actor.give(Pause(lane, self._running, keep_kv=True))
        self._actor.step()
        tokens = self.context - len(on.prompt)
        starts = tuple([(rollout, tokens) for rollout in self._running])
        contexts = tuple([(on.prompt, (0,) * tokens)] * self._rows)
        self._actor.give(Join(Generate(lane, starts, cap, None), contexts))
        self._actor.step()
        return time.perf_counter() - begin_s


class Scoring:
    """Rows on the scorer: `tokens` more of each at a time, on what they hold, from `context` on."""

    _ids = count(1 << 30)

    def __init__(self, on: Subjects, rows: int, tokens: int, context: int, most: int) -> None:
        self._on, self._rows, self._tokens = on, rows, tokens
        self._from, self._most, self._turns = context, most, count()
        self._open: tuple[int, ...] = ()
        self._prompt: Sequence[int] = ()
        self.held = 0  # context of each row before the last call
        self.seen: list[int] = []  # the same, by call

    def once(self) -> float:
        """One call. With a context of 0 it reads whole rows, prompt first, and gives rewards."""
        tokens = varied(self._tokens, next(self._turns))
        if not self._from:
            self.drop()
            self._open = tuple([next(self._ids) for _ in range(self._rows)])
            prompt = self._on.prompt[: max(1, min(len(self._on.prompt), tokens - 1))]
            self.seen.append(0)
            return self._read(prompt, 0, tokens - len(prompt), last=True)
        if not self._open or self.held + 2 * self._tokens + tokens > self._most:
            self.drop()
            self._open = tuple([next(self._ids) for _ in range(self._rows)])
            prompt = self._on.prompt[: max(1, self._from - 1)]
            self._read(prompt, 0, self._from - len(prompt))
            self._prompt, self.held = prompt, self._from
        self.seen.append(self.held)
        seconds = self._read(self._prompt, self.held - len(self._prompt), tokens)
        self.held += tokens
        return seconds

    def drop(self) -> None:
        if self._open:
            self._on.scorer.give(Drop(self._open))
            self._on.scorer.step()
            self._open = ()

    def _read(self, prompt: Sequence[int], start: int, tokens: int, last: bool = False) -> float:
        ids = (prompt[-1],) * tokens
        parts = [ScoreChunk(r, prompt, ids, start, last) for r in self._open]
        chunks = [Chunk(r, start, start + tokens, last) for r in self._open]
        command = Score(self._on.places["scorer"].name, tuple(chunks))
        self._on.scorer.give(Read(command, tuple(parts)))
        return timed(self._on.scorer)


class Training:
    """Updates on rows of which the longest has `width` tokens, prompt and response."""

    def __init__(self, on: Subjects, rows: int, width: int, is_one: bool) -> None:
        self._on, self._rows, self._width = on, rows, width
        self._is_one = is_one  # micro-batch; else all rows are as long, so that all have the width
        self._turns = count()

    def once(self) -> float:
        on, update = self._on, self._on.updates
        rollouts = tuple(range(self._rows))
        command = Train((on.places["trainer"].name,), rollouts, update)
        width = varied(self._width, next(self._turns))
        on.trainer.give(Learn(command, self._batch(update, width)))
        return timed(on.trainer)

    def _batch(self, update: int, width: int) -> Batch:
        """Rows as one sorted micro-batch has them: the shorter ones are padded."""
        on = self._on
        prompt = on.prompt[: max(1, width - 1)]
        longest = width - len(prompt)
        counts = [
            max(1, round(longest * _filled(row, self._rows if self._is_one else 1)))
            for row in range(self._rows)
        ]
        responses = tuple([(prompt[-1],) * tokens for tokens in counts])
        ones = tuple([(-1.0,) * tokens for tokens in counts])
        streamed = "reference" in on.real.on_scorer
        return Batch(
            rollouts=tuple(range(self._rows)),
            prompts=(prompt,) * self._rows,
            responses=responses,
            logprobs=ones,
            rewards=tuple([row % 2 * 1.0 for row in range(self._rows)]),
            ended=["stop"] * self._rows,
            versions=tuple([(update,) * tokens for tokens in counts]),
            reference=ones if streamed else None,
        )


def _filled(place: int, rows: int) -> float:
    most, least = FILL
    return most if rows < 2 else most - (most - least) * min(place, rows - 1) / (rows - 1)

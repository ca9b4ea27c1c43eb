"""Kernels without a network: tokens by rule, so that all that a lane carries can be checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from oppo_real.machine.actor import ActorLane
from oppo_real.machine.backend import Clock, TorchBackend
from oppo_real.machine.hosts import Inline, Threads
from oppo_real.machine.lanes import ScorerLane, TrainerLane
from oppo_real.machine.messages import Worker
from oppo_real.machine.store import Store
from oppo_real.networks.decoding import Decoded
from oppo_real.networks.scoring import ScoreChunk, Scored
from oppo_real.ppo.batch import Batch
from oppo_sim.engine.contract import Lane
from tests.simulator.lab import CAP, Work


def token(rollout: int, index: int) -> int:
    return (rollout * 31 + index * 7) % 97


def reward(rollout: int, tokens: int) -> float:
    return sum(token(rollout, index) for index in range(tokens)) / 64


class FakeBatch:
    """A continuous batch that knows how long every response is, and complains about misuse."""

    def __init__(self, length: Callable[[int], int]) -> None:
        self._length = length
        self._rows: dict[int, list[int]] = {}  # running: response so far
        self._caps: dict[int, int] = {}
        self._kept: dict[int, list[int]] = {}
        self._unfilled: set[int] = set()

    def join(
        self, rollout: int, prompt: Sequence[int], response: Sequence[int], cap_tokens: int
    ) -> None:
        assert rollout not in self._rows
        assert rollout not in self._kept
        assert list(response) == [token(rollout, i) for i in range(len(response))]
        self._rows[rollout] = list(response)
        self._caps[rollout] = cap_tokens
        self._unfilled.add(rollout)

    def resume(self, rollout: int) -> None:
        self._rows[rollout] = self._kept.pop(rollout)

    def prefill(self) -> int:
        assert self._unfilled
        tokens = sum(len(self._rows[rollout]) for rollout in self._unfilled)
        self._unfilled.clear()
        return tokens

    def decode(self) -> Decoded:
        assert self._rows
        assert not self._unfilled, "decoding without a cache"
        rollouts, ended = tuple(self._rows), []
        for rollout in rollouts:
            row = self._rows[rollout]
            row.append(token(rollout, len(row)))
            stop, cap = len(row) == self._length(rollout), len(row) == self._caps[rollout]
            ended.append("stop" if stop else "cap" if cap else None)
        tokens = tuple(self._rows[rollout][-1] for rollout in rollouts)
        for rollout, end in zip(rollouts, ended, strict=True):
            if end is not None:
                del self._rows[rollout]
        logprobs = tuple(-float(t) for t in tokens)
        return Decoded(rollouts, tokens, logprobs, tuple(ended))  # type: ignore[arg-type]

    def leave(self, rollout: int, keep: bool) -> None:
        row = self._rows.pop(rollout)
        if keep:
            assert rollout not in self._unfilled
            self._kept[rollout] = row
        self._unfilled.discard(rollout)

    def drop(self, rollout: int) -> None:
        del self._kept[rollout]

    def forget(self) -> None:
        self._kept.clear()

    def recompute(self) -> None:
        self._unfilled.update(self._rows)


class FakeScorer:
    """Rewards add up all the tokens it was ever given: a lost chunk changes them."""

    def __init__(self) -> None:
        self.rows: dict[int, list[int]] = {}

    def score(self, chunks: Sequence[ScoreChunk]) -> list[Scored]:
        return [self._score(chunk) for chunk in chunks]

    def _score(self, chunk: ScoreChunk) -> Scored:
        if chunk.start == 0:
            self.rows[chunk.rollout] = []
        row = self.rows[chunk.rollout]
        assert len(row) == chunk.start
        row += chunk.tokens
        total = sum(row) / 64 if chunk.last else None
        return Scored(chunk.rollout, total, [float(t) for t in chunk.tokens], None)  # type: ignore[arg-type]

    def drop(self, rollouts: Iterable[int]) -> None:
        for rollout in rollouts:
            self.rows.pop(rollout, None)


class FakeTrainer:
    """Checks what it is given to the last token, and learns nothing."""

    def __init__(self, length: Callable[[int], int], cap: int) -> None:
        self._length, self._cap = length, cap
        self.trained: list[int] = []

    def update(self, batch: Batch, update: int) -> Mapping[str, float]:
        assert batch.reference is not None
        for at, rollout in enumerate(batch.rollouts):
            tokens = [token(rollout, i) for i in range(min(self._length(rollout), self._cap))]
            assert list(batch.responses[at]) == tokens
            assert list(batch.logprobs[at]) == [-float(t) for t in tokens]
            assert list(batch.reference[at]) == [float(t) for t in tokens]
            assert batch.rewards[at] == sum(tokens) / 64
            assert batch.ended[at] == ("cap" if self._length(rollout) > self._cap else "stop")
            versions = batch.versions[at]
            assert len(versions) == len(tokens)
            assert list(versions) == sorted(versions)
            assert versions[-1] <= update
        self.trained += batch.rollouts
        return {"rows": float(len(batch.rollouts))}


class Bench:
    """A torch backend whose kernels are fakes."""

    def __init__(self, lanes: list[Lane], host: str, work: Work) -> None:
        clock = Clock()
        self.scorers = {lane.name: FakeScorer() for lane in lanes if lane.kind == "scorer"}
        self.trainer = FakeTrainer(work.raw, CAP)
        workers: dict[str, Worker] = {}
        for lane in lanes:
            workers[lane.name] = self._worker(lane, work, clock)
        self.store = Store(lambda rollout: range(1, 1 + work.prompt_tokens(rollout)))
        self.stats: list[tuple[int, Any]] = []
        on: Inline | Threads = Inline(workers) if host == "inline" else Threads(workers)
        self.backend = TorchBackend(
            lanes, on, self.store, lambda update, stats: self.stats.append((update, stats))
        )

    def _worker(self, lane: Lane, work: Work, clock: Clock) -> Worker:
        if lane.kind == "actor":
            batch: Any = FakeBatch(work.raw)
            return ActorLane(lane, batch, clock, lambda weights: None)
        if lane.kind == "scorer":
            scorer: Any = self.scorers[lane.name]
            return ScorerLane(lane.name, scorer, clock, lambda: None)
        trainer: Any = self.trainer
        return TrainerLane(lane.name, trainer, clock, lambda: None, lambda: None)

"""The rollouts' own data - tokens, log-probabilities, versions, rewards - on the engine's side.

Lanes share nothing: what a lane decodes or scores comes here with its news, and what a lane needs
is handed to it with its command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from oppo_real.networks.scoring import ScoreChunk, Scored
from oppo_real.ppo.batch import Batch
from oppo_sim.engine.contract import Chunk

Ended = Literal["stop", "cap"]


class Tokens(NamedTuple):
    """What one rollout has decoded since its lane last told of it; by one version of weights."""

    rollout: int
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    version: int


@dataclass(slots=True)
class Row:
    """One rollout. All lists run along its response."""

    prompt: tuple[int, ...]
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)  # when each token was sampled
    versions: list[int] = field(default_factory=list)  # of the weights that decoded each token
    reference: list[float] = field(default_factory=list)  # as far as scored; empty: not streamed
    values: list[float] = field(default_factory=list)  # the same
    scored: list[tuple[int, int]] = field(default_factory=list)  # the chunks, as they were scored
    reward: float | None = None
    ended: Ended | None = None


class Store:
    """`prompts(rollout)`: its prompt's token ids, a pure function."""

    def __init__(self, prompts: Callable[[int], Sequence[int]]) -> None:
        self._prompts = prompts
        self.rows: dict[int, Row] = {}

    def prompt(self, rollout: int) -> tuple[int, ...]:
        return tuple(self._prompts(rollout))

    def start(self, rollout: int, tokens: int) -> Row:
        """A rollout goes to a lane with this many of its tokens; what it had beyond is lost."""
        row = self.rows.get(rollout)
        if row is None:
            row = self.rows[rollout] = Row(self.prompt(rollout))
        if tokens > len(row.ids):
            raise ValueError(f"rollout {rollout} starts at {tokens}, it has {len(row.ids)} tokens")
        for along in (row.ids, row.logprobs, row.versions):
            del along[tokens:]
        return row

    def decoded(self, news: Iterable[Tokens]) -> None:
        for rollout, ids, logprobs, version in news:
            row = self.rows[rollout]
            row.ids += ids
            row.logprobs += logprobs
            row.versions += [version] * len(ids)

    def chunk(self, chunk: Chunk) -> ScoreChunk:
        row = self.rows[chunk.rollout]
        if not chunk.start < chunk.end <= len(row.ids):
            raise ValueError(
                f"rollout {chunk.rollout}: [{chunk.start}, {chunk.end}) is not decoded"
            )
        return ScoreChunk(
            rollout=chunk.rollout,
            prompt=row.prompt,
            tokens=tuple(row.ids[chunk.start : chunk.end]),
            start=chunk.start,
            last=chunk.last,
        )

    def scored(self, chunks: Iterable[Chunk], scores: Iterable[Scored]) -> None:
        for chunk, score in zip(chunks, scores, strict=True):
            row = self.rows.get(chunk.rollout)
            if row is None:
                continue  # it was dropped meanwhile
            for along, more in ((row.reference, score.reference), (row.values, score.values)):
                if more is not None:
                    del along[chunk.start :]
                    along += [float(value) for value in more]
            if chunk.start == 0:
                row.scored.clear()
            row.scored.append((chunk.start, chunk.end))
            if score.reward is not None:
                row.reward = score.reward

    def batch(self, rollouts: Sequence[int]) -> Batch:
        rows = [self.rows[rollout] for rollout in rollouts]
        lacking = [r for r, row in zip(rollouts, rows, strict=True) if row.reward is None]
        if lacking:
            raise ValueError(f"no reward yet for rollouts {lacking}")
        return Batch(
            rollouts=tuple(rollouts),
            prompts=tuple([row.prompt for row in rows]),
            responses=tuple([tuple(row.ids) for row in rows]),
            logprobs=tuple([tuple(row.logprobs) for row in rows]),
            versions=tuple([tuple(row.versions) for row in rows]),
            reference=_streamed([row.reference for row in rows], rows),
            values=_streamed([row.values for row in rows], rows),
            rewards=tuple([float(row.reward or 0.0) for row in rows]),
            ended=tuple([row.ended or "cap" for row in rows]),
        )

    def forget(self, rollouts: Iterable[int]) -> None:
        for rollout in rollouts:
            self.rows.pop(rollout, None)


def _streamed(
    along: Sequence[Sequence[float]], rows: Sequence[Row]
) -> tuple[tuple[float, ...], ...] | None:
    """What the scorer has computed along all the responses, or None where it has not."""
    if any(len(values) != len(row.ids) for values, row in zip(along, rows, strict=True)):
        return None
    return tuple([tuple(values) for values in along])

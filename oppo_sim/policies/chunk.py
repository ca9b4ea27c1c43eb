"""Chunk policies: how many tokens a lane decodes before it hands them to the scorer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from oppo_sim.policies.checks import at_least, whole
from oppo_sim.records import Observation, StepRecord


class ChunkPolicy(Protocol):
    @property
    def window(self) -> int:
        """How many of the latest steps the policy reads."""

    def chunk_tokens(self, seen: Observation) -> int | None:
        """Tokens per round in the step that begins; None: no rounds, whole responses."""


@dataclass(frozen=True, slots=True)
class WholeResponse:
    """No streaming: a response is scored once it is complete."""

    window: int = 0

    def chunk_tokens(self, seen: Observation) -> int | None:
        return None


@dataclass(frozen=True, slots=True)
class FixedChunk:
    tokens: int
    window: int = 0

    def __post_init__(self) -> None:
        at_least("chunk", self.tokens, 1)

    def chunk_tokens(self, seen: Observation) -> int | None:
        return self.tokens


@dataclass(frozen=True, slots=True)
class ProbedChunk:
    """The paper's: every `every` steps each candidate is tried on a step; then the fastest serves.

    `repeats` steps per candidate lessen the chance that a lucky batch decides (the paper: one, as
    far as is known).
    """

    candidates: tuple[int, ...] = (128, 256, 512)
    every: int = 50
    repeats: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "candidates", tuple(self.candidates))
        if not self.candidates:
            raise ValueError("chunk.candidates is empty: name at least one chunk size")
        for tokens in self.candidates:
            at_least("chunk.candidates", tokens, 1)
        at_least("chunk.repeats", self.repeats, 1)
        whole("chunk.every", self.every)
        if self.every <= self._probes:
            raise ValueError(
                f"chunk.every = {self.every} leaves no step to use the winner: "
                f"it must exceed candidates x repeats = {self._probes}"
            )

    @property
    def _probes(self) -> int:
        return len(self.candidates) * self.repeats

    @property
    def window(self) -> int:
        return self.every

    def chunk_tokens(self, seen: Observation) -> int | None:
        place = seen.step % self.every
        if place < self._probes:
            return self.candidates[place % len(self.candidates)]
        first = seen.step - place
        probes = [r for r in seen.recent if first <= r.step < first + self._probes]
        return min(self.candidates, key=lambda tokens: _mean_seconds(probes, tokens))


def _mean_seconds(steps: list[StepRecord], tokens: int) -> float:
    tried = [r.seconds for r in steps if r.chunk_tokens == tokens]
    return sum(tried) / len(tried) if tried else float("inf")


def sizes(policy: ChunkPolicy | int | None) -> tuple[int, ...]:
    """The chunks that it chooses among; () for whole responses, and where that is not known."""
    match policy:
        case int():
            return (policy,)
        case FixedChunk(tokens=tokens):
            return (tokens,)
        case ProbedChunk(candidates=candidates):
            return candidates
        case _:
            return ()

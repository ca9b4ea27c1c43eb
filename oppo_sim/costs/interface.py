"""The one interface of every cost model: seconds per task.

Nothing here knows a clock. Costs are finite and not negative; counts are whole numbers of tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self

from oppo_sim.costs.decode import DecodeLaw, Line

__all__ = ["ByRow", "Costs", "DecodeLaw", "Line", "attention_pairs"]


class ByRow(Protocol):
    """Costs that depend on how a call's rows are padded together, not on sums alone."""

    def score_s(self, rows: Sequence[tuple[int, int]]) -> float:
        """One scorer call that reads context tokens [first, final) of each row."""

    def train_s(self, contexts: Sequence[int]) -> float:
        """One PPO update on rows of these lengths, prompts included."""

    def beside(self, kind: str, other: str, tokens: int) -> float | None:
        """Wall seconds per second of a call beside another kind of work; None: not measured."""

    def decode_beside(self, other: str) -> DecodeLaw | None:
        """The decode law beside it; None: not measured."""


class Costs(Protocol):
    """Seconds per task of a pipeline whose lanes of one kind are alike."""

    @property
    def decode(self) -> DecodeLaw:
        """Of one actor lane."""

    @property
    def by_row(self) -> ByRow | None:
        """Asked in place of `score_s` and `train_s`, where there is one."""

    def prefill_s(self, tokens: int, attention: float) -> float:
        """Prefill of prompt or lost tokens on one actor lane; `attention` as in `score_s`."""

    def score_s(self, sequences: int, tokens: int, attention: float, lasts: int) -> float:
        """One scorer call: `tokens` new tokens over `sequences` rows, `lasts` of which end here.

        `attention`, in query-key pairs, is the sum of `attention_pairs(start, end)` over the rows.
        """

    def train_s(self, sequences: int, tokens: int, longest: int) -> float:
        """One PPO update on the trainer gang; `tokens` and `longest` count prompt and response."""

    def sync_s(self) -> float:
        """New weights from the trainer to the actor lanes."""

    def handoff_s(self, tokens: int) -> float:
        """Chunks of `tokens` tokens in all from an actor lane to a scorer."""

    def scaled(self, factor: float) -> Self:
        """Every cost times `factor`; exact if it is a power of two."""


def attention_pairs(start: int, end: int) -> float:
    """Causal query-key pairs of the tokens [start, end) of a row; chunks add up to the row."""
    return (end * end - start * start) * 0.5

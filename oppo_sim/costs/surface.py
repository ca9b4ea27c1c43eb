"""The decode law through measured batches: for each batch a law of its own, mixed from theirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from oppo_sim.costs import checks
from oppo_sim.costs.decode import ENDLESS, DecodeLaw, Line
from oppo_sim.costs.knots import Knot, at_batch, raised
from oppo_sim.costs.ranges import Range


@dataclass(frozen=True)
class DecodeSurface(DecodeLaw):
    """A law for each batch, mixed from those of measured batches (see `knots.at_batch`).

    With the batch given it is a `DecodeLaw`, so that every sum keeps its closed form.
    """

    knots: tuple[Knot, ...]
    batches: Range = field(compare=False)
    contexts: Range = field(compare=False)
    _laws: dict[int, tuple[DecodeLaw, float, float]] = field(init=False, repr=False, compare=False)
    _least_s: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        DecodeLaw.__post_init__(self)
        object.__setattr__(self, "_laws", {})
        object.__setattr__(self, "_least_s", self.token_s(1, 0.0))

    @classmethod
    def through(cls, knots: tuple[Knot, ...], batches: Range, contexts: Range) -> Self:
        """The surface through rising knots (see `knots.raised`)."""
        lines = tuple(Line(c, 0.0, k / knots[0].batch) for c, k in knots[0].lines)
        return cls(lines, knots, batches, contexts)

    def token_s(self, batch: int, context_tokens: float) -> float:
        return self._at(batch)[0].token_s(batch, context_tokens)

    def flat_s(self, batch: int, context_tokens: float, tokens: int) -> float | None:
        """None too where it is the least of all, but might not be for fewer, longer rollouts."""
        last = context_tokens + (tokens - 1) * batch
        law = self._watched(batch, context_tokens, last)
        flat = law.flat_s(batch, context_tokens, tokens)
        if flat == self._least_s and law.token_s(batch, last * batch) != flat:
            return None
        return flat

    def span_s(self, batch: int, context_tokens: float, tokens: int) -> float:
        if tokens <= 0:
            return 0.0
        last = context_tokens + (tokens - 1) * batch
        return self._watched(batch, context_tokens, last).span_s(batch, context_tokens, tokens)

    def tokens_by(
        self,
        batch: int,
        context_tokens: float,
        start_s: float,
        end_s: float,
        most: int = ENDLESS,
    ) -> int:
        return self._at(batch)[0].tokens_by(batch, context_tokens, start_s, end_s, most)

    def scaled(self, factor: float) -> Self:
        checks.positive("DecodeSurface.scaled", factor=factor)
        knots = tuple(knot.scaled(factor) for knot in self.knots)
        return type(self).through(knots, self.batches, self.contexts)

    def stretched(self, ratio: Callable[[int], float]) -> Self:
        """With every batch's times multiplied by a ratio of its own; they still rise."""
        knots = raised([knot.scaled(ratio(knot.batch)) for knot in self.knots])
        return type(self).through(knots, self.batches, self.contexts)

    def _watched(self, batch: int, first: float, last: float) -> DecodeLaw:
        law, least, most = self._at(batch)
        self.batches.see(batch)
        if first < least or last > most:
            self.contexts.leave()
        return law

    def _at(self, batch: int) -> tuple[DecodeLaw, float, float]:
        """The law of a batch, and the range of its context that was measured."""
        found = self._laws.get(batch)
        if found is None:
            knot = at_batch(self.knots, batch)
            law = DecodeLaw(tuple(Line(c, 0.0, k / batch) for c, k in knot.lines))
            found = law, knot.least * batch, knot.most * batch
            self._laws[batch] = found
        return found

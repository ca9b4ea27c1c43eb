"""Costs by the row, of a table that `oppo profile` wrote: padded forwards, work side by side."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

from oppo_sim.costs.beside import Beside
from oppo_sim.costs.forwards import Forwards
from oppo_sim.costs.interface import DecodeLaw
from oppo_sim.costs.measurements import Measurements
from oppo_sim.costs.ranges import ExtrapolationWarning
from oppo_sim.costs.surface import DecodeSurface


@dataclass(frozen=True)
class Profiled:
    """A `ByRow`."""

    forwards: Forwards
    decode: DecodeSurface
    sharing: Beside
    _laws: dict[str, DecodeLaw] = field(default_factory=dict, repr=False, compare=False)

    def score_s(self, rows: Sequence[tuple[int, int]]) -> float:
        return self.forwards.score_s(rows)

    def train_s(self, contexts: Sequence[int]) -> float:
        return self.forwards.train_s(contexts)

    def beside(self, kind: str, other: str, tokens: int) -> float | None:
        return self.sharing.ratio(kind, other, tokens)

    def decode_beside(self, other: str) -> DecodeLaw | None:
        if f"decode+{other}" not in self.sharing.points:
            return None
        if other not in self._laws:
            self._laws[other] = self.decode.stretched(
                lambda batch: self.sharing.ratio("decode", other, batch) or 1.0
            )
        return self._laws[other]


def sharing(table: Measurements, decode: DecodeLaw, forwards: Forwards) -> Beside:
    """As `Beside.of`; what it asks of the laws is no extrapolation of a simulation."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)
        return Beside.of(table, decode, forwards)

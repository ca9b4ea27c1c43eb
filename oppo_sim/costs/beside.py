"""How much work is slowed by other work beside it, by a table that measured both.

What a second thread brings depends on how much there is to share: a ratio holds for a size - rows
of decoding, tokens of a call - and between two sizes it is taken to go straight over their
logarithms; beyond them it stays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from statistics import fmean, median

from oppo_sim.costs.forwards import Forwards
from oppo_sim.costs.interface import DecodeLaw
from oppo_sim.costs.measurements import BESIDE, Measurements, Row

Points = tuple[tuple[float, float], ...]  # size and ratio, by size


@dataclass(frozen=True)
class Beside:
    """Seconds beside other work over seconds alone, by task ("decode+score") and size."""

    points: Mapping[str, Points]

    @classmethod
    def of(cls, table: Measurements, decode: DecodeLaw, forwards: Forwards) -> Beside:
        """Ratios may be below 1: two lanes side by side have a thread each, which small calls like
        better than the two of a lane alone. The laws have the table's scale."""
        found = {}
        for task in BESIDE:
            ratios: dict[int, list[float]] = defaultdict(list)
            for row in table.of(task):
                kind = task.partition("+")[0]
                size = row.batch if kind == "decode" else row.tokens
                ratios[size].append(row.seconds / _alone_s(kind, row, decode, forwards))
            if ratios:
                found[task] = tuple([(n, fmean(ratios[n])) for n in sorted(ratios)])
        if "decode+score" in found:  # of a single actor lane: a second one takes a core as well
            found.setdefault("decode+decode", found["decode+score"])
        return cls(found)

    def ratio(self, kind: str, other: str, size: int) -> float | None:
        """None where it was not measured."""
        points = self.points.get(f"{kind}+{other}")
        if points is None:
            return None
        low = points[0]
        for high in points:
            if size <= high[0]:
                if high[0] == low[0]:
                    return high[1]
                share = max(0.0, log(size / low[0]) / log(high[0] / low[0]))
                return low[1] + share * (high[1] - low[1])
            low = high
        return low[1]

    @property
    def stretches(self) -> dict[str, float]:
        """As `cluster.contention` has them: the median over sizes, at least 1."""
        short = {"decode+score": "decode_stretch", "score+decode": "score_stretch"}
        return {
            short.get(task, f"{task.replace('+', '_')}_stretch"): max(
                1.0, median([ratio for _, ratio in points])
            )
            for task, points in self.points.items()
        }


def _alone_s(kind: str, row: Row, decode: DecodeLaw, forwards: Forwards) -> float:
    if kind == "decode":
        return decode.token_s(row.batch, row.context_tokens)
    held, tokens = row.context_tokens // row.batch, row.tokens // row.batch
    if kind == "score":
        return forwards.score_s([(held, held + tokens)] * row.batch)
    return forwards.train_s([tokens] * row.batch)

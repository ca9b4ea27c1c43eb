"""Seconds of padded forwards by what they do, fitted to many that were measured.

A forward reads tokens, each of which attends to those before it, and goes on with rows whose caches
it first gathers. So its time is a curve over its tokens, which never falls, and a price of each
query-key pair and of each gathered token. Two forwards of as many tokens tell the prices; so no
single call, as noisy as it was, has a say of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from oppo_sim.costs.curves import Curve, Point, rising
from oppo_sim.costs.measurements import LEAST_S, Row
from oppo_sim.costs.ranges import Range


class Padded(NamedTuple):
    """Of one task; `pair_s` and `gathered_s` are seconds of a pair and of a gathered token."""

    curve: Curve
    pair_s: float
    gathered_s: float
    counts: Range

    def seconds(self, tokens: int, pairs: float, gathered: int = 0) -> float:
        self.counts.see(tokens)
        return self.curve.at(tokens)[1] + self.pair_s * pairs + self.gathered_s * gathered

    def scaled(self, factor: float) -> Padded:
        pair_s, gathered_s = self.pair_s * factor, self.gathered_s * factor
        return self._replace(curve=self.curve.scaled(factor), pair_s=pair_s, gathered_s=gathered_s)


def padded(table: str, task: str, rows: Sequence[Row]) -> Padded:
    """The law through measured forwards of one task: rows of one length each, on one context."""
    counts = Range.of_tokens(table, task, [row.tokens for row in rows])
    pair_s, gathered_s = _prices(rows)
    rest = [row.seconds - pair_s * row.attention - gathered_s * _gathered(row) for row in rows]
    points = [Point(row.tokens, max(LEAST_S, s), 0.0) for row, s in zip(rows, rest, strict=True)]
    return Padded(rising(points), pair_s, gathered_s, counts)


def _gathered(row: Row) -> int:
    """Tokens of the caches that it reads: rows that open have none."""
    return row.context_tokens + row.tokens if row.context_tokens else 0


def _prices(rows: Sequence[Row]) -> tuple[float, float]:
    """By how much forwards of as many tokens differ, least squares of relative errors, 0 or more.

    0 for what does not differ among them.
    """
    from scipy.optimize import nnls  # half a second to import, and only tables need it

    alike: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        alike[row.tokens].append(row)
    does, takes = [], []
    for some in alike.values():
        seconds = fmean(row.seconds for row in some)
        pairs, gathered = fmean(r.attention for r in some), fmean(_gathered(r) for r in some)
        for row in some:
            does.append(((row.attention - pairs) / seconds, (_gathered(row) - gathered) / seconds))
            takes.append(row.seconds / seconds - 1)
    most = [max(abs(one[axis]) for one in does) or 1.0 for axis in (0, 1)]  # they differ by far
    found, _ = nnls([(p / most[0], g / most[1]) for p, g in does], takes)
    return float(found[0]) / most[0], float(found[1]) / most[1]

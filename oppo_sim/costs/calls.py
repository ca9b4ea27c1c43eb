"""Seconds of calls over many tokens at once, along and between the measured curves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from oppo_sim.costs.curves import Curve, Point, rising
from oppo_sim.costs.measurements import Row
from oppo_sim.costs.ranges import Range

NEAR = 0.01  # positions that differ by less are the same


class Calls(NamedTuple):
    """A task over tokens and their positions: along the measured curves, and between them.

    Of curves at the same position the one counts that was measured nearest to these tokens (`own`:
    from what to what number of them); the others have the shape of a neighbour there. Beyond the
    farthest position at hand each query-key pair more costs `pair_s`.
    """

    curves: tuple[Curve, ...]
    own: tuple[tuple[float, float], ...]
    pair_s: float
    counts: Range
    positions: Range | None  # None: positions do not matter

    def seconds(self, tokens: int, attention: float) -> float:
        self.counts.see(tokens)
        nearest = min([curve.distance(tokens) for curve in self.curves])
        found = self._met(tokens, nearest)
        if self.positions is None:
            return fmean([seconds for _, seconds in found])
        position = attention / tokens
        low, high = found[0], found[-1]
        if not low[0] * (1 - NEAR) <= position <= high[0] * (1 + NEAR):
            self.positions.leave()
        if position >= high[0]:
            return high[1] + self.pair_s * tokens * (position - high[0])
        for above in found:
            if position <= above[0]:
                break
            low = above
        if above[0] == low[0]:
            return low[1]
        return low[1] + (position - low[0]) / (above[0] - low[0]) * (above[1] - low[1])

    def _met(self, tokens: int, nearest: float) -> list[tuple[float, float]]:
        """Positions and seconds of the curves that are as near as that, by position."""
        at = [
            (*curve.at(tokens), max(low - tokens, tokens - high, 0))
            for curve, (low, high) in zip(self.curves, self.own, strict=True)
            if curve.distance(tokens) == nearest
        ]
        found: list[tuple[float, float, float]] = []
        for one in sorted(at):
            if found and one[0] <= found[-1][0] * (1 + NEAR):
                if one[2] < found[-1][2]:
                    found[-1] = one
            else:
                found.append(one)
        return [(position, seconds) for position, seconds, _ in found]

    def scaled(self, factor: float) -> Calls:
        curves = tuple(curve.scaled(factor) for curve in self.curves)
        return self._replace(curves=curves, pair_s=self.pair_s * factor)


def calls(table: str, task: str, rows: Sequence[Row]) -> Calls:
    """The curves through measured calls of one task, each call on one at least."""
    counts = Range.of_tokens(table, task, [row.tokens for row in rows])
    if task not in ("prefill", "score"):
        return Calls((_curve(rows).bent(),), ((counts.least, counts.most),), 0.0, counts, None)
    at = [row.attention / row.tokens for row in rows]
    beyond = "taken as the nearest, plus a price per query-key pair"
    what = f"{task}: mean position of a token in its row (not all at every count of tokens)"
    positions = Range(what, min(at), max(at), beyond, table)
    families = _families(rows)
    own = tuple((curve.tokens[0], curve.tokens[-1]) for curve in families)
    curves = tuple(curve.bent() for curve in _filled(families))
    return Calls(curves, own, _pair_s(rows), counts, positions)


def _families(rows: Sequence[Row]) -> list[Curve]:
    """Rows of one batch, and of one length, at one context and several counts of tokens.

    The others by rank: the shortest position at every count of tokens, the next, and so on.
    """
    levelled = _levelled(rows)
    groups: dict[tuple[str, float, float], list[Row]] = defaultdict(list)
    for row in levelled:
        context = row.context_tokens / row.batch
        groups["batch", row.batch, context].append(row)
        groups["length", row.tokens / row.batch, context].append(row)
    several = [group for group in groups.values() if len({row.tokens for row in group}) > 1]
    held = {row for group in several for row in group}
    ranks: dict[int, list[Row]] = defaultdict(list)
    for group in _by_tokens(row for row in levelled if row not in held).values():
        for rank, row in enumerate(sorted(group, key=lambda row: row.attention)):
            ranks[rank].append(row)
    return [_curve(group) for group in (*several, *ranks.values())]


def _levelled(rows: Iterable[Row]) -> list[Row]:
    """One row for repeated ones, and none that takes less time than one of fewer tokens.

    So it is before they are on several curves, which meet then.
    """
    groups: dict[tuple[int, float], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.batch, row.context_tokens / row.batch].append(row)
    found = []
    for group in groups.values():
        curve = _curve(group)
        seconds = dict(zip(curve.tokens, curve.seconds, strict=True))
        once = {row.tokens: row for row in group}
        found += [row._replace(seconds=seconds[row.tokens]) for row in once.values()]
    return found


def _filled(curves: Sequence[Curve]) -> list[Curve]:
    """What one curve leaves out has the shape of the fullest, and it of them, to the most tokens.

    Kernels change at some count of tokens whatever the rows are: the ratio of two curves is smooth
    where neither of them is.
    """
    fullest = max(curves, key=lambda curve: len(curve.tokens))
    ratios = {curve: ratio for curve in curves if (ratio := _ratio(curve, fullest)) is not None}
    whole = fullest
    for curve, ratio in ratios.items():
        found = zip(curve.tokens, curve.seconds, strict=True)
        whole = whole.filled({n: seconds / ratio.at(n)[1] for n, seconds in found})
    known = dict(zip(whole.tokens, whole.seconds, strict=True))
    return [
        curve.filled({n: known[n] * ratios[curve].at(n)[1] for n in known})
        if curve in ratios
        else (whole if curve is fullest else curve)
        for curve in curves
    ]


def _ratio(curve: Curve, other: Curve) -> Curve | None:
    """Of their seconds, where both were measured; None for less than two points, or the same."""
    mine, its = (dict(zip(one.tokens, one.seconds, strict=True)) for one in (curve, other))
    both = [n for n in curve.tokens if n in its]
    if curve is other or len(both) < 2:
        return None
    ratios = [mine[n] / its[n] for n in both]
    return Curve((*both, both[-1] + 1), (*ratios, ratios[-1]), (0.0,) * (len(both) + 1))


def _curve(rows: Iterable[Row]) -> Curve:
    return rising(Point(row.tokens, row.seconds, row.attention / row.tokens) for row in rows)


def _pair_s(rows: Sequence[Row]) -> float:
    """The slope by query-key pairs among calls of as many tokens, least squares of relative errors.

    0 where no two calls of as many tokens differ in their pairs, or where more pairs cost less.
    """
    over = under = 0.0
    for group in _by_tokens(rows).values():
        pairs, seconds = fmean(row.attention for row in group), fmean(row.seconds for row in group)
        over += sum((r.attention - pairs) * (r.seconds - seconds) for r in group) / seconds**2
        under += sum((row.attention - pairs) ** 2 for row in group) / seconds**2
    return max(over / under, 0.0) if under else 0.0


def _by_tokens(rows: Iterable[Row]) -> dict[int, list[Row]]:
    groups: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.tokens].append(row)
    return groups

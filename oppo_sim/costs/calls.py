"""Seconds of calls over many tokens at once, linear between those that were measured."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from oppo_sim.costs.measurements import Row
from oppo_sim.costs.ranges import Range

NEAR = 0.01  # positions that differ by less are the same


class Curve(NamedTuple):
    """Calls that differ in their tokens: one batch, or rows of one length."""

    tokens: tuple[int, ...]
    seconds: tuple[float, ...]
    positions: tuple[float, ...]  # of a token in its row, on average: half of a whole row's length

    def at(self, tokens: int) -> tuple[float, float]:
        """Position and seconds: linear between the measured ones.

        Fewer tokens cost as much as the fewest; beyond the most the last rise goes on, or, where
        there is one measurement, its seconds per token.
        """
        known = self.tokens
        if tokens <= known[0]:
            return self.positions[0], self.seconds[0]
        if tokens > known[-1]:
            more = tokens - known[-1]
            return self.positions[-1], self.seconds[-1] + max(self._slope(len(known) - 1), 0) * more
        high = bisect_left(known, tokens)
        share = (tokens - known[high - 1]) / (known[high] - known[high - 1])
        low_s, low_at = self.seconds[high - 1], self.positions[high - 1]
        return (
            low_at + share * (self.positions[high] - low_at),
            low_s + share * (self.seconds[high] - low_s),
        )

    def distance(self, tokens: int) -> int:
        """From the tokens that were measured, 0 among them."""
        return max(self.tokens[0] - tokens, tokens - self.tokens[-1], 0)

    def _slope(self, high: int) -> float:
        if high == 0:
            return self.seconds[0] / self.tokens[0]
        rise = self.seconds[high] - self.seconds[high - 1]
        return rise / (self.tokens[high] - self.tokens[high - 1])


class Calls(NamedTuple):
    """A task over tokens and their positions: along the measured curves, and between them.

    Beyond the farthest position at hand each query-key pair more costs `pair_s`.
    """

    curves: tuple[Curve, ...]
    pair_s: float
    counts: Range
    positions: Range | None  # None: positions do not matter

    def seconds(self, tokens: int, attention: float) -> float:
        self.counts.see(tokens)
        nearest = min([curve.distance(tokens) for curve in self.curves])
        found = sorted([c.at(tokens) for c in self.curves if c.distance(tokens) == nearest])
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

    def scaled(self, factor: float) -> Calls:
        curves = tuple(
            curve._replace(seconds=tuple(s * factor for s in curve.seconds))
            for curve in self.curves
        )
        return self._replace(curves=curves, pair_s=self.pair_s * factor)


def calls(table: str, task: str, rows: Sequence[Row]) -> Calls:
    """The curves through measured calls of one task, each call on one at least."""
    tokens = [row.tokens for row in rows]
    beyond = "fewer cost as the fewest, more go on with the last rise"
    counts = Range(f"{task}: tokens of a call", min(tokens), max(tokens), beyond, table)
    if task not in ("prefill", "score"):
        return Calls((_curve(rows),), 0.0, counts, None)
    at = [row.attention / row.tokens for row in rows]
    beyond = "taken as the nearest, plus a price per query-key pair"
    what = f"{task}: mean position of a token in its row (not all at every count of tokens)"
    positions = Range(what, min(at), max(at), beyond, table)
    return Calls(_filled(_families(rows)), _pair_s(rows), counts, positions)


def _families(rows: Sequence[Row]) -> list[Curve]:
    """Rows of one batch, and of one row length and context, at several counts of tokens."""
    groups: dict[tuple[float, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[(row.batch,)].append(row)
        groups[row.tokens / row.batch, row.context_tokens / row.batch].append(row)
    several = [group for group in groups.values() if len({row.tokens for row in group}) > 1]
    held = {row for group in several for row in group}
    alone = [row for row in rows if row not in held]
    return [_curve(group) for group in [*several, *([alone] if alone else [])]]


def _filled(curves: Sequence[Curve]) -> tuple[Curve, ...]:
    """What one curve leaves out between its points has the shape of the fullest, and it of them.

    Kernels change at some count of tokens whatever the rows are: the ratio of two curves is smooth
    where neither of them is.
    """
    fullest = max(curves, key=lambda curve: len(curve.tokens))
    ratios = {curve: ratio for curve in curves if (ratio := _ratio(curve, fullest)) is not None}
    whole = fullest
    for curve, ratio in ratios.items():
        found = zip(curve.tokens, curve.seconds, strict=True)
        whole = _with(whole, {n: seconds / ratio.at(n)[1] for n, seconds in found})
    known = dict(zip(whole.tokens, whole.seconds, strict=True))
    return tuple(
        _with(curve, {n: known[n] * ratios[curve].at(n)[1] for n in known})
        if curve in ratios
        else (whole if curve is fullest else curve)
        for curve in curves
    )


def _ratio(curve: Curve, other: Curve) -> Curve | None:
    """Of their seconds, where both were measured; None for less than two points, or the same."""
    mine, its = (dict(zip(one.tokens, one.seconds, strict=True)) for one in (curve, other))
    both = [n for n in curve.tokens if n in its]
    if curve is other or len(both) < 2:
        return None
    ratios = [mine[n] / its[n] for n in both]
    return Curve((*both, both[-1] + 1), (*ratios, ratios[-1]), (0.0,) * (len(both) + 1))


def _with(curve: Curve, more: Mapping[int, float]) -> Curve:
    """The curve with points between its own."""
    points = {
        n: (seconds, curve.at(n)[0]) for n, seconds in more.items() if not curve.distance(n)
    } | {n: (seconds, position) for n, seconds, position in zip(*curve, strict=True)}
    known = sorted(points)
    return Curve(tuple(known), *(tuple(points[n][k] for n in known) for k in (0, 1)))


def _curve(rows: Iterable[Row]) -> Curve:
    by_tokens: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_tokens[row.tokens].append(row)
    known = sorted(by_tokens)
    return Curve(
        tuple(known),
        tuple(fmean(row.seconds for row in by_tokens[n]) for n in known),
        tuple(fmean(row.attention / n for row in by_tokens[n]) for n in known),
    )


def _pair_s(rows: Sequence[Row]) -> float:
    """The slope by query-key pairs among calls of as many tokens, least squares of relative errors.

    0 where no two calls of as many tokens differ in their pairs, or where more pairs cost less.
    """
    by_tokens: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_tokens[row.tokens].append(row)
    over = under = 0.0
    for group in by_tokens.values():
        pairs, seconds = fmean(row.attention for row in group), fmean(row.seconds for row in group)
        over += sum((r.attention - pairs) * (r.seconds - seconds) for r in group) / seconds**2
        under += sum((row.attention - pairs) ** 2 for row in group) / seconds**2
    return max(over / under, 0.0) if under else 0.0

"""Seconds over tokens, through measured points: never falling, and bent where they bend."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import NamedTuple


class Point(NamedTuple):
    tokens: float
    seconds: float
    position: float  # of a token in its row, on average: half of a whole row's length


class Curve(NamedTuple):
    """Calls that differ in their tokens: one batch, or rows of one length. Columns of points."""

    tokens: tuple[float, ...]
    seconds: tuple[float, ...]
    positions: tuple[float, ...]

    @classmethod
    def of(cls, points: Iterable[Point]) -> Curve:
        return cls(*zip(*sorted(points), strict=True))

    def points(self) -> list[Point]:
        return [Point(*point) for point in zip(*self, strict=True)]

    def at(self, tokens: float) -> tuple[float, float]:
        """Position and seconds: linear between the points.

        Fewer tokens cost as much as the fewest; beyond the most the last rise goes on, or, where
        there is one point, its seconds per token.
        """
        known = self.tokens
        if tokens <= known[0]:
            return self.positions[0], self.seconds[0]
        if tokens > known[-1]:
            more = tokens - known[-1]
            return self.positions[-1], self.seconds[-1] + self._slope(len(known)) * more
        high = bisect_left(known, tokens)
        share = (tokens - known[high - 1]) / (known[high] - known[high - 1])
        low_s, low_at = self.seconds[high - 1], self.positions[high - 1]
        return (
            low_at + share * (self.positions[high] - low_at),
            low_s + share * (self.seconds[high] - low_s),
        )

    def distance(self, tokens: float) -> float:
        """From the tokens that were measured, 0 among them."""
        return max(self.tokens[0] - tokens, tokens - self.tokens[-1], 0)

    def filled(self, more: Mapping[float, float]) -> Curve:
        """With further points, not before its first; none below its left or above its right."""
        points, top = self.points(), self.seconds[-1]
        for tokens, seconds in sorted(more.items()):
            if tokens in self.tokens or tokens < self.tokens[0]:
                continue
            high = bisect_left(self.tokens, tokens)
            if high < len(self.tokens):
                seconds = min(max(seconds, self.seconds[high - 1]), self.seconds[high])
            else:
                seconds = top = max(seconds, top)
            points.append(Point(tokens, seconds, self.at(tokens)[0]))
        return Curve.of(points)

    def bent(self) -> Curve:
        """With a point more in each gap where the curve is convex.

        A convex curve runs below the chord of the gap, and above the lines that come in from both
        sides; halfway between them no curve is farther than half of what they leave open. From the
        left of all comes the floor of `at`; from the right its last rise, so that the last gap
        stays straight.
        """
        points = self.points()
        for high in range(1, len(self.tokens)):
            before, chord, after = (self._slope(high + k) for k in (-1, 0, 1))
            if before < chord < after:
                start, end = self.tokens[high - 1 : high + 1]
                tokens = start + (after - chord) / (after - before) * (end - start)  # they meet
                if start < tokens < end:
                    position, seconds = self.at(tokens)
                    least = self.seconds[high - 1] + before * (tokens - start)
                    points.append(Point(tokens, 0.5 * (least + seconds), position))
        return Curve.of(points)

    def scaled(self, factor: float) -> Curve:
        return self._replace(seconds=tuple(s * factor for s in self.seconds))

    def _slope(self, high: int) -> float:
        """Between a point and the one before; 0 left of all, and right of all the last."""
        if len(self.tokens) == 1:
            return self.seconds[0] / self.tokens[0] if high else 0.0
        if high == 0:
            return 0.0
        high = min(high, len(self.tokens) - 1)
        rise = self.seconds[high] - self.seconds[high - 1]
        return rise / (self.tokens[high] - self.tokens[high - 1])


def rising(points: Iterable[Point]) -> Curve:
    """The curve through points, by the mean of those of as many tokens.

    Where more tokens took less time that is noise, and the points get their common mean: the
    closest curve that never falls (isotonic regression).
    """
    from scipy.optimize import isotonic_regression  # slow to import, and only tables need it

    groups: dict[float, list[Point]] = {}
    for point in points:
        groups.setdefault(point.tokens, []).append(point)
    known = sorted(groups)
    means = [fmean(point.seconds for point in groups[n]) for n in known]
    level = isotonic_regression(means, weights=[len(groups[n]) for n in known]).x
    return Curve(
        tuple(known),
        tuple(float(seconds) for seconds in level),
        tuple(fmean(point.position for point in groups[n]) for n in known),
    )

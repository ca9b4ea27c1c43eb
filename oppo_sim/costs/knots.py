"""Decode times at measured batches, fitted by lines in the context, and those at batches between.

A rollout's context is the axis: at a given context of each rollout, times are taken to be linear
between two measured batches. The mean of two largest-of-lines is a largest-of-lines again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

APART = 1.1  # contexts that differ by less tell no slope
Lines = tuple[tuple[float, float], ...]
"""Seconds, and seconds per token of the context of each rollout; the largest counts."""


class Knot(NamedTuple):
    """Decode times at one batch."""

    batch: int
    lines: Lines
    least: float = 0.0  # context of a rollout, in tokens: what was measured
    most: float = math.inf

    def seconds(self, context: float) -> float:
        return max(0.0, *(constant + slope * context for constant, slope in self.lines))

    def scaled(self, factor: float) -> Knot:
        return self._replace(lines=tuple((c * factor, k * factor) for c, k in self.lines))


def at_batch(knots: Sequence[Knot], batch: int) -> Knot:
    """The knot of any batch.

    Below the smallest nothing is cheaper; beyond the largest the last rise per rollout goes on.
    """
    if batch <= knots[0].batch:
        return knots[0]
    last = knots[-1]
    if batch > last.batch:
        before = knots[-2] if len(knots) > 1 else last._replace(batch=0)
        rise = last.seconds(last.least) - before.seconds(last.least)
        more = rise * ((batch - last.batch) / (last.batch - before.batch))
        return last._replace(lines=tuple((c + more, k) for c, k in last.lines))
    high = next(n for n, knot in enumerate(knots) if knot.batch >= batch)
    if knots[high].batch == batch:
        return knots[high]
    low, up = knots[high - 1], knots[high]
    share = (batch - low.batch) / (up.batch - low.batch)
    lines = [
        (c + share * (other_c - c), k + share * (other_k - k))
        for c, k in low.lines
        for other_c, other_k in up.lines
    ]
    return Knot(batch, upper(lines), max(low.least, up.least), min(low.most, up.most))


def raised(knots: Iterable[Knot]) -> tuple[Knot, ...]:
    """By batch, each raised to the one before where that is slower: noise, but times must rise."""
    rising: list[Knot] = []
    for knot in sorted(knots):
        lines = knot.lines + (rising[-1].lines if rising else ())
        rising.append(knot._replace(lines=upper(lines)))
    return tuple(rising)


def upper(lines: Iterable[tuple[float, float]]) -> Lines:
    """The lines that are the largest at some context, 0 or more; by rising slope."""
    kept: list[tuple[float, float]] = []
    for c, k in sorted(lines, key=lambda line: (line[1], line[0])):
        while kept and (kept[-1][0] <= c or _is_hidden(kept, c, k)):
            kept.pop()
        kept.append((c, k))
    return tuple(kept)


def _is_hidden(kept: list[tuple[float, float]], c: float, k: float) -> bool:
    """Whether the last line is passed by the new one before it has passed the one before."""
    if len(kept) < 2:
        return False
    (c0, k0), (c1, k1) = kept[-2:]
    return (c0 - c) * (k1 - k0) <= (c0 - c1) * (k - k0)


def fitted(points: Mapping[int, Mapping[float, float]]) -> tuple[Knot, ...]:
    """Knots through measured seconds by batch and context of a rollout.

    At each batch the curve through its contexts, or next to them: never falling and convex, least
    squares of the relative error. A batch with one context, or with next to the same ones, has the
    seconds per token of KV context of the nearest batch with several, and none costs more than all
    of its time. Where a larger batch takes less time both are levelled.
    """
    knots, slopes, single = [], {}, {}
    for batch, curve in points.items():
        if max(curve) <= APART * min(curve):
            single[batch] = fmean(curve), fmean(curve.values())
        else:
            lines = _convex(curve)
            knot = Knot(batch, lines, min(curve), max(curve))
            knots.append(knot)
            rise = knot.seconds(knot.most) - knot.seconds(knot.least)
            slopes[batch] = rise / (knot.most - knot.least) / batch
    for batch, (context, seconds) in single.items():
        nearest = min(slopes, key=lambda b: (abs(math.log(b / batch)), b), default=None)
        slope = 0.0 if nearest is None else slopes[nearest] * batch
        slope = min(slope, seconds / context) if context else slope
        knots.append(Knot(batch, ((seconds - slope * context, slope),), context, context))
    return raised(_levelled(knots))


def _levelled(knots: Sequence[Knot]) -> list[Knot]:
    """Scaled to what never falls with the batch, at a context in the middle of what was measured.

    Kernels suit some batches better than others, which no law between batches can follow: by the
    closest such times (isotonic regression) none is too dear only because another one was.
    """
    from scipy.optimize import isotonic_regression  # slow to import, and only tables need it

    knots = sorted(knots)
    middle = fmean([0.5 * (knot.least + knot.most) for knot in knots])
    seconds = [knot.seconds(middle) for knot in knots]
    level = isotonic_regression(seconds).x
    return [
        knot.scaled(float(goal) / own) if own else knot
        for knot, own, goal in zip(knots, seconds, level, strict=True)
    ]


def _convex(curve: Mapping[float, float]) -> Lines:
    """Hinges of non-negative slope at the measured contexts, by non-negative least squares."""
    from scipy.optimize import nnls  # half a second to import, and only tables need it

    contexts = sorted(curve)
    span = contexts[-1]
    starts = [0.0, *contexts[1:-1]]
    rows = [
        [1 / curve[x], *(max(x - start, 0.0) / span / curve[x] for start in starts)]
        for x in contexts
    ]
    found, _ = nnls(rows, [1.0] * len(contexts))
    constant, slope = float(found[0]), 0.0
    lines = [(constant, 0.0)]
    for start, more in zip(starts, found[1:], strict=True):
        if more > 0:
            steeper = float(more) / span
            constant, slope = constant - steeper * start, slope + steeper
            lines.append((constant, slope))
    return upper(lines)

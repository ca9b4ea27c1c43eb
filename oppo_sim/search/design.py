"""Which points a sweep has: every one has its id, and is worked out when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from oppo_sim.config import ConfigError
from oppo_sim.search.axes import Axis
from oppo_sim.search.problem import Point

MOST_POINTS = 1_000_000


class Design:
    """The points 0, 1, ... of a method; the same for the same axes, number and seed."""

    def __init__(
        self, axes: Sequence[Axis], method: str, points: int | None = None, draw_seed: int = 0
    ) -> None:
        self._axes = axes
        self._shares: NDArray[np.float64] | None = None
        self._lists = [axis.listed() for axis in axes]
        if method == "grid":
            self._count = prod(len(values) for values in self._lists)
            return
        assert points is not None
        self._count = points
        random = np.random.default_rng(draw_seed)
        if method == "latin":
            from scipy.stats import qmc  # takes a second, which a grid need not wait for

            self._shares = qmc.LatinHypercube(len(axes), rng=random).random(points)
        else:
            self._shares = random.random((points, len(axes)))

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: int) -> Point:
        """In a grid the last axis runs fastest."""
        if self._shares is not None:
            shares = self._shares[place].tolist()
            pairs = zip(self._axes, shares, strict=True)
            return Point(place, {axis.path: axis.at(share) for axis, share in pairs})
        values, rest = {}, place
        for axis, choices in zip(reversed(self._axes), reversed(self._lists), strict=True):
            rest, own = divmod(rest, len(choices))
            values[axis.path] = choices[own]
        return Point(place, {axis.path: values[axis.path] for axis in self._axes})


def check_size(file: str, axes: Sequence[Axis], method: str, points: int | None) -> None:
    """ConfigError for more points than anybody waits for."""
    if method != "grid":
        if points is None:
            raise ConfigError(f"{file}: points is missing: say how many method = {method!r} takes")
        if points > MOST_POINTS:
            raise ConfigError(f"{file}: points = {points:,}: must be at most {MOST_POINTS:,}")
        return
    if points is not None:
        raise ConfigError(
            f"{file}: points = {points}: a grid has all there are; leave it out, or set "
            'method = "random" or "latin"'
        )
    sizes = {axis.path: len(axis.listed()) for axis in axes}
    if prod(sizes.values()) > MOST_POINTS:
        shown = " x ".join(f"{size:,} of {path}" for path, size in sizes.items())
        raise ConfigError(
            f"{file}: axes: {shown} are {prod(sizes.values()):,} points, of which a grid has at "
            f"most {MOST_POINTS:,}; shorten {max(sizes, key=sizes.__getitem__)}, or set method = "
            '"latin" and points'
        )

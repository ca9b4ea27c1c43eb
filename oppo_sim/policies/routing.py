"""Routing: which lane a rollout joins, where no lane keeps its cache."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace


def least_loaded(rollouts: int, load: Sequence[int], room: Sequence[int]) -> list[int]:
    """A lane for each of the next `rollouts` rollouts: the least loaded, the earlier one on a tie.

    `load` is what each lane holds, `room` what it may take on top. Ends early where no lane has
    room left.
    """
    lanes = [(held, lane) for lane, held in enumerate(load) if room[lane] > 0]
    heapify(lanes)
    left = list(room)
    chosen: list[int] = []
    while lanes and len(chosen) < rollouts:
        held, lane = lanes[0]
        chosen.append(lane)
        left[lane] -= 1
        if left[lane]:
            heapreplace(lanes, (held + 1, lane))
        else:
            heappop(lanes)
    return chosen

"""What is told of a sweep: how many points, which are the best, what failed first."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from oppo_sim.search.result import Result
from oppo_sim.search.spec import Sweep

BEST = 10  # points that are held on to
ERRORS = 5


@dataclass
class Summary:
    """Filled while results go by, so that none but the best stay in memory."""

    ok: int = 0
    failed: int = 0
    runs: int = 0  # simulated now
    wall_s: float = 0.0
    best: list[Result] = field(default_factory=list)
    errors: list[Result] = field(default_factory=list)

    def watch(self, results: Iterable[Result]) -> Iterator[Result]:
        """Hold on to the best and to the first that failed."""
        heap: list[tuple[float, int, Result]] = []
        for result in results:
            if result.is_ok:
                self.ok += 1
                mean = result.speedup or result.step_s
                assert mean is not None
                worth = mean.mean if result.speedup else -mean.mean
                heapq.heappush(heap, (worth, -result.point, result))
                if len(heap) > BEST:
                    heapq.heappop(heap)
            else:
                self.failed += 1
                if len(self.errors) < ERRORS:
                    self.errors.append(result)
            yield result
        self.best = [result for *_, result in sorted(heap, reverse=True)]

    def as_dict(self, of: Sweep) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "role": "simulated",
            "sweep": of.file,
            "scenario": of.problem.document["name"],
            "baseline": of.problem.baseline,
            "points": self.ok + self.failed,
            "ok": self.ok,
            "failed": self.failed,
            "runs": self.runs,
            "wall_s": round(self.wall_s, 3),
            "best": [result.as_dict() for result in self.best],
            "errors": [
                {"point": one.point, "values": dict(one.values), "error": one.error}
                for one in self.errors
            ],
        }

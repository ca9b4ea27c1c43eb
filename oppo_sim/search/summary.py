"""What is told of a sweep: how many points, which are the best, what failed first."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from math import prod
from typing import Any

from oppo_sim.analysis.intervals import Mean, of_ratios
from oppo_sim.analysis.why import times
from oppo_sim.search.axes import Axis
from oppo_sim.search.result import Result
from oppo_sim.search.spec import Sweep

BEST = 10  # rows of points that are held on to
ERRORS = 5
VALUES, ANY = 3, "any"  # of an axis in a row that has several; that has all
NUMBERS = [one.name for one in fields(Result) if one.name not in ("point", "values")]


@dataclass
class Row:
    """A point, and those after it that have the same numbers: where they differ changes nothing."""

    first: Result
    count: int = 0
    values: dict[str, dict[str, Any]] = field(default_factory=dict)  # of each axis, by their text

    def add(self, result: Result) -> None:
        self.count += 1
        for path, value in result.values.items():
            self.values.setdefault(path, {}).setdefault(str(value), value)

    def shown(self, axes: Sequence[Axis]) -> Result:
        """The first, with the values of all."""
        is_whole = self.count == prod(map(len, self.values.values()))  # each with each
        values = {axis.path: self._listed(axis, is_whole) for axis in axes}
        return replace(self.first, values=values)

    def _listed(self, axis: Axis, is_whole: bool) -> Any:
        known = self.values[axis.path]
        if len(known) == 1:
            return self.first.values[axis.path]
        if is_whole and 2 < len(known) == len(axis.listed()):
            return ANY
        rest = ", ..." if len(known) > VALUES else ""
        return ", ".join(islice(known, VALUES)) + rest


@dataclass
class Summary:
    """Filled while results go by, so that none but the best stay in memory."""

    ok: int = 0
    failed: int = 0
    runs: int = 0  # simulated now
    wall_s: float = 0.0
    best: list[Row] = field(default_factory=list)
    lead: Mean | None = None  # of the first over the second, paired by seed
    errors: list[Result] = field(default_factory=list)

    def watch(self, results: Iterable[Result]) -> Iterator[Result]:
        """Hold on to the best and to the first that failed."""
        heap: list[tuple[float, int, Row]] = []
        rows: dict[tuple[Any, ...], Row] = {}  # those in the heap
        for result in results:
            if result.is_ok:
                self.ok += 1
                mean = result.speedup or result.step_s
                assert mean is not None
                numbers = _numbers(result)
                if numbers not in rows:
                    rows[numbers] = Row(result)
                    worth = mean.mean if result.speedup else -mean.mean
                    heapq.heappush(heap, (worth, -result.point, rows[numbers]))
                rows[numbers].add(result)
                if len(heap) > BEST:
                    *_, worst = heapq.heappop(heap)
                    del rows[_numbers(worst.first)]
            else:
                self.failed += 1
                if len(self.errors) < ERRORS:
                    self.errors.append(result)
            yield result
        self.best = [row for *_, row in sorted(heap, reverse=True)]

    def decide(self, speeds: Callable[[int], Sequence[float]]) -> None:
        """Whether the first is faster than the second, on the seeds that both have."""
        if len(self.best) > 1:
            ours, theirs = (speeds(row.first.point) for row in self.best[:2])
            self.lead = of_ratios([one / other for one, other in zip(ours, theirs, strict=False)])

    def decided(self) -> str:
        """In a sentence; nothing where there is only one row."""
        if self.lead is None:
            return ""
        first, second = (row.first.point for row in self.best[:2])
        is_decided = self.lead.low is not None and self.lead.low > 1
        said = "decided" if is_decided else "not decided; use more seeds or steps"
        return (
            f"The best, point {first}, is {times(f'point {second}', self.lead)}, the next: {said}."
        )

    def edges(self, axes: Sequence[Axis]) -> str:
        """Which numbers of the best are the first or last of their axis, in a sentence."""
        found = [
            f"{axis.path} = {value} ({end})"
            for axis in axes
            for value in self.best[0].values[axis.path].values()
            for end in [axis.end(value)]
            if end and len(self.best[0].values[axis.path]) == 1
        ]
        if not found:
            return ""
        return f"The best lies at the edge of what was tried: {', '.join(found)}."

    def as_dict(self, of: Sweep) -> dict[str, Any]:
        """As a JSON object; of points with the same numbers only the first."""
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
            "best": [{**row.first.as_dict(), "points": row.count} for row in self.best],
            "lead": None if self.lead is None else self.lead._asdict(),
            "errors": [
                {"point": one.point, "values": dict(one.values), "error": one.error}
                for one in self.errors
            ],
        }


def _numbers(result: Result) -> tuple[Any, ...]:
    return tuple(getattr(result, name) for name in NUMBERS)

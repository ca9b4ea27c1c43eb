"""The driver of a sweep: what is missing is run, until every point has the seeds that it needs."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator

from oppo_sim.search.journal import Journal
from oppo_sim.search.problem import Kind, Point, Problem, Unit
from oppo_sim.search.result import Result, more_seeds, summed_up
from oppo_sim.search.spec import Sweep
from oppo_sim.search.workers import Workers

Progress = Callable[[int, int], None]  # units done, of how many


class Driver:
    """Runs a sweep into a journal; `results` are then those of its points, in their order."""

    def __init__(self, sweep: Sweep, journal: Journal) -> None:
        self.design = sweep.design()
        self.ran = 0  # units that were not in the journal
        self._problem: Problem = sweep.problem
        self._seeds = sweep.seeds
        self._journal = journal
        self._counts = array("l", [sweep.seeds.least]) * len(self.design)
        self._baselines = self._first_of_each()

    def run(self, workers: Workers, progress: Progress | None = None) -> None:
        """Round by round: a point whose interval is too wide has more seeds in the next."""
        pending: Iterable[int] = range(len(self.design))
        while pending:
            missing = sum(1 for _ in self._missing(pending))
            done, total = len(self._journal), len(self._journal) + missing
            for unit, found in workers.run(self._missing(pending)):
                self._journal.write(unit.kind, unit.id, unit.seed, found)
                done, self.ran = done + 1, self.ran + 1
                if progress is not None:
                    progress(done, total)
            pending = self._unsettled(pending)

    def results(self) -> Iterator[Result]:
        """Each is read from the journal when it is asked for."""
        for place in range(len(self.design)):
            yield self._result(place)

    def speeds(self, place: int) -> list[float]:
        """Of each seed of a point the speed-up, or steps per second where there is no baseline."""
        point, seeds = self.design[place], self._seeds.of(self._counts[place])
        times = [self._journal.read("point", place, seed)["step_s"] for seed in seeds]
        if self._problem.baseline is None:
            return [1 / own for own in times]
        base = self._baseline_of(point)
        known = [self._journal.read("baseline", base, seed)["step_s"] for seed in seeds]
        return [theirs / own for theirs, own in zip(known, times, strict=True)]

    def _unsettled(self, pending: Iterable[int]) -> array[int]:
        left = array("l")
        for place in pending:
            more = more_seeds(self._result(place), self._seeds)
            if more:
                self._counts[place] = more
                left.append(place)
        return left

    def _result(self, place: int) -> Result:
        point, seeds = self.design[place], self._seeds.of(self._counts[place])
        own = [self._journal.read("point", place, seed) for seed in seeds]
        if self._problem.baseline is None:
            return summed_up(point, seeds, own, None)
        base = self._baseline_of(point)
        return summed_up(
            point, seeds, own, [self._journal.read("baseline", base, seed) for seed in seeds]
        )

    def _missing(self, pending: Iterable[int]) -> Iterator[Unit]:
        """Baselines first, each once, for as many seeds as the point that needs most of them."""
        if self._problem.baseline is not None:
            counts: dict[int, int] = {}
            for place in pending:
                base = self._baseline_of(self.design[place])
                counts[base] = max(counts.get(base, 0), self._counts[place])
            for base, count in counts.items():
                yield from self._units("baseline", self.design[base], count)
        for place in pending:
            yield from self._units("point", self.design[place], self._counts[place])

    def _units(self, kind: Kind, point: Point, count: int) -> Iterator[Unit]:
        for seed in self._seeds.of(count):
            if not self._journal.has(kind, point.id, seed):
                yield Unit(kind, point.id, seed, point.values)

    def _baseline_of(self, point: Point) -> int:
        return self._baselines[self._problem.baseline_key(point.values)]

    def _first_of_each(self) -> dict[str, int]:
        """Baselines go by the first point that has them."""
        first: dict[str, int] = {}
        if self._problem.baseline is not None:
            for place in range(len(self.design)):
                first.setdefault(self._problem.baseline_key(self.design[place].values), place)
        return first

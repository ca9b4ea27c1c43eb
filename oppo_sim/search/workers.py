"""Units in several processes: batches of those that are quick, and another try where one died."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, count, islice
from time import perf_counter

from oppo_sim.analysis import pool
from oppo_sim.analysis.pool import Backend
from oppo_sim.search.problem import Problem, Unit
from oppo_sim.search.units import Found, run_units

BATCH_S = 0.2  # seconds of work that are worth a message to a worker and back
MOST_IN_BATCH = 64
RECENT = 0.2  # weight of the last batch in the mean time of a unit
TRIES = 3  # of a unit during which a worker died
DIED = (
    f"a worker process died each of the {TRIES} times that it simulated this: killed, perhaps for "
    "memory; fewer --jobs take less of it"
)


class Workers:
    """Processes; `backend` None: this one. What they find does not depend on their number."""

    def __init__(self, problem: Problem, backend: Backend | None) -> None:
        self._work = partial(_timed, problem)
        self._backend = backend
        self._unit_s = BATCH_S  # what a unit took lately; at first they go one by one

    def run(self, units: Iterable[Unit]) -> Iterator[tuple[Unit, Found]]:
        """Every unit with what it came to, as they are done."""
        waiting = iter(units)
        while True:
            begun: dict[int, tuple[Unit, ...]] = {}
            try:
                for place, (found, seconds) in pool.each(
                    self._work, self._batches(waiting, begun), self._backend
                ):
                    batch = begun.pop(place)
                    self._unit_s += RECENT * (seconds / len(batch) - self._unit_s)
                    yield from zip(batch, found, strict=True)
                return
            except pool.WorkerDied as death:
                suspects = [unit for place in death.running for unit in begun.pop(place, ())]
                innocent = [unit for batch in begun.values() for unit in batch]
                waiting = chain(innocent, waiting)
            for unit in suspects:
                yield unit, self._alone(unit)

    def _batches(
        self, waiting: Iterator[Unit], begun: dict[int, tuple[Unit, ...]]
    ) -> Iterator[tuple[Unit, ...]]:
        for place in count():
            batch = tuple(islice(waiting, self._in_batch()))
            if not batch:
                return
            begun[place] = batch
            yield batch

    def _in_batch(self) -> int:
        return max(1, min(MOST_IN_BATCH, int(BATCH_S / max(self._unit_s, 1e-6))))

    def _alone(self, unit: Unit) -> Found:
        """A worker died that may have been running it: it runs by itself now, to find out."""
        for _ in range(TRIES - 1):
            try:
                ((_, (found, _)),) = pool.each(self._work, [(unit,)], self._backend)
                return found[0]
            except pool.WorkerDied:
                continue
        return {"error": DIED, "died": True}


def _timed(problem: Problem, units: Sequence[Unit]) -> tuple[list[Found], float]:
    began = perf_counter()
    return run_units(problem, units), perf_counter() - began

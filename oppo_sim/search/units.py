"""A unit simulated: what is kept of it, or the text of its error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import isfinite
from typing import Any

from oppo_sim.analysis.documents import header_of
from oppo_sim.analysis.metrics import Metrics, summarise
from oppo_sim.config import Scenario
from oppo_sim.policies import Schedule
from oppo_sim.records import StepRecord
from oppo_sim.runs import RunError, RunWriter
from oppo_sim.search.problem import Kind, Problem, Unit
from oppo_sim.simulate import lanes, simulate, workload

# What is kept of a unit, a JSON object: the numbers of MEASURES, or `error`, a text. With `died`
# that was perhaps the fault of the moment, and --resume tries it again.
Found = dict[str, Any]

MEASURES = (
    "step_s",  # mean over steps
    "staleness",  # mean over trained rollouts, in versions
    "deferred_share",  # of the trained rollouts, carried over at least once
    "length_bias",  # trained over admitted response tokens, less 1; None: not known
    "busy",  # devices' share of the time
    "wasted_share",  # of the decoded tokens
    "kv_peak_tokens",  # on one lane
)
NOT_KNOWN = {"length_bias"}  # of some


def is_found(row: Any) -> bool:
    """Whether something that was read again is what a unit came to, and will always come to."""
    if not isinstance(row, dict) or row.get("died"):
        return False
    if "error" in row:
        return isinstance(row["error"], str)
    if row.keys() - NOT_KNOWN != set(MEASURES) - NOT_KNOWN:
        return False
    values = [value for name, value in row.items() if name not in NOT_KNOWN or value is not None]
    return all(isinstance(v, int | float) and isfinite(v) for v in values) and row["step_s"] > 0


def run_units(problem: Problem, units: Sequence[Unit]) -> list[Found]:
    """Each unit of a batch; those of one point in a row are built once."""
    found, built, last = [], Built(problem), None
    for unit in units:
        if last is None or (unit.kind, unit.id) != last:
            built, last = Built(problem), (unit.kind, unit.id)
        found.append(built.run(unit))
    return found


def run_unit(problem: Problem, unit: Unit) -> Found:
    """Never raises what a point can do wrong: that is its error."""
    return Built(problem).run(unit)


class Built:
    """The scenario and the schedule of a point, for all its seeds."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._built: tuple[Scenario, Schedule] | None = None

    def run(self, unit: Unit) -> Found:
        try:
            if self._built is None:
                self._built = self._problem.built(unit.kind, unit.values)
            metrics = self._simulated(unit, *self._built)
        except (RunError, OSError, MemoryError) as error:  # the moment's, such as a full disk
            return {"error": error_text(error), "died": True}
        except Exception as error:  # whatever it is, the other points go on
            return {"error": error_text(error)}
        return measures(metrics)

    def _simulated(self, unit: Unit, scenario: Scenario, schedule: Schedule) -> Metrics:
        steps = scenario.steps if self._problem.steps is None else self._problem.steps
        records = simulate(scenario, schedule, seed=unit.seed, steps=steps)
        lengths = workload(scenario, unit.seed).responses
        devices = dict.fromkeys(device for lane in lanes(scenario) for device in lane.devices)
        if self._problem.keep is None:
            return summarise(records, tuple(devices), lengths=lengths)
        header = header_of(scenario, schedule, seed=unit.seed, steps=steps, spans=False)
        folder = self._problem.keep / run_folder(unit.kind, unit.id, unit.seed)
        with RunWriter(folder, header, resume=True) as writer:
            return summarise(_written(records, writer), tuple(devices), lengths=lengths)


def _written(records: Iterable[StepRecord], writer: RunWriter) -> Iterator[StepRecord]:
    for record in records:
        writer.step(record)
        yield record


def run_folder(kind: Kind, place: int, seed: int) -> str:
    return f"{kind}-{place}-seed-{seed}"


def measures(metrics: Metrics) -> Found:
    """The numbers of MEASURES."""
    trained = sum(metrics.deferrals.values())
    admitted = metrics.admitted_tokens_mean
    return {
        "step_s": metrics.mean_step_s,
        "staleness": sum(v * n for v, n in metrics.staleness.items()) / trained,
        "deferred_share": sum(n for v, n in metrics.deferrals.items() if v) / trained,
        "length_bias": metrics.trained_tokens_mean / admitted - 1 if admitted else None,
        "busy": metrics.mean_utilisation,
        "wasted_share": metrics.wasted_share,
        "kv_peak_tokens": metrics.kv_peak_tokens,
    }


def error_text(error: BaseException) -> str:
    """One line, the same wherever and whenever it happens."""
    text = " ".join(str(error).split())
    if isinstance(error, ValueError) and text:
        return text
    return f"{type(error).__name__}: {text}".rstrip(": ")

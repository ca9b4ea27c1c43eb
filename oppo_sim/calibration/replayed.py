"""A run simulated again with other costs: does what was fitted give the recorded step times?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import fmean, median_low
from typing import Any

from pydantic import ValidationError

from oppo_sim.config import Scenario, parse_scenario
from oppo_sim.config.schedules import Axes, ScheduleFile, compose
from oppo_sim.engine import EngineError
from oppo_sim.policies import CATALOG, Schedule
from oppo_sim.records import StepRecord
from oppo_sim.runs import Run
from oppo_sim.simulate import simulate

DRAWN = ("prompt_effect", "group", "prompt_set", "drift")  # of lengths that are not replayed
BASE = "trl"  # a recorded schedule names all of its axes, so that any would do


@dataclass(frozen=True)
class Replayed:
    """Mean step time as recorded and as simulated with the fitted costs."""

    steps: int
    recorded_s: float
    simulated_s: float

    @property
    def error(self) -> float:
        return self.simulated_s / self.recorded_s - 1


def replay(
    run: Run, scenario: Scenario, costs: Mapping[str, float]
) -> tuple[Replayed | None, tuple[str, ...]]:
    """The run again, with the lengths that it had; None, and why, where that cannot be."""
    try:
        schedule = schedule_of(run.header.schedule)
        document = with_costs(scenario, costs)
        if run.header.role != "simulated":
            document["workload"] = _recorded(document["workload"], run.steps, schedule)
        again = parse_scenario(document, scenario.file, scenario.folder)
        records = simulate(again, schedule, seed=run.header.seed, steps=len(run.steps))
        seconds = [record.seconds for record in islice(records, len(run.steps))]
    except (ValueError, EngineError) as error:  # a schedule or a file that the folder has not
        return None, (f"not simulated again: {error}",)
    recorded = fmean([step.seconds for step in run.steps])
    return Replayed(len(seconds), recorded, fmean(seconds)), ()


def with_costs(scenario: Scenario, costs: Mapping[str, float]) -> dict[str, Any]:
    """The scenario's document with linear costs."""
    return {**scenario.document(), "costs": {"model": "linear", **costs}}


def scenario_with(
    scenario: Scenario, costs: Mapping[str, float], lengths: str | None = None
) -> dict[str, Any]:
    """A scenario file's content; `lengths` is the file of those that were measured.

    `[real]`, whose paths are another folder's, stays behind.
    """
    document = with_costs(scenario, costs)
    document.pop("real", None)
    said = "The costs are fitted; what they do not hold, see calibration.json."
    if lengths is not None:
        document["workload"] = {**_undrawn(document["workload"]), "lengths": {"file": lengths}}
        said = f"{said} The lengths are those of the run."
    kept = [*document.pop("assumptions", ()), said]
    name = f"{document.pop('name')}-fitted"
    return {"name": name, "about": document.pop("about", ""), "assumptions": kept, **document}


def _undrawn(workload: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in workload.items() if key not in DRAWN}


def schedule_of(document: Mapping[str, Any]) -> Schedule:
    """The schedule that a run's header describes; ValueError for a policy that no file can name."""
    given = {key: value for key, value in document.items() if value is not None}
    try:
        own = ScheduleFile.model_validate({**given, "base": BASE})
    except ValidationError as error:
        raise ValueError(
            f"its schedule is not one of a file ({error.error_count()} axes)"
        ) from None
    return compose(CATALOG[BASE], Axes(), own.axes(), own.name or "recorded")


def _recorded(
    workload: Mapping[str, Any], steps: Sequence[StepRecord], schedule: Schedule
) -> dict[str, Any]:
    """The lengths by rollout; one that was never trained, or not yet, has the median's."""
    known = {r: n for step in steps for r, n in zip(step.trained, step.tokens, strict=True)}
    middle = median_low(known.values())
    count = max(steps[-1].admitted, max(known) + 1) + 4 * schedule.batch
    lengths = [known.get(rollout, middle) for rollout in range(count)]
    return {
        **_undrawn(workload),
        "lengths": {"replay": lengths},
        "max_response_tokens": max(*lengths, workload["max_response_tokens"]),
    }

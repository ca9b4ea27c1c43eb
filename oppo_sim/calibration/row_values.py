"""What published rows come to in runs of a candidate, and how that changes with its parameters."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from oppo_sim.analysis.paper import PaperRow
from oppo_sim.analysis.parts import Measured, Part, run_part
from oppo_sim.calibration.protocol import Stage, Tail
from oppo_sim.config import load_scenario

SEED = 0
LOGARITHMIC = ("train_mfu", "prefill_mfu")  # fitted by their logarithms
Key = tuple[str, str]  # scenario, schedule


def simulated(
    stage: Stage,
    tail: Tail,
    parameters: Mapping[str, float],
    rows: Sequence[PaperRow],
    steps: int,
    there: Collection[Key] = (),
) -> dict[Key, Measured]:
    """The runs that the rows compare, but for those that are there."""
    keys = {(row.scenario, name) for row in rows for name in (row.baseline, row.schedule) if name}
    missing = sorted(keys.difference(there))
    return {key: run(stage, tail, parameters, key, steps) for key in missing}


def run(
    stage: Stage, tail: Tail, parameters: Mapping[str, float], key: Key, steps: int
) -> Measured:
    """A schedule on a scenario of the stage, with a candidate's numbers."""
    name, schedule = key
    scenario = load_scenario(name, overrides(stage, tail, parameters))
    part = Part(scenario=scenario, schedule=scenario.schedule(schedule), seed=SEED, steps=steps)
    return run_part(part)


def overrides(stage: Stage, tail: Tail, parameters: Mapping[str, float]) -> dict[str, object]:
    """What a candidate changes in the stage's scenarios."""
    changed: dict[str, object] = {
        "workload.lengths": tail.lengths,
        "workload.max_response_tokens": tail.max_response_tokens,
        "schedule.overcommit.most": tail.most,
        "costs.efficiency.train_mfu": parameters["train_mfu"],
    }
    if "prefill_mfu" in stage.free:
        changed["costs.efficiency.prefill_mfu"] = parameters["prefill_mfu"]
    return changed


def value(row: PaperRow, runs: Mapping[Key, Measured], parameters: Mapping[str, float]) -> float:
    """A row's value in these runs: a ratio of step times, or a utilisation."""
    own = runs[row.scenario, row.schedule]
    if row.measure == "speedup":
        return runs[row.scenario, row.baseline].metrics.mean_step_s / own.metrics.mean_step_s
    assert own.spent is not None
    return own.spent.counted(parameters["decode_counts"], parameters["wait_counts"])


def paper(row: PaperRow) -> float:
    assert row.paper is not None  # what is fitted or held out has a value
    return row.paper


def slopes(
    row: PaperRow, runs: Mapping[Key, Measured], parameters: Mapping[str, float]
) -> dict[str, float]:
    """Of the row's logarithm, by each parameter (see LOGARITHMIC)."""
    own = runs[row.scenario, row.schedule]
    longer = _shares(own)  # of the step: what a slower stage adds to it
    if row.measure == "speedup":
        before = _shares(runs[row.scenario, row.baseline])
        return {**{name: longer[name] - before[name] for name in longer}, **_NO_COUNTS}
    spent, counted = own.spent, value(row, runs, parameters)
    assert spent is not None
    return {
        "train_mfu": longer["train_mfu"] - spent.train / counted,
        "prefill_mfu": longer["prefill_mfu"] - spent.score / counted,
        "decode_counts": spent.decode / counted,
        "wait_counts": spent.wait / counted,
    }


_NO_COUNTS = {"decode_counts": 0.0, "wait_counts": 0.0}


def _shares(run: Measured) -> dict[str, float]:
    stages, step_s = run.metrics.stages_s, run.metrics.mean_step_s
    return {"train_mfu": stages["training"] / step_s, "prefill_mfu": stages["scoring"] / step_s}

"""What a calibration leaves behind: a record of every number, and tables that a scenario takes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from oppo_sim.calibration.laws import Estimate, Law
from oppo_sim.calibration.logs import FittedLog
from oppo_sim.calibration.run_costs import FittedRun

HELD_OUT, FITTED = "held_out", "fitted"


def log_document(log: FittedLog) -> dict[str, Any]:
    """Stages with their laws and errors; the role stands beside every number."""
    return {
        "kind": "log",
        "framework": log.framework.name,
        "steps": log.steps,
        "fitted_steps": log.fitted,
        "held_out_steps": log.steps - log.fitted,
        "stages": [
            {"stage": one.stage.name, "metrics": list(one.metrics), **law_document(one.law)}
            for one in log.stages
        ],
        "left_out": list(log.left_out),
        "doubts": list(log.doubts),
    }


def run_document(run: FittedRun) -> dict[str, Any]:
    again = run.replayed
    return {
        "kind": "run",
        "role": run.role,
        "scenario": run.scenario.name,
        "steps": run.steps,
        "fitted_steps": run.fitted_steps,
        "held_out_steps": run.steps - run.fitted_steps,
        "tasks": [
            {
                "task": task.task,
                "spans": task.spans,
                "used": task.used,
                **({} if task.law is None else law_document(task.law)),
                "doubts": list(task.doubts),
            }
            for task in run.tasks
        ],
        "doubts": list(run.doubts),
        "costs": run.costs,
        "simulated_again": None if again is None else {**asdict(again), "error": again.error},
    }


def law_document(law: Law) -> dict[str, Any]:
    held = law.held_out
    return {
        "fitted": {
            "role": FITTED,
            "rows": law.fitted,
            "coefficients": {e.term: _interval(e) for e in law.estimates},
        },
        "held_out": {
            "role": HELD_OUT,
            "rows": held.rows,
            "signed_error": _interval(held.signed),
            "median_absolute_error": _interval(held.median),
            "null_median_absolute_error": held.null_error,
            "step_to_step": held.floor,
        },
        "doubts": list(law.doubts),
    }


def _interval(e: Estimate) -> dict[str, float]:
    return {"value": e.value, "low": e.low, "high": e.high}


def toml(document: Mapping[str, Any], comments: Iterable[str] = ()) -> str:
    """A TOML file: plain keys, then a table for each mapping, in which mappings are inline."""
    plain = {key: value for key, value in document.items() if not isinstance(value, Mapping)}
    lines = [*(f"# {' '.join(text.split())}" for text in comments), *_pairs(plain)]
    for name, table in document.items():
        if isinstance(table, Mapping):
            lines += [*([""] if lines else []), f"[{name}]", *_pairs(table)]
    return "\n".join(lines) + "\n"


def _pairs(table: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {_value(value)}" for key, value in table.items() if value is not None]


def _value(value: Any) -> str:
    match value:
        case Mapping():
            return f"{{ {', '.join(_pairs(value))} }}"
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
        case str():
            return json.dumps(value, ensure_ascii=False)
        case bool():
            return "true" if value else "false"
    return repr(value)


def provenance(source: str, date: str | None, share: float, seed: int, fitted: str) -> list[str]:
    """What a written table says of itself."""
    return [
        f"Fitted by `oppo calibrate` on {source}, {fitted}.",
        f"Date of the numbers: {date or 'not given'}. First {share:.0%} of the steps fitted, the "
        f"rest held out; bootstrap seed {seed}.",
        "Errors on what was held out, intervals and what the data leave open: calibration.json.",
    ]

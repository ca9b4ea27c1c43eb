"""The folder of a sweep: it says what it is of, and goes on with nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oppo_sim.analysis import claims, digests
from oppo_sim.analysis.documents import schedule_document
from oppo_sim.search.problem import SCHEDULE, Kind, Values
from oppo_sim.search.spec import Sweep

JOURNAL, RUNS = "journal.jsonl", "runs"


def claim(out: Path, sweep: Sweep, *, resume: bool, keep_runs: bool) -> None:
    """Make the folder, or go on in one that was begun with the same sweep.

    RunError names the first thing in which they differ; seeds may be added.
    """
    claims.claim(out, header(sweep, keep_runs), resume=resume)


def header(sweep: Sweep, keep_runs: bool = False) -> dict[str, Any]:
    """All that its numbers depend on, the files of user and package included."""
    problem, seeds = sweep.problem, sweep.seeds
    lists = [axis.document() for axis in sweep.axes]
    return {
        "schema": claims.SCHEMA,
        "kind": "sweep",
        "role": "simulated",
        "scenario": {k: v for k, v in problem.document.items() if k not in ("seed", "about")},
        "files": digests.of_files([problem.document, lists], problem.folder),
        "schedule": problem.schedule,
        "baseline": problem.baseline,
        "axes": {axis.path: axis.document() for axis in sweep.axes},
        "order": [axis.path for axis in sweep.axes],
        "schedules": _schedules(sweep),
        "method": sweep.method,
        "points": sweep.points,
        "draw_seed": sweep.draw_seed,
        "steps": problem.steps,
        "seeds": list(seeds.of(seeds.least)),
        "max_seeds": None if seeds.enough is None else seeds.most,
        "enough": seeds.enough,
        "keep_runs": keep_runs,
        "package": digests.of_package()[:12],
    }


def _schedules(sweep: Sweep) -> dict[str, Any]:
    """What each schedule that is named is, on the scenario as it is at the first point."""
    names = [axis.choices for axis in sweep.axes if axis.path == SCHEDULE]
    own = list(*names) if names else [sweep.problem.schedule]
    built = {str(name): _built(sweep, "point", {SCHEDULE: name} if name else {}) for name in own}
    if sweep.problem.baseline is not None:
        built[sweep.problem.baseline] = _built(sweep, "baseline", {})
    return built


def _built(sweep: Sweep, kind: Kind, own: Values) -> dict[str, Any] | None:
    """At the first point that is possible; None where none of the first is."""
    for values in sweep.first():
        try:
            _, schedule = sweep.problem.built(kind, {**values, **own})
        except (ValueError, OverflowError):
            continue
        return schedule_document(schedule)
    return None

"""The folder of a comparison or a reproduction: it says what it is of, and takes nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from oppo_sim.analysis import digests
from oppo_sim.analysis.documents import schedule_document
from oppo_sim.config import Scenario
from oppo_sim.policies import Schedule
from oppo_sim.runs import RunError, assumed, claim_folder, refuse_difference, write_whole

HEADER, PARTS = "header.json", "parts"
SCHEMA = 1


def comparison(
    scenario: Scenario, schedules: Sequence[Schedule], seeds: Sequence[int], steps: int | None
) -> dict[str, Any]:
    """The header of a comparison; the order of the schedules counts, for the first is the base."""
    document = scenario.document()
    settings = {k: v for k, v in document.items() if k not in ("seed", "steps")}
    if scenario.changed:
        settings["assumptions"] = [*scenario.assumptions, *assumed(scenario.changed)]
    return {
        "schema": SCHEMA,
        "kind": "comparison",
        "role": "simulated",
        "scenario": settings,
        "sets": dict(scenario.changed),
        "files": digests.of_files(document, scenario.folder),
        "schedules": [schedule.name for schedule in schedules],
        "axes": {schedule.name: schedule_document(schedule) for schedule in schedules},
        "steps": scenario.steps if steps is None else steps,
        "seeds": list(seeds),
    }


def reproduction(seeds: Sequence[int], steps: int | None) -> dict[str, Any]:
    """The header of a reproduction; what it simulates is shipped with the package."""
    return {
        "schema": SCHEMA,
        "kind": "reproduction",
        "role": "simulated",
        "steps": "each scenario's" if steps is None else steps,
        "seeds": list(seeds),
    }


def claim(out: Path, header: Mapping[str, Any], *, resume: bool) -> Path:
    """Make the folder, or go on in one that was begun with the same header; where the parts go.

    Seeds may be added. RunError for a folder that holds anything else, in which nothing is changed.
    """
    claim_folder(out, resume=resume)
    asked = json.loads(json.dumps(header))
    if any(out.glob("[!.]*")):
        there = _read(out, asked["kind"])
        if there == asked:
            return out / PARTS
        _refuse_other(out, there, asked)
    write_whole(out / HEADER, json.dumps(asked, indent=2, allow_nan=False) + "\n")
    return out / PARTS


def _read(out: Path, kind: str) -> dict[str, Any]:
    try:
        there = json.loads((out / HEADER).read_bytes())
        if there["schema"] == SCHEMA and isinstance(there["seeds"], list):
            return dict(there)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise RunError(
        f"{out} holds something else than a {kind} (no {HEADER} of one): name another folder"
    )


def _refuse_other(out: Path, there: dict[str, Any], asked: dict[str, Any]) -> None:
    if there.get("kind") != asked["kind"]:
        raise RunError(
            f"{out} holds a {there.get('kind')}, not a {asked['kind']}: name another folder"
        )
    refuse_difference(out, asked["kind"], _settings(there), _settings(asked))
    if set(there["seeds"]) - set(asked["seeds"]):
        raise RunError(
            f"{out} holds another {asked['kind']}: seeds is {_span(there['seeds'])} there and "
            f"{_span(asked['seeds'])} here; ask for those and any more, or name another folder"
        )


def _settings(header: Mapping[str, Any]) -> dict[str, Any]:
    """What has to be the same: seeds may be added, and assumptions are words."""
    rest = {k: v for k, v in header.items() if k not in ("seeds", "sets")}
    scenario = rest.get("scenario")
    if isinstance(scenario, Mapping):
        rest["scenario"] = {k: v for k, v in scenario.items() if k != "assumptions"}
    return rest


def _span(seeds: Sequence[int]) -> str:
    whole = len(seeds) > 1 and list(seeds) == list(range(seeds[0], seeds[-1] + 1))
    return f"{seeds[0]} to {seeds[-1]}" if whole else ", ".join(map(str, seeds))

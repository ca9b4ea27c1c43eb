"""Real runs on disk: which there are, what they say of their machine, which were disturbed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from oppo_sim.calibration.tables import probe_s
from oppo_sim.calibration.twin import Recorded, recorded
from oppo_sim.costs.identity import CROWDED, SLOWED
from oppo_sim.costs.measurements import LEAST_S
from oppo_sim.runs import Run, RunError, read_run

MACHINE, DOCUMENT = "machine.json", "validation.json"


@dataclass(frozen=True)
class Real:
    """A real run, where it is, and what it says of the machine it ran on: maybe nothing."""

    schedule: str
    repeat: int
    folder: Path
    recorded: Recorded
    machine: Mapping[str, Any]

    @property
    def elsewhere(self) -> float:
        """The share of the machine that others took meanwhile."""
        return float(self.machine.get("elsewhere", 0.0))

    @property
    def probe_s(self) -> float:
        """Of the cores; without end where it does not say."""
        return float(self.machine.get("probe_s", inf))


def real_runs(path: Path, order: Sequence[str] = ()) -> list[Real]:
    """The run in a folder, or those in its folder `runs`, or right in it. RunError for none.

    Schedules in this order, the others behind them; without one, as a validation there has them.
    """
    if (path / "run.json").exists():
        folders = [path]
    else:
        inside = path / "runs" if (path / "runs").is_dir() else path
        folders = sorted(file.parent for file in inside.glob("*/run.json"))
    found: list[Real] = []
    for folder in folders:
        run = read_run(folder)
        _refuse(run, folder)
        name = _name(run, folder)
        repeat = sum(one.schedule == name for one in found)
        found.append(Real(name, repeat, folder, recorded(run, folder), _machine(folder)))
    order = order or _order(path)
    found.sort(key=lambda real: (*_place(real.schedule, order), real.repeat))
    if not found:
        raise RunError(f"{path}: no run folder, and none in it: name one that `oppo train` wrote")
    return found


def settled(runs: Sequence[Real], table: Path) -> tuple[list[Real], list[str]]:
    """Without runs that were disturbed to the last try, where their schedule has others; a note.

    The criterion knows nothing of errors: what others took, and how slow the cores were.
    """
    fastest_s = min([probe_s(table), *[real.probe_s for real in runs]])
    quiet = [real for real in runs if not _is_disturbed(real, fastest_s)]
    names = {real.schedule for real in quiet}
    kept = [real for real in runs if real in quiet or real.schedule not in names]
    gone = [f"{real.schedule}-{real.repeat}" for real in runs if real not in kept]
    words = "left out, for they were disturbed and their schedules have others"
    return kept, [f"{', '.join(gone)}: {words}"] if gone else []


def _is_disturbed(real: Real, fastest_s: float) -> bool:
    return real.elsewhere > CROWDED or SLOWED * fastest_s < real.probe_s < inf


def _place(schedule: str, order: Sequence[str]) -> tuple[int, str]:
    return order.index(schedule) if schedule in order else len(order), schedule


def _order(path: Path) -> list[str]:
    """Of the schedules in validation.json; `trl` first where there is none."""
    try:
        document = json.loads((path / DOCUMENT).read_bytes())
        return [one["schedule"] for one in document["schedules"]]
    except (OSError, ValueError, KeyError, TypeError):
        return ["trl"]


def _name(run: Run, folder: Path) -> str:
    """Of its schedule; it names folders as well."""
    name = run.header.schedule.get("name")
    if not isinstance(name, str) or not name or Path(name).name != name:
        raise RunError(f"{folder / 'run.json'}: schedule.name = {name!r}: must be a name, no path")
    return name


def _refuse(run: Run, folder: Path) -> None:
    if run.header.role == "simulated":
        raise RunError(f"{folder}: is simulated: there is nothing to hold it against")
    if not run.steps:
        raise RunError(f"{folder}: has no steps yet: run it again with --resume")
    if not run.spans:
        raise RunError(f"{folder}: has no spans.jsonl: run it again with this version")
    scenario, schedule = run.header.scenario, run.header.schedule
    workload = scenario.get("workload")
    cap = workload.get("max_response_tokens") if isinstance(workload, dict) else None
    for name, value, kind in (
        ("scenario.name", scenario.get("name"), str),
        ("scenario.cluster", scenario.get("cluster"), dict),
        ("scenario.workload.max_response_tokens", cap, int),
        ("schedule.batch", schedule.get("batch"), int),
    ):
        if not isinstance(value, kind):
            raise RunError(
                f"{folder / 'run.json'}: {name} is missing, or of another type: run it again"
            )


def _machine(folder: Path) -> dict[str, Any]:
    """Of its machine.json; empty without."""
    file = folder / MACHINE
    try:
        found: Any = json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise RunError(f"{file}: cannot be read ({error}); delete it") from None
    if not isinstance(found, dict):
        raise RunError(f"{file}: is not a JSON object; delete it")
    for key, least in (("probe_s", LEAST_S), ("elsewhere", 0.0)):
        value = found.get(key, least)
        if not (isinstance(value, int | float) and least <= value < inf):
            raise RunError(
                f"{file}: {key} = {value!r}: must be a number, at least {least:g}; delete the file"
            )
    return found

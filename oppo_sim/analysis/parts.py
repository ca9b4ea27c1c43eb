"""Many runs at once: each (scenario, schedule, seed) is a part, which may be kept on disk."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from oppo_sim.analysis import digests, pool
from oppo_sim.analysis.documents import schedule_document
from oppo_sim.analysis.metrics import Metrics, summarise
from oppo_sim.analysis.spent import Spending, Spent
from oppo_sim.analysis.time_to_reward import RewardRun
from oppo_sim.config import ConfigError, Scenario
from oppo_sim.costs import ExtrapolationWarning
from oppo_sim.policies import Schedule
from oppo_sim.runs import write_whole
from oppo_sim.simulate import check, lanes, simulate, workload

Progress = Callable[[int, int], None]  # parts done, of how many
NAMED = 4  # parts in an error


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One run: the same seed gives rollout i the same length and noise under every schedule."""

    scenario: Scenario
    schedule: Schedule
    seed: int
    steps: int

    @property
    def file_name(self) -> str:
        scenario, schedule = _in_file_name(self.scenario.name), _in_file_name(self.schedule.name)
        return f"{scenario}.{schedule}.{self.seed}.json"

    def key(self) -> str:
        """A digest of all that its numbers depend on, the files of user and package included."""
        document = [
            self.scenario.document(),
            schedule_document(self.schedule),
            self.seed,
            self.steps,
            digests.of_files(self.scenario.document(), self.scenario.folder),
            digests.of_package(),
        ]
        return digests.of_text(json.dumps(document, sort_keys=True))


class Measured(NamedTuple):
    """What is kept of a run."""

    metrics: Metrics
    rewards: RewardRun
    spent: Spent | None  # what devices did; None: an actor and a scorer share one


def measure(
    parts: Sequence[Part],
    *,
    jobs: int | None = None,
    keep: Path | None = None,
    progress: Progress | None = None,
) -> list[Metrics]:
    """The metrics of `run_parts`."""
    found = run_parts(parts, jobs=jobs, keep=keep, progress=progress)
    return [measured.metrics for measured in found]


def run_parts(
    parts: Sequence[Part],
    *,
    jobs: int | None = None,
    keep: Path | None = None,
    progress: Progress | None = None,
) -> list[Measured]:
    """Simulate the parts, `jobs` at a time (None: one per core), and sum each up.

    The results come in the order of the parts and do not depend on `jobs`. With a folder to `keep`
    them in, a part that is there already, made by the same code from the same scenario, is read
    instead; what its costs warned of is warned of again. ConfigError before anything runs where a
    scenario cannot run its schedule, WorkerDied where a process was killed.
    """
    for part in parts:
        check(part.scenario, part.schedule, part.steps)
    if keep is not None:
        _refuse_shared(parts)
        keep.mkdir(parents=True, exist_ok=True)
    jobs = min(len(parts), jobs or cores())
    rows: dict[int, dict[str, Any]] = {}
    try:
        tasks = [(part, keep) for part in parts]
        for place, row in pool.each(_measured, tasks, pool.processes(jobs)):
            rows[place] = row
            if progress is not None:
                progress(len(rows), len(parts))
    except pool.WorkerDied as death:
        raise WorkerDied([parts[place] for place in death.running], keep) from None
    return [_from_row(rows[place]) for place in range(len(parts))]


def run_part(part: Part) -> Measured:
    """Simulate one part here and now; nothing is kept, what its costs warn of is not said."""
    return _from_row(_run(part))


def _from_row(row: dict[str, Any]) -> Measured:
    metrics, rewards = Metrics.from_dict(row["metrics"]), RewardRun.from_dict(row["rewards"])
    return Measured(metrics, rewards, None if row["spent"] is None else Spent(**row["spent"]))


class WorkerDied(RuntimeError):
    """A process was killed, or crashed; says which parts were being simulated and what to do."""

    def __init__(self, running: Sequence[Part], keep: Path | None) -> None:
        named = [f"{part.schedule.name} with seed {part.seed}" for part in running[:NAMED]]
        more = len(running) - len(named)
        those = " or ".join(named) + (f" or one of {more} more" if more else "") or "nothing yet"
        remedy = (
            "--resume goes on from the runs that are finished"
            if keep
            else "with --out DIR, --resume can go on from finished runs"
        )
        super().__init__(
            f"a worker process died while it simulated {those}: killed, perhaps for memory; "
            f"{remedy}, and fewer --jobs take less memory"
        )


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _measured(task: tuple[Part, Path | None]) -> dict[str, Any]:
    """A part's metrics and rewards as JSON, from its file or from a run."""
    part, keep = task
    row = _run(part) if keep is None else _kept(part, keep)
    for text in row["warnings"]:  # those of a run that is read, too: its numbers rest on them
        warnings.warn(text, ExtrapolationWarning, stacklevel=2)
    return row


def _kept(part: Part, keep: Path) -> dict[str, Any]:
    file, key = keep / part.file_name, part.key()
    kept = _read(file)
    if kept.get("key") == key:
        return kept
    found = _run(part)
    named = {"scenario": part.scenario.name, "schedule": part.schedule.name, "seed": part.seed}
    document = {**named, "steps": part.steps, "key": key, **found}
    write_whole(file, json.dumps(document, indent=1, allow_nan=False) + "\n")
    return found


def _run(part: Part) -> dict[str, Any]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ExtrapolationWarning)
        found = _simulated(part)
    texts: dict[str, None] = {}
    for one in caught:
        if issubclass(one.category, ExtrapolationWarning):
            texts[str(one.message)] = None
        else:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    return {**found, "warnings": list(texts)}


def _simulated(part: Part) -> dict[str, Any]:
    own = lanes(part.scenario)
    spending = Spending(own) if Spending.is_known(own) else None
    devices = dict.fromkeys(device for lane in own for device in lane.devices)
    steps = simulate(
        part.scenario, part.schedule, seed=part.seed, steps=part.steps, listen=spending
    )
    lengths = workload(part.scenario, part.seed).responses
    rewards = RewardRun()
    metrics = summarise(rewards.watch(steps), tuple(devices), lengths=lengths)
    return {
        "metrics": metrics.as_dict(),
        "rewards": rewards.as_dict(),
        "spent": None if spending is None else spending.spent(rewards.end_s[-1])._asdict(),
    }


def _read(file: Path) -> dict[str, Any]:
    try:
        kept = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}  # not there, or damaged: simulated again
    return kept if isinstance(kept, dict) else {}


def _in_file_name(name: str) -> str:
    """The name itself where any file system takes it; else readable, and no other name's."""
    plain = re.sub(r"[^a-z0-9_-]", "_", name.lower())[:40]
    return plain if plain == name else f"{plain}~{digests.of_text(name)[:8]}"


def _refuse_shared(parts: Sequence[Part]) -> None:
    name, count = Counter(part.file_name for part in parts).most_common(1)[0]
    if count > 1:
        raise ConfigError(f"{count} runs would be kept as {name}: give each schedule its own name")

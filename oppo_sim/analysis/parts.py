"""Many runs at once: each (scenario, schedule, seed) is a part, which may be kept on disk."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from joblib import Parallel, delayed

import oppo_sim
from oppo_sim.analysis.documents import schedule_document
from oppo_sim.analysis.metrics import Metrics, summarise
from oppo_sim.analysis.time_to_reward import RewardRun
from oppo_sim.analysis.weighted import Weighted
from oppo_sim.config import Scenario
from oppo_sim.policies import Schedule
from oppo_sim.runs import write_whole
from oppo_sim.simulate import check, lanes, simulate, workload

Progress = Callable[[int, int], None]  # parts done, of how many


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One run: the same seed gives rollout i the same length and noise under every schedule."""

    scenario: Scenario
    schedule: Schedule
    seed: int
    steps: int

    @property
    def file_name(self) -> str:
        return re.sub(
            r"[^\w.-]", "_", f"{self.scenario.name}.{self.schedule.name}.{self.seed}.json"
        )

    def key(self) -> str:
        """A digest of all that its numbers depend on, the files of user and package included."""
        document = [
            self.scenario.document(),
            schedule_document(self.schedule),
            self.seed,
            self.steps,
            _file_digests(self.scenario.document(), self.scenario.folder),
            _package_digest(),
        ]
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


class Measured(NamedTuple):
    """What is kept of a run."""

    metrics: Metrics
    rewards: RewardRun
    weighted: float | None  # busy share, decoding by the rollouts that run; None: not known


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
    instead. ConfigError before anything runs where a scenario cannot run its schedule.
    """
    for part in parts:
        check(part.scenario, part.schedule, part.steps)
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
    tasks = [(part, keep) for part in parts]
    jobs = min(len(parts), jobs or cores())
    found = []
    for row in _results(tasks, jobs):
        metrics, rewards = Metrics.from_dict(row["metrics"]), RewardRun.from_dict(row["rewards"])
        found.append(Measured(metrics, rewards, row["weighted"]))
        if progress is not None:
            progress(len(found), len(parts))
    return found


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _results(tasks: Iterable[tuple[Part, Path | None]], jobs: int) -> Iterator[dict[str, Any]]:
    if jobs == 1:
        yield from (_measured(*task) for task in tasks)
        return
    pool = Parallel(n_jobs=jobs, return_as="generator")
    yield from pool(delayed(_measured)(*task) for task in tasks)


def _measured(part: Part, keep: Path | None) -> dict[str, Any]:
    """What is kept of a part as JSON, from its file or from a run."""
    if keep is None:
        return _run(part)
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
    own = lanes(part.scenario)
    weighted = Weighted(own) if Weighted.is_known(own) else None
    devices = dict.fromkeys(device for lane in own for device in lane.devices)
    steps = simulate(
        part.scenario, part.schedule, seed=part.seed, steps=part.steps, listen=weighted
    )
    lengths = workload(part.scenario, part.seed).responses
    rewards = RewardRun()
    metrics = summarise(rewards.watch(steps), tuple(devices), lengths=lengths)
    return {
        "metrics": metrics.as_dict(),
        "rewards": rewards.as_dict(),
        "weighted": None if weighted is None else weighted.share(rewards.end_s[-1]),
    }


def _read(file: Path) -> dict[str, Any]:
    try:
        kept = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}  # not there, or damaged: simulated again
    return kept if isinstance(kept, dict) else {}


def _file_digests(value: Any, folder: Path) -> list[str]:
    """Digests of the files that a scenario names: lengths, a card, a model, a cost table."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [digest for entry in value for digest in _file_digests(entry, folder)]
    # isfile, unlike Path.is_file, calls a text that is too long for a path no file
    if isinstance(value, str) and os.path.isfile(folder / value):
        return [hashlib.sha256((folder / value).read_bytes()).hexdigest()]
    return []


@cache
def _package_digest() -> str:
    """Of the package's code and data, so that no part outlives the code that made it."""
    package = Path(oppo_sim.__file__).parent
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*")):
        if file.suffix in (".py", ".csv", ".toml") and file.is_file():
            digest.update(f"{file.relative_to(package)}\n".encode() + file.read_bytes())
    return digest.hexdigest()

"""A scenario's cost table: its tasks measured, and a header that says of what."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from oppo_real.build import real_of
from oppo_real.errors import ModelError
from oppo_real.machine.sharing import cores
from oppo_real.networks.loading import load_models
from oppo_real.profile.beside import beside_group
from oppo_real.profile.busy import Busy
from oppo_real.profile.identity import identity
from oppo_real.profile.lanes import Subjects, subjects
from oppo_real.profile.plan import Plan, plan_of
from oppo_real.profile.small import handoff_rows, latency, sync_row
from oppo_real.profile.tasks import Group, decode_group, score_group, train_group
from oppo_real.profile.timing import Clock, Timing
from oppo_sim.config import Scenario
from oppo_sim.costs.identity import digest
from oppo_sim.costs.measurements import Measurements, Row, as_text
from oppo_sim.policies import Schedule

BUDGET_S = 150.0
PASSES = 4
SHARES = {"decode": 0.3, "score": 0.3, "train": 0.2, "beside": 0.2}
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Profile:
    """`errors`: of each row, its standard error as a share."""

    table: Measurements
    errors: Sequence[float]
    seconds: float

    def text(self) -> str:
        return as_text(self.table)


def described(scenario: Scenario, seed: int | None = None) -> dict[str, str]:
    """What a table of this scenario on this machine would say of itself; nothing is measured."""
    models = load_models(real_of(scenario), scenario.folder, seed or scenario.seed)
    return identity(scenario, models)


def profile(
    scenario: Scenario,
    schedules: Sequence[Schedule],
    *,
    budget_s: float = BUDGET_S,
    progress: Progress = lambda what: None,
) -> Profile:
    """Measure what these schedules may ask for, within about `budget_s`.

    Raises ConfigError or ModelError as training would, and for lanes that never work side by side.
    """
    real = real_of(scenario)
    if real.workers == "inline":
        raise ModelError(
            f"{scenario.file}: real.workers = 'inline': its lanes take turns on one thread, which "
            "no cost table describes; set it to 'threads'"
        )
    began_s = time.monotonic()
    on = subjects(scenario, scenario.seed)
    try:
        busy = Busy()
        plan = plan_of(scenario, schedules, on.limits)
        news = latency()
        with busy:
            found = _passes(_groups(on, plan), budget_s, progress)
        found += [sync_row(on, news), *handoff_rows(news)]
        said = _header(scenario, on, plan, found, news)
        said["elsewhere"] = f"{busy.elsewhere():.1%} of the machine, taken by other processes"
        said["probe_s"] = f"{busy.probe_s():.4g}"
    finally:
        on.close()
    rows = tuple([row for row, _ in found])
    name = f"{scenario.name}-profile"
    table = Measurements(name, rows, said)
    return Profile(table, [timing.error for _, timing in found], time.monotonic() - began_s)


def _groups(on: Subjects, plan: Plan) -> dict[str, tuple[int, Group]]:
    """By task: the torch threads that its lane has when it works alone, and what is measured."""
    real = on.real
    alone = {
        "actor": real.actor_threads,
        "scorer": real.scorer_threads,
        "trainer": real.trainer_threads,
    }
    if real.share_threads and real.workers == "threads":
        both = min(cores(), real.actor_threads + real.scorer_threads)
        alone |= {lane: max(alone[lane], both) for lane in ("actor", "scorer")}
    return {
        "decode": (alone["actor"], decode_group(on, plan)),
        "score": (alone["scorer"], score_group(on, plan)),
        "train": (alone["trainer"], train_group(on, plan)),
        "beside": (alone["actor"], beside_group(on, plan, alone)),
    }


def _passes(
    groups: Mapping[str, tuple[int, Group]],
    budget_s: float,
    progress: Progress,
    clock: Clock = time.monotonic,
) -> list[tuple[Row, Timing]]:
    """All points in turn, and again while there is time for it, PASSES times at most."""
    end_s, last_s = clock() + budget_s, 0.0
    for done in range(PASSES):
        begin_s = clock()
        if done and end_s - begin_s < last_s:
            break
        for task, (threads, group) in groups.items():
            progress(f"{task}, pass {done + 1}")
            torch.set_num_threads(threads)
            share_s = SHARES[task] * budget_s / PASSES / len(group.visits)
            for visit in group.visits:
                visit(share_s)
        last_s = clock() - begin_s
    return [row for _, group in groups.values() for row in group.rows()]


def _header(
    scenario: Scenario,
    on: Subjects,
    plan: Plan,
    found: Sequence[tuple[Row, Timing]],
    news: Timing,
) -> dict[str, str]:
    here = identity(scenario, on.build.models)
    worst = max(timing.error for _, timing in found)
    return {
        "source": f"oppo profile of {scenario.name}, each task by itself on its lanes",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        **here,
        "digest": digest(here),
        "grouped": "yes",
        "micro_batch": str(plan.micro_rows),
        "mini_batches": str(plan.minis),
        "news_s": f"{news.seconds:.3g}",
        "spread": f"{worst:.1%} at most, a mean's standard error",
    }

"""A scenario's cost table: its tasks measured, and a header that says of what."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from oppo_real.build import real_of
from oppo_real.errors import ModelError
from oppo_real.networks.loading import load_models
from oppo_real.profile.beside import beside_rows
from oppo_real.profile.busy import Busy
from oppo_real.profile.identity import identity
from oppo_real.profile.lanes import Subjects, subjects
from oppo_real.profile.plan import Plan, plan_of
from oppo_real.profile.small import handoff_rows, latency, sync_row
from oppo_real.profile.tasks import decode_rows, score_rows, train_rows
from oppo_real.profile.timing import Budget, Timing
from oppo_sim.config import Scenario
from oppo_sim.costs.identity import digest
from oppo_sim.costs.measurements import Measurements, Row, as_text
from oppo_sim.policies import Schedule

BUDGET_S = 150.0
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
    began_s, busy = time.monotonic(), Busy()
    on = subjects(scenario, scenario.seed)
    try:
        plan = plan_of(scenario, schedules, on.limits)
        news = latency()
        found = [*_rows(on, plan, budget_s, progress), sync_row(on, news), *handoff_rows(news)]
        said = _header(scenario, on, plan, found, news)
        said["elsewhere"] = f"{busy.elsewhere():.1%} of the machine, taken by other processes"
    finally:
        on.close()
    rows = tuple([row for row, _ in found])
    name = f"{scenario.name}-profile"
    table = Measurements(name, rows, said)
    return Profile(table, [timing.error for _, timing in found], time.monotonic() - began_s)


def _rows(
    on: Subjects, plan: Plan, budget_s: float, progress: Progress
) -> Iterator[tuple[Row, Timing]]:
    """Each lane with the threads that it has when it works alone, then side by side."""
    real = on.real
    lent = real.share_threads and real.workers == "threads"
    alone = {
        "actor": real.actor_threads + (real.scorer_threads if lent else 0),
        "scorer": real.scorer_threads + (real.actor_threads if lent else 0),
        "trainer": real.trainer_threads,
    }

    def budget(task: str) -> Budget:
        progress(task)
        return Budget(SHARES[task] * budget_s)

    torch.set_num_threads(alone["actor"])
    yield from decode_rows(on, plan, budget("decode"))
    torch.set_num_threads(alone["scorer"])
    yield from score_rows(on, plan, budget("score"))
    torch.set_num_threads(alone["trainer"])
    yield from train_rows(on, plan, budget("train"))
    yield from beside_rows(on, plan, alone, budget("beside"))


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
        "spread": f"{worst:.1%} at most, a median's standard error",
    }

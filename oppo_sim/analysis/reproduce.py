"""The paper's rows, simulated: table, figure, and everything that is assumed, in one folder."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import oppo_sim
from oppo_sim.analysis import claims, figures, measures
from oppo_sim.analysis.compare import Comparison, compare_all
from oppo_sim.analysis.documents import schedule_document
from oppo_sim.analysis.paper import Outcome, orderings, paper_rows
from oppo_sim.analysis.parts import Progress
from oppo_sim.analysis.reproduced import COMMON, readme
from oppo_sim.config import Scenario
from oppo_sim.runs import write_whole

SEEDS = range(5)  # the paper: means of 5 runs
COLUMNS = ("id", "quantity", "paper", "simulated", "low", "high", "error_pct", "role")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """The rows next to what was simulated, and the comparisons that they come from."""

    outcomes: tuple[Outcome, ...]
    comparisons: tuple[Comparison, ...]
    sweeps: tuple[Comparison, ...]  # over chunks
    scenarios: tuple[Scenario, ...]

    def orderings(self) -> list[tuple[str, bool]]:
        return orderings(self.outcomes)

    def as_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "role": "simulated",
            "version": oppo_sim.__version__,
            "rows": [outcome.as_dict() for outcome in self.outcomes],
            "orderings": dict(self.orderings()),
            "why": {c.scenario: [reason._asdict() for reason in c.why()] for c in self.comparisons},
            "assumptions": {
                "common": list(COMMON),
                **{s.name: list(s.assumptions) for s in self.scenarios},
            },
            "conditions": [
                {
                    "scenario": comparison.scenario,
                    "seeds": list(comparison.seeds),
                    "steps": comparison.steps,
                    "schedules": [schedule_document(s.schedule) for s in comparison.standings],
                }
                for comparison in (*self.comparisons, *self.sweeps)
            ],
        }


def reproduce(
    out: Path | None = None,
    *,
    resume: bool = False,
    seeds: Sequence[int] = SEEDS,
    steps: int | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Reproduction:
    """Simulate every row; with `out`, write the folder. Finished parts are kept for `resume`.

    `steps` None: what each scenario says. RunError for a folder that cannot be used.
    """
    rows = paper_rows()
    pairs, sweeps = measures.pairs(rows), measures.sweeps(rows)
    keep = None
    if out is not None:
        keep = claims.claim(out, claims.reproduction(seeds, steps), resume=resume)
    few = seeds[: measures.SWEEP_SEEDS]
    first, second = _in_turn(progress, measures.runs(pairs, seeds), measures.runs(sweeps, few))
    comparisons = compare_all(pairs, seeds, steps, jobs, keep=keep, progress=first)
    swept = compare_all(
        sweeps,
        few,
        min(steps or measures.SWEEP_STEPS, measures.SWEEP_STEPS),
        jobs,
        keep=keep,
        progress=second,
    )
    reproduction = Reproduction(
        outcomes=measures.outcomes(rows, comparisons, swept),
        comparisons=tuple(comparisons),
        sweeps=tuple(swept),
        scenarios=tuple([scenario for scenario, _ in pairs]),
    )
    if out is not None:
        _write(out, reproduction)
    return reproduction


def _in_turn(
    progress: Progress | None, runs: int, more: int
) -> tuple[Progress | None, Progress | None]:
    """Two meters that read as one."""
    if progress is None:
        return None, None
    return (
        lambda done, _: progress(done, runs + more),
        lambda done, _: progress(runs + done, runs + more),
    )


def _write(out: Path, reproduction: Reproduction) -> None:
    table = io.StringIO()
    writer = csv.DictWriter(table, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(outcome.as_dict() for outcome in reproduction.outcomes)
    outcomes, seeds = reproduction.outcomes, len(reproduction.comparisons[0].seeds)
    write_whole(out / "paper_rows.png", figures.paper_rows(outcomes, seeds))
    write_whole(out / "utilisation.png", figures.utilisation(outcomes, seeds))
    curves = figures.reward_curves(outcomes, reproduction.comparisons)
    write_whole(out / "time_to_reward.png", curves)
    text = readme(
        outcomes,
        reproduction.comparisons,
        reproduction.sweeps,
        reproduction.scenarios,
    )
    write_whole(out / "README.md", text)
    write_whole(out / "paper_rows.csv", table.getvalue())

"""The paper's rows, simulated: table, figure, and everything that is assumed, in one folder."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import oppo_sim
from oppo_sim.analysis import figures
from oppo_sim.analysis.compare import Comparison, compare_all
from oppo_sim.analysis.documents import schedule_document
from oppo_sim.analysis.paper import Outcome, PaperRow, orderings, paper_rows
from oppo_sim.analysis.parts import Progress
from oppo_sim.analysis.why import count
from oppo_sim.config import Scenario, load_scenario
from oppo_sim.policies import Schedule
from oppo_sim.runs import RunError, claim_folder, write_whole

SEEDS = range(5)  # the paper: means of 5 runs
PARTS = "parts"
COLUMNS = ("id", "quantity", "paper", "simulated", "low", "high", "error_pct", "role")
COMMON = (
    "Speed-up is the ratio of mean step times: both systems are taken to need equally many steps "
    "to a reward, as the paper's reward curves on Stack-Exchange and GSM8K show.",
    "Stand-ins (lengths above all) and efficiencies were chosen by hand by readers of the paper's "
    "rows: no row here is a blind prediction.",
    "The paper's minutes are as reported in public notes on the paper; which machine each row ran "
    "on is not known.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """The rows next to what was simulated, and the comparisons that they come from."""

    outcomes: tuple[Outcome, ...]
    comparisons: tuple[Comparison, ...]
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
                for comparison in self.comparisons
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
    if out is not None:
        _claim(out, resume)
    pairs = _pairs(rows)
    comparisons = compare_all(
        pairs,
        seeds,
        steps,
        jobs,
        keep=None if out is None else out / PARTS,
        progress=progress,
    )
    found = {comparison.scenario: comparison for comparison in comparisons}
    reproduction = Reproduction(
        outcomes=tuple(
            [Outcome(row=row, simulated=found[row.scenario][row.schedule].speedup) for row in rows]
        ),
        comparisons=tuple(comparisons),
        scenarios=tuple([scenario for scenario, _ in pairs]),
    )
    if out is not None:
        _write(out, reproduction, rows)
    return reproduction


def _claim(out: Path, resume: bool) -> None:
    claim_folder(out, resume=resume)
    if any(out.glob("[!.]*")) and not (out / PARTS).is_dir():
        raise RunError(f"{out} holds something else than a reproduction: name another folder")


def _pairs(rows: Sequence[PaperRow]) -> list[tuple[Scenario, list[Schedule]]]:
    """Each scenario with its baseline and the schedules that its rows name, in their order."""
    names: dict[str, dict[str, None]] = {}
    for row in rows:
        names.setdefault(row.scenario, {row.baseline: None})[row.schedule] = None
    pairs = []
    for name, schedules in names.items():
        scenario = load_scenario(name)
        pairs.append((scenario, [scenario.schedule(schedule) for schedule in schedules]))
    return pairs


def _write(out: Path, reproduction: Reproduction, rows: Sequence[PaperRow]) -> None:
    table = io.StringIO()
    writer = csv.DictWriter(table, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(outcome.as_dict() for outcome in reproduction.outcomes)
    seeds = len(reproduction.comparisons[0].seeds)
    write_whole(out / "paper_rows.png", figures.paper_rows(reproduction.outcomes, seeds))
    write_whole(out / "README.md", _readme(reproduction, rows))
    write_whole(out / "paper_rows.csv", table.getvalue())


def _readme(reproduction: Reproduction, rows: Sequence[PaperRow]) -> str:
    """The folder in words: results, why, assumptions, conditions, sources."""
    lines = [
        "# OPPO's speed-ups, simulated",
        "",
        "Every number under *simulated* comes from the simulator, none from a GPU. The role says "
        "what a row may prove. *assumed*: the scenario's numbers were chosen by hand, with the "
        "paper's rows in view, so agreement is no evidence; *fitted*: the scenario was fitted to "
        "this row; *held_out*: the row was kept for checking.",
        "",
        *_table(reproduction.outcomes),
        "",
        *(
            f"- {text}: {'holds' if holds else 'DOES NOT HOLD'} (means over the seeds)"
            for text, holds in reproduction.orderings()
        ),
        "",
        "![paper and simulation](paper_rows.png)",
        "",
        "## Why",
    ]
    for comparison in reproduction.comparisons:
        lines += ["", f"### {comparison.scenario}", ""]
        for reasons in comparison.why():
            lines += [f"- {reasons.verdict}", *(f"  - {reason}" for reason in reasons.reasons)]
    lines += ["", "## Assumed", "", *(f"- {text}" for text in COMMON)]
    for scenario in reproduction.scenarios:
        lines += ["", f"### {scenario.name}", "", *(f"- {text}" for text in scenario.assumptions)]
    lines += ["", "## Conditions", ""]
    for comparison in reproduction.comparisons:
        seeds = ", ".join(map(str, comparison.seeds))
        lines.append(f"- {comparison.scenario}: {count(comparison.steps, 'step')}, seeds {seeds}")
    lines += [
        f"- oppo-testbed {oppo_sim.__version__}; schedules as `oppo schedules` lists them, with "
        "the axes that each scenario's [schedule] table sets: `oppo reproduce --json` has them all"
    ]
    lines += ["", "## Sources of the paper's values", ""]
    lines += [f"- {row.id}: {row.source}" for row in rows]
    return "\n".join(lines) + "\n"


def _table(outcomes: Sequence[Outcome]) -> list[str]:
    lines = [
        "| id | quantity | paper | simulated | 95 % interval | error | role |",
        "|---|---|---|---|---|---|---|",
    ]
    for outcome in outcomes:
        mean, low, high = outcome.simulated
        interval = "-" if low is None or high is None else f"{low:.3f} to {high:.3f}"
        lines.append(
            f"| {outcome.row.id} | {outcome.row.quantity} | {outcome.row.paper:.2f} | {mean:.2f} "
            f"| {interval} | {outcome.error_pct:+.0f} % | {outcome.row.role} |"
        )
    return lines

"""The paper's rows, simulated: table, figure, and everything that is assumed, in one folder."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import oppo_sim
from oppo_sim.analysis import canvas, claim_figures, claims, figures, measures
from oppo_sim.analysis.bars import Bar, bars, orderings
from oppo_sim.analysis.compare import Comparison, compare_all
from oppo_sim.analysis.documents import schedule_document
from oppo_sim.analysis.fits import Fit, registered_fit, shipped_fits
from oppo_sim.analysis.paper import Outcome, paper_rows
from oppo_sim.analysis.parts import Progress
from oppo_sim.analysis.report import as_html, read_findings, report
from oppo_sim.analysis.reproduced import COMMON, readme
from oppo_sim.analysis.why import count
from oppo_sim.config import Scenario
from oppo_sim.runs import write_whole

SEEDS = range(5)  # the paper: means of 5 runs
COLUMNS = (
    *("id", "quantity", "paper", "simulated", "low", "high", "error_pct", "role"),
    "null_error_pct",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """The rows next to what was simulated, and the comparisons that they come from."""

    outcomes: tuple[Outcome, ...]
    comparisons: tuple[Comparison, ...]
    sweeps: tuple[Comparison, ...]  # over chunks
    scenarios: tuple[Scenario, ...]
    fits: Mapping[str, Fit]

    def orderings(self) -> list[Bar]:
        return orderings(self.outcomes)

    def bars(self) -> list[Bar]:
        return bars(self.outcomes)

    def as_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "role": "simulated",
            "version": oppo_sim.__version__,
            "rows": [outcome.as_dict() for outcome in self.outcomes],
            "orderings": dict(self.orderings()),
            "bars": [bar._asdict() for bar in self.bars()],
            "fits": {
                stage: {
                    "candidates": len(fit.candidates),
                    "accepted": len(fit.accepted),
                    "shown": asdict(fit.shown),
                }
                for stage, fit in self.fits.items()
            },
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
    fits: Mapping[str, Fit] | None = None,
    changes: measures.Changes | None = None,
    findings: Path | None = None,
) -> Reproduction:
    """Simulate every row; with `out`, write the folder. Finished parts are kept for `resume`.

    `steps` None: what each scenario says. `fits` and what they change in the scenarios: those that
    are shipped, and nothing. `findings`: a folder of experiments whose findings the page shows.
    RunError for a folder that cannot be used.
    """
    rows, changes = paper_rows(), changes or {}
    fits = shipped_fits() if fits is None else fits
    pairs, sweeps = measures.pairs(rows, changes), measures.sweeps(rows, changes)
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
        outcomes=measures.outcomes(rows, comparisons, swept, fits),
        comparisons=tuple(comparisons),
        sweeps=tuple(swept),
        scenarios=tuple([scenario for scenario, _ in pairs]),
        fits=fits,
    )
    if out is not None:
        _write(out, reproduction, findings)
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


def _write(out: Path, reproduction: Reproduction, findings: Path | None) -> None:
    table = io.StringIO()
    writer = csv.DictWriter(table, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(outcome.as_dict() for outcome in reproduction.outcomes)
    pictures = _pictures(reproduction)
    for name, picture in pictures.items():
        write_whole(out / name, picture)
    _write_report(out / "report", reproduction, pictures, findings)
    outcomes = reproduction.outcomes
    text = readme(
        outcomes,
        reproduction.comparisons,
        reproduction.sweeps,
        reproduction.scenarios,
    )
    write_whole(out / "README.md", text)
    write_whole(out / "paper_rows.csv", table.getvalue())


def _runs(reproduction: Reproduction) -> str:
    steps = sorted({comparison.steps for comparison in reproduction.comparisons})
    length = " to ".join(map(str, dict.fromkeys((steps[0], steps[-1]))))
    return f"{count(len(reproduction.comparisons[0].seeds), 'seed')}, runs of {length} steps"


def _pictures(reproduction: Reproduction) -> dict[str, bytes]:
    """By file name."""
    outcomes, comparisons = reproduction.outcomes, reproduction.comparisons
    seeds = len(comparisons[0].seeds)
    with canvas.style():
        return {
            "paper_rows.png": figures.paper_rows(outcomes, seeds),
            "utilisation.png": figures.utilisation(outcomes, seeds),
            "time_to_reward.png": figures.reward_curves(outcomes, comparisons),
            "chunk_sweep.png": claim_figures.chunk_sweep(outcomes, reproduction.sweeps),
            "fixed_or_dynamic_d.png": claim_figures.fixed_or_dynamic(outcomes),
            "lateness.png": claim_figures.lateness(outcomes, comparisons),
            "two_nodes.png": claim_figures.two_nodes(outcomes, comparisons),
        }


def _write_report(
    out: Path, reproduction: Reproduction, pictures: Mapping[str, bytes], findings: Path | None
) -> None:
    """The page as Markdown beside its pictures, and as one HTML file."""
    found = [] if findings is None else read_findings(findings)
    shown = dict(pictures)
    for finding in found:
        assert findings is not None
        shown[finding["figure"]] = (findings / finding["figure"]).read_bytes()
    text = report(
        reproduction.outcomes, reproduction.fits, registered_fit(), found, _runs(reproduction)
    )
    out.mkdir(exist_ok=True)
    for name, picture in shown.items():
        write_whole(out / name, picture)
    write_whole(out / "report.md", text)
    write_whole(out / "index.html", as_html(text, shown))

"""The README of a reproduction: results, why, what is assumed, conditions, sources."""

from __future__ import annotations

from collections.abc import Sequence

import oppo_sim
from oppo_sim.analysis.bars import bars, orderings
from oppo_sim.analysis.compare import Comparison
from oppo_sim.analysis.paper import Outcome
from oppo_sim.analysis.why import count, percent
from oppo_sim.config import Scenario

COMMON = (
    "Speed-up is the ratio of mean step times: both systems are taken to need equally many steps "
    "to a reward, as the paper's reward curves on Stack-Exchange and GSM8K show.",
    "Reward by step is put in, not found: the rows R1 and R2 say that what was put in comes out, "
    "and M1 differs from T1 only by the noise of the reward, unless staleness is given a price "
    "(stale_penalty; its sign is the paper's, its size a guess).",
    "Utilisation: a device that scores or trains counts in full, one that decodes and one that has "
    "no rollout left before the batch is complete count as fitted to U1b, U1o and U2o. What the "
    "paper's utilisation counts is not known to us.",
    "Which rows are fitted and which are held out was frozen before the fit, by people who had "
    "seen all of them: held out means not fitted, not blind. Which table of lengths stands in for "
    "the paper's, its cap, and the largest D are part of the fit.",
    "The paper's minutes are as reported in public notes on the paper; which machine each row ran "
    "on is not known.",
)


def readme(
    outcomes: Sequence[Outcome],
    comparisons: Sequence[Comparison],
    sweeps: Sequence[Comparison],
    scenarios: Sequence[Scenario],
) -> str:
    """The folder in words."""
    lines = [
        "# OPPO's results, simulated",
        "",
        "Every number under *simulated* comes from the simulator, none from a GPU. The role says "
        "what a row may prove. *fitted*: the scenario was fitted to this row; *held_out*: the row "
        "was kept for checking; *assumed*: what comes out was put in; *scenario*: by a mechanism "
        "that the scenario states, not a prediction. The null model is what the paper's other rows "
        "would let one expect without a simulator.",
        "",
        *_table(outcomes),
        "",
        *(
            f"- {text}: {'holds' if holds else 'DOES NOT HOLD'} (means over the seeds)"
            for text, holds in orderings(outcomes)
        ),
        *(f"- {text}: {'holds' if holds else 'DOES NOT HOLD'}" for text, holds in bars(outcomes)),
        "",
        "![paper and simulation](paper_rows.png)",
        "![utilisation of the GPUs](utilisation.png)",
        "![reward over time](time_to_reward.png)",
        "",
        "## Why",
    ]
    for comparison in comparisons:
        lines += ["", f"### {comparison.scenario}", ""]
        for reasons in comparison.why():
            lines += [f"- {reasons.verdict}", *(f"  - {reason}" for reason in reasons.reasons)]
    lines += _chunks(outcomes, sweeps)
    lines += _assumed(comparisons, sweeps, scenarios)
    lines += ["", "## Sources of the paper's values", ""]
    lines += [f"- {outcome.row.id}: {outcome.row.source}" for outcome in outcomes]
    return "\n".join(lines) + "\n"


def _assumed(
    comparisons: Sequence[Comparison],
    sweeps: Sequence[Comparison],
    scenarios: Sequence[Scenario],
) -> list[str]:
    """What was put in, and how long what ran."""
    lines = ["", "## Assumed", "", *(f"- {text}" for text in COMMON)]
    for scenario in scenarios:
        lines += ["", f"### {scenario.name}", "", *(f"- {text}" for text in scenario.assumptions)]
    lines += ["", "## Conditions", ""]
    for comparison in comparisons:
        lines.append(f"- {comparison.scenario}: {_conditions(comparison)}")
    lines += [f"- chunks, on {sweep.scenario}: {_conditions(sweep)}" for sweep in sweeps]
    lines += [
        f"- oppo-testbed {oppo_sim.__version__}; schedules as `oppo schedules` lists them, with "
        "the axes that each scenario's [schedule] table sets: `oppo reproduce --json` has them all"
    ]
    return lines


def _conditions(comparison: Comparison) -> str:
    seeds = ", ".join(map(str, comparison.seeds))
    return f"{count(comparison.steps, 'step')}, seeds {seeds}"


def _table(outcomes: Sequence[Outcome]) -> list[str]:
    lines = [
        "| id | quantity | paper | simulated | 80 % interval | error | null model's error | role |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for outcome in outcomes:
        row = outcome.row
        lines.append(" | ".join([f"| {row.id}", row.quantity, *outcome.cells(), f"{row.role} |"]))
    return lines


def _chunks(outcomes: Sequence[Outcome], sweeps: Sequence[Comparison]) -> list[str]:
    """Where the seconds go by chunk: what makes a chunk too small, and what too large."""
    lines = [
        "",
        "## Chunks",
        "",
        "Each round ends with a stall of the actors (costs.round_s, assumed), so small chunks make "
        "generation longer; the larger the chunk, the less of the scoring runs behind generation. "
        "Where both count, the best chunk lies in between. Where generation is short (OPPO, which "
        "does not wait for the slowest), scoring is left over whatever the chunk: stalls run "
        "behind it, and smaller chunks stay better for longer. The interval of a C1 row holds the "
        "chunks that are not decided against the fastest.",
    ]
    swept = [outcome.row for outcome in outcomes if outcome.row.measure == "chunk"]
    for row, sweep in zip(swept, sweeps, strict=True):
        lines += ["", f"### {row.id}: {row.schedule}", ""]
        for standing in sweep.standings:
            m = standing.side.metrics
            generation, scoring = (m.stages_s[stage] for stage in ("generation", "scoring"))
            lines.append(
                f"- {standing.name}: {m.mean_step_s:.1f} s per step; exposed: generation "
                f"{generation:.1f} s, scoring {scoring:.1f} s; "
                f"{percent(m.hidden_score_share or 0.0)} of the scoring hidden"
            )
    return lines

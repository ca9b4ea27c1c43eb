"""The paper's two knobs together: the fastest chunk and D of each shipped scenario, by search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import chart
from experiments.result import Experiment, Finding, Result, Row, Verdict
from oppo_sim.analysis import canvas
from oppo_sim.analysis.intervals import Mean, of_ratios
from oppo_sim.analysis.parts import cores
from oppo_sim.analysis.pool import processes
from oppo_sim.config import load_scenario
from oppo_sim.search import Found, Problem, Unit
from oppo_sim.search.workers import Workers

SCENARIOS = ("stackexchange-7b", "stackexchange-3b", "opencoder-3b", "gsm8k-7b")
QUICK = ("stackexchange-7b", "gsm8k-7b")
CHUNKS = (50, 100, 200, 350, 500, 1000)  # and the cap
FIXED = (0, 4, 8, 16, 32, 64, 112)  # 112: another batch
DYNAMIC = "4 to 8"  # the paper's
SLOPE_LEAST = 4
SLOPE = {"policy": "reward-slope", "start": SLOPE_LEAST, "least": SLOPE_LEAST, "most": 8}
PAPER_CHUNK = 500
STEPS = 70
SEEDS = 4  # of the choice, and as many fresh ones
FINALISTS = 6  # of the first seed, that get the others
NEAR = 0.05  # of a step: the paper's is as good as the best
Cell = tuple[int, str]  # chunk, D


@dataclass
class Case:
    """A scenario: what its cells came to, by seed, and which of them were chosen."""

    name: str
    cells: list[Cell]
    paper: Cell
    screen: int  # the seed that all cells have
    chosen: range  # by these the finalists are compared
    fresh: range  # and by these the chosen are measured, which had no part in the choice
    found: dict[tuple[Cell | None, int], Found] = field(default_factory=dict)  # None: TRL

    def gain(self, cell: Cell, seeds: Sequence[int], over: Cell | None = None) -> Mean:
        """How many times as fast as TRL, or another cell, paired by seed."""
        return of_ratios(
            [self.found[over, s]["step_s"] / self.found[cell, s]["step_s"] for s in seeds]
        )

    def staleness(self, cell: Cell, seeds: Sequence[int]) -> float:
        return sum(self.found[cell, s]["staleness"] for s in seeds) / len(seeds)

    def measured(self) -> list[Cell]:
        """Those with all seeds of the choice."""
        return [c for c in self.cells if all((c, seed) in self.found for seed in self.chosen)]

    def best(self, most: float | None = None) -> Cell:
        """The fastest on the seeds of the choice, of those that are no staler than `most`."""
        kept = [
            cell
            for cell in self.measured()
            if most is None or self.staleness(cell, self.chosen) <= most
        ]
        return max(kept, key=lambda cell: self.gain(cell, self.chosen).mean)

    @property
    def fastest(self) -> Cell:
        return self.best()

    @property
    def no_staler(self) -> Cell:
        return self.best(self.staleness(self.paper, self.chosen))

    def as_fast(self) -> list[Cell]:
        """Those that the seeds of the choice cannot tell from the fastest."""
        return [
            cell
            for cell in self.measured()
            if cell == self.fastest or self.gain(self.fastest, self.chosen, cell).includes(1.0)
        ]


class Reading(NamedTuple):
    """The paper's setting and the best, on fresh seeds."""

    paper: Mean  # over TRL
    fastest: Mean
    no_staler: Mean
    lead: Mean  # of the fastest over the paper's
    calm_lead: Mean  # of the fastest that is no staler


def run(quick: bool) -> Result:
    cases = [_case(name, quick) for name in (QUICK if quick else SCENARIOS)]
    readings = {case.name: read(case) for case in cases}
    leads = {name: reading.calm_lead for name, reading in readings.items()}
    finding = judged(leads, {case.name: case.no_staler for case in cases})
    rows = [_row(case, cell) for case in cases for cell in case.cells]
    return Result(rows, _draw(cases), _text(cases, readings), finding)


def _case(name: str, quick: bool) -> Case:
    scenario = load_scenario(name)
    cap = scenario.workload.max_response_tokens
    streams = scenario.models is not None and scenario.models.reward != "rule"
    chunks = [c for c in CHUNKS if c < cap] if streams else []
    if quick:
        chunks = [c for c in chunks if c in (100, PAPER_CHUNK)]
    over = [str(d) for d in (FIXED[::3] if quick else FIXED)]
    over.insert(sum(int(d) <= SLOPE_LEAST for d in over), DYNAMIC)
    several = 2 if quick else SEEDS
    case = Case(
        name=name,
        cells=list(product([*chunks, cap], over)),
        paper=(PAPER_CHUNK if streams else cap, DYNAMIC),
        screen=0,
        chosen=range(several),
        fresh=range(several, 2 * several),
    )
    problem = Problem.of(name, schedule="oppo", steps=10 if quick else STEPS)
    _simulate(case, problem, [None, *case.cells], [case.screen])
    ranked = sorted(case.cells, key=lambda c: case.found[c, case.screen]["step_s"])
    own = case.staleness(case.paper, [case.screen])
    calm = [cell for cell in ranked if case.staleness(cell, [case.screen]) <= 1.2 * own]
    finalists = dict.fromkeys([*ranked[:FINALISTS], *calm[: FINALISTS // 2], case.paper])
    _simulate(case, problem, [None, *finalists], case.chosen)
    chosen = dict.fromkeys([case.fastest, case.no_staler, case.paper])
    _simulate(case, problem, [None, *chosen], case.fresh)
    return case


def _simulate(
    case: Case, problem: Problem, cells: Sequence[Cell | None], seeds: Sequence[int]
) -> None:
    """Those that are not there yet, on all cores."""
    names: list[Cell | None] = [None, *case.cells]
    units = [
        Unit("point" if cell else "baseline", names.index(cell), seed, _values(cell))
        for cell in cells
        for seed in seeds
        if (cell, seed) not in case.found
    ]
    for unit, found in Workers(problem, processes(cores())).run(units):
        case.found[names[unit.id], unit.seed] = found


def _values(cell: Cell | None) -> dict[str, Any]:
    if cell is None:
        return {}
    chunk, over = cell
    beyond = SLOPE if over == DYNAMIC else int(over)
    return {"schedule.chunk": chunk, "schedule.overcommit": beyond}


def read(case: Case) -> Reading:
    return Reading(
        case.gain(case.paper, case.fresh),
        case.gain(case.fastest, case.fresh),
        case.gain(case.no_staler, case.fresh),
        case.gain(case.fastest, case.fresh, case.paper),
        case.gain(case.no_staler, case.fresh, case.paper),
    )


def judged(leads: Mapping[str, Mean], best: Mapping[str, Cell]) -> Finding:
    """Whether the paper's setting is as good as the best that is no staler, by the lead of that.

    "confirmed": nowhere more than NEAR behind, the interval included; "corrected": somewhere more,
    the interval included.
    """
    verdict: Verdict = "undecided"
    if all(lead.high is not None and lead.high <= 1 + NEAR for lead in leads.values()):
        verdict = "confirmed"
    if any(lead.low is not None and lead.low > 1 + NEAR for lead in leads.values()):
        verdict = "corrected"
    numbers: dict[str, str | int | float | None] = {}
    for name, lead in leads.items():
        numbers[f"{name}: fastest that is no staler"] = _called(best[name])
        numbers[f"{name}: times as fast as the paper's setting"] = lead.mean
    return Finding(
        f"Of the settings that make rollouts no staler, chunks of {PAPER_CHUNK} tokens and D "
        f"between 4 and 8 are the best, or within {NEAR:.0%} of it.",
        verdict,
        numbers,
    )


def _called(cell: Cell) -> str:
    return f"chunk {cell[0]:,}, D = {cell[1]}"


def _row(case: Case, cell: Cell) -> Row:
    seeds = case.chosen if cell in case.measured() else [case.screen]
    gain = case.gain(cell, seeds)
    chosen = {case.paper: "paper", case.no_staler: "no staler", case.fastest: "fastest"}
    fresh = case.gain(cell, case.fresh) if cell in chosen else None
    return {
        "scenario": case.name,
        "chunk_tokens": cell[0],
        "overcommit": cell[1],
        "seeds": len(seeds),
        "speedup": gain.mean,
        "speedup_low": gain.low,
        "speedup_high": gain.high,
        "staleness": case.staleness(cell, seeds),
        "as_fast_as_the_fastest": int(cell in case.as_fast()),
        "chosen": chosen.get(cell, ""),
        "fresh_speedup": fresh and fresh.mean,
        "fresh_low": fresh and fresh.low,
        "fresh_high": fresh and fresh.high,
    }


def _text(cases: Sequence[Case], readings: Mapping[str, Reading]) -> list[str]:
    first = cases[0]
    said = [
        f"A fixed chunk and D, fixed or by the reward's slope ({DYNAMIC}), were searched together "
        f"for OPPO on {len(cases)} scenarios: all "
        f"{len(first.cells)} pairs (of GSM8K, which has no reward model to stream to, D alone) "
        f"with one seed, the best of them with {len(first.chosen)}, and the chosen are told on "
        f"{len(first.fresh)} fresh seeds, so that the luck of being chosen does not count. "
        "Speed-ups are over TRL, 95 % intervals."
    ]
    for case in cases:
        reading, alike = readings[case.name], case.as_fast()
        chunks = sorted({chunk for chunk, _ in alike})
        over = [d for d in dict.fromkeys(d for _, d in case.cells) if d in {d for _, d in alike}]
        late = {cell: case.staleness(cell, case.fresh) for cell in (case.fastest, case.paper)}
        said.append(
            f"{case.name}: fastest is {_called(case.fastest)}, {_told(reading.fastest)} (mean "
            f"staleness {late[case.fastest]:.2f}); not told from it: chunks "
            f"{', '.join(map(str, chunks))} with D = {', '.join(over)}. The paper's setting, "
            f"{_called(case.paper)}: {_told(reading.paper)} ({late[case.paper]:.2f}); the fastest "
            f"is {_told(reading.lead)} as fast. Of those no staler than the paper's, "
            f"{_called(case.no_staler)} is the fastest: {_told(reading.no_staler)}, "
            f"{_told(reading.calm_lead)} as fast as the paper's."
        )
    edge = [case.name for case in cases if case.fastest[1] == str(FIXED[-1])]
    if edge:
        said.append(f"On {', '.join(edge)} that is the largest D that was tried.")
    said.append(
        "Staleness has no price here: what a larger D costs in learning is not simulated, so the "
        "fastest D is the one for which step time alone counts."
    )
    return said


def _told(mean: Mean) -> str:
    if mean.low is None or mean.high is None:
        return f"{mean.mean:.2f}x"
    return f"{mean.mean:.2f}x ({mean.low:.2f} to {mean.high:.2f})"


MARKS = (("paper", "o"), ("no_staler", "s"), ("fastest", "*"))
NAMES = {"paper": "the paper's", "no_staler": "fastest no staler than that", "fastest": "fastest"}


def _draw(cases: Sequence[Case]) -> Figure:
    figure, panels = chart.panels(len(cases), 3.1 * len(cases) + 0.6, 4.4, squeeze=False)
    for case, panel in zip(cases, panels[0], strict=True):
        if len({chunk for chunk, _ in case.cells}) > 1:
            _map(figure, panel, case)
        else:
            _curve(panel, case)
        panel.set_title(case.name, loc="left")
    panels[0][0].legend(loc="upper center", bbox_to_anchor=(0.5, -0.24), fontsize=7)
    chart.caption(
        figure,
        f"OPPO over TRL by chunk and D, fixed or by the reward's slope (4 to 8), {STEPS} steps; "
        "colours: one seed, the same lengths for all. A round costs 0.5 s, staleness nothing.",
        width=40 * len(cases),
    )
    return figure


def _map(figure: Figure, panel: Axes, case: Case) -> None:
    chunks = sorted({chunk for chunk, _ in case.cells})
    over = list(dict.fromkeys(d for _, d in case.cells))
    values = [[case.gain((c, d), [case.screen]).mean for c in chunks] for d in over]
    image = panel.imshow(np.array(values), origin="lower", aspect="auto", cmap="cividis")
    panel.set_xticks(range(len(chunks)), [f"{c:,}" for c in chunks], rotation=60, size=7)
    panel.set_yticks(range(len(over)), over, size=7)
    panel.set_xlabel("chunk (tokens)")
    panel.set_ylabel("D")
    for place, (name, mark) in enumerate(MARKS):
        chunk, d = getattr(case, name)
        panel.plot(chunks.index(chunk), over.index(d), mark, color=chart.COLOURS[place + 1],
                   markeredgecolor="white", markersize=9, label=NAMES[name])  # fmt: skip
    figure.colorbar(image, ax=panel, label="speed-up", location="top", shrink=0.9)


def _curve(panel: Axes, case: Case) -> None:
    over = [d for _, d in case.cells]
    panel.plot(
        range(len(over)),
        [case.gain(cell, [case.screen]).mean for cell in case.cells],
        color=canvas.GREY,
        label="one seed",
    )
    for cell in case.measured():
        mean = case.gain(cell, case.chosen)
        assert mean.low is not None
        assert mean.high is not None
        error = [[mean.mean - mean.low], [mean.high - mean.mean]]
        panel.errorbar(over.index(cell[1]), mean.mean, yerr=error, fmt=".", color=canvas.BLUE,
                       capsize=2)  # fmt: skip
    panel.set_xticks(range(len(over)), over, rotation=60, size=7)
    panel.set_xlabel("D (no chunks: nothing to stream)")
    panel.set_ylabel("speed-up")


EXPERIMENT = Experiment(
    "best_chunk_and_d", "Which chunk and which D together make a step fastest?", 1, run
)

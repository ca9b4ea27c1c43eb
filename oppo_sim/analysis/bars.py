"""What the paper finds, and what was asked of the held-out rows: in words, and whether it holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from oppo_sim.analysis.intervals import Mean
from oppo_sim.analysis.paper import Outcome, PaperRow

STEP_TIMES = ("T1a", "T1b", "A3", "A4")
WORST_PCT, MEDIAN_PCT, UTILISATION_PCT = 10.0, 5.0, 12.0
CHUNKS = (200, 1000)  # between which the best chunk should lie
BRACKETS = {"two nodes": ("T2", "T2b", "T2c"), "data parallel": ("V1", "V1b")}  # by mechanism
LATER = 0.05  # of the rollouts, two or more steps late, where "nearly all others" are one


class Bar(NamedTuple):
    """A condition with the numbers that decide it."""

    text: str
    holds: bool


def speedups(outcomes: Sequence[Outcome]) -> list[tuple[PaperRow, Mean]]:
    """The rows that are the speed-up of one schedule over another on one scenario."""
    return [
        (outcome.row, outcome.simulated)
        for outcome in outcomes
        if outcome.row.measure == "speedup" and outcome.simulated and not outcome.row.at
    ]


def orderings(outcomes: Sequence[Outcome]) -> list[Bar]:
    """What the paper finds beyond its numbers, per scenario. Speed-ups are means over seeds."""
    by_scenario: dict[str, dict[str, float]] = {}
    for row, simulated in speedups(outcomes):
        by_scenario.setdefault(row.scenario, {})[row.schedule] = simulated.mean
    for outcome in outcomes:
        if outcome.row.measure == "fixed_d" and outcome.simulated:
            fixed = f"D = {outcome.row.at}"
            by_scenario.setdefault(outcome.row.scenario, {})[fixed] = outcome.simulated.mean
    return [
        Bar(f"{scenario}: {text}", is_so(found))
        for scenario, found in by_scenario.items()
        for text, needed, is_so in _ORDERS
        if needed <= found.keys()
    ]


_ORDERS: tuple[tuple[str, set[str], Callable[[Mapping[str, float]], bool]], ...] = (
    ("inter > intra > 1", {"intra", "inter"}, lambda x: x["inter"] > x["intra"] > 1),
    ("oppo >= inter", {"inter", "oppo"}, lambda x: x["oppo"] >= x["inter"]),
    (
        "dynamic D is faster than D = 4 and D = 8 fixed",
        {"oppo", "D = 4", "D = 8"},
        lambda x: x["oppo"] > max(x["D = 4"], x["D = 8"]),
    ),
)


def bars(outcomes: Sequence[Outcome]) -> list[Bar]:
    """The conditions on rows that were not fitted; those whose rows are missing are left out."""
    rows = {o.row.id: o for o in outcomes if o.simulated is not None}
    found: list[Bar] = []
    for make in (_step_times, _utilisations, _band, _late, _chunk, _brackets):
        found += make(rows)
    return found


Rows = Mapping[str, Outcome]


def _step_times(rows: Rows) -> list[Bar]:
    errors = {name: abs(rows[name].error_pct or 0.0) for name in STEP_TIMES if name in rows}
    if len(errors) < len(STEP_TIMES):
        return []
    worst, middle = max(errors.values()), median(errors.values())
    names = ", ".join(errors)
    return [
        Bar(f"held-out step times ({names}): worst {worst:.1f} % of 10 %", worst <= WORST_PCT),
        Bar(f"held-out step times: median {middle:.1f} % of 5 %", middle <= MEDIAN_PCT),
    ]


def _utilisations(rows: Rows) -> list[Bar]:
    held = {
        name: abs(o.error_pct or 0.0)
        for name, o in rows.items()
        if o.row.role == "held_out" and o.row.measure == "utilisation"
    }
    if not held:
        return []
    worst = max(held.values())
    text = f"held-out utilisations ({', '.join(held)}): worst {worst:.1f} % of 12 %"
    return [Bar(text, worst <= UTILISATION_PCT)]


def _band(rows: Rows) -> list[Bar]:
    if "T1d" not in rows or rows["T1d"].is_covered is None:
        return []
    _, _, interval, *_ = rows["T1d"].cells()
    text = f"T1d: the paper's {rows['T1d'].row.paper} lies in the 80 % interval, {interval}"
    return [Bar(text, bool(rows["T1d"].is_covered))]


def _late(rows: Rows) -> list[Bar]:
    shares = [rows[f"Q1-{steps}"].simulated for steps in range(3) if f"Q1-{steps}" in rows]
    at_once, one, later = [share.mean for share in shares if share] or (None, None, None)
    if at_once is None or one is None or later is None:
        return []
    text = (
        f"Q1: most at once ({at_once:.0%}), nearly all others one step late ({one:.0%}; "
        f"later {later:.1%})"
    )
    return [Bar(text, at_once > 0.5 and later <= LATER)]


def _chunk(rows: Rows) -> list[Bar]:
    if "C1" not in rows or rows["C1"].simulated is None:
        return []
    best = rows["C1"].simulated.mean
    least, most = CHUNKS
    text = f"C1: the best chunk, {best:.0f}, lies between {least} and {most}"
    return [Bar(text, least <= best <= most)]


def _brackets(rows: Rows) -> list[Bar]:
    found = []
    for what, names in BRACKETS.items():
        if rows.keys() >= set(names):
            paper = rows[names[0]].row.paper or 0.0
            values = [o.simulated.mean for o in map(rows.__getitem__, names) if o.simulated]
            low, high = min(values), max(values)
            text = (
                f"{what}: {', '.join(names)} bracket the paper's {paper}: {low:.2f} to {high:.2f}"
            )
            found.append(Bar(text, low <= paper <= high))
    return found

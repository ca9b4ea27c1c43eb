"""What each row of the paper needs simulated, and its value in what was."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import hypot

from oppo_sim.analysis.compare import Comparison
from oppo_sim.analysis.fits import STAGES, Candidate, Fit
from oppo_sim.analysis.intervals import Mean, of_independent, of_ratios
from oppo_sim.analysis.paper import CONFIDENCE, Outcome, PaperRow, null_value
from oppo_sim.config import Scenario, load_scenario
from oppo_sim.policies import Schedule

Pair = tuple[Scenario, list[Schedule]]
CHUNKS = (50, 100, 200, 350, 500, 750, 1000, 2048)  # 2048 is the cap: the whole response
FIRST = STAGES[0]  # the stage that says what counts as utilised
SWEEP_SEEDS = 2
SWEEP_STEPS = 200


Changes = Mapping[str, Mapping[str, object]]  # by scenario, as `load_scenario` takes them


def pairs(rows: Sequence[PaperRow], changes: Changes) -> list[Pair]:
    """Each scenario with its baseline and the schedules that its rows name, in their order."""
    names: dict[str, dict[str, None]] = {}
    for row in rows:
        if row.measure == "chunk":
            continue
        own = names.setdefault(row.scenario, {})
        own.update(dict.fromkeys(filter(None, (row.baseline, row.schedule))))
        if row.measure == "speedup" and row.at:
            names.setdefault(row.at, {}).update({row.baseline: None, row.schedule: None})
    scenarios = [
        (load_scenario(name, changes.get(name)), schedules) for name, schedules in names.items()
    ]
    return [
        (
            scenario,
            [scenario.schedule(name) for name in schedules]
            + [
                _with_fixed_d(scenario, row)
                for row in rows
                if row.measure == "fixed_d" and row.scenario == scenario.name
            ],
        )
        for scenario, schedules in scenarios
    ]


def sweeps(rows: Sequence[PaperRow], changes: Changes) -> list[Pair]:
    """For each row about the fastest chunk, its schedule with every chunk of CHUNKS."""
    found = []
    for row in rows:
        if row.measure == "chunk":
            own = changes.get(row.scenario, {})
            schedules = [_with_chunk(row, chunk, own) for chunk in CHUNKS]
            found.append((load_scenario(row.scenario, own), schedules))
    return found


def runs(of_pairs: Sequence[Pair], seeds: Sequence[int]) -> int:
    """How many runs that takes."""
    return len(seeds) * sum(len(schedules) for _, schedules in of_pairs)


def outcomes(
    rows: Sequence[PaperRow],
    comparisons: Sequence[Comparison],
    swept: Sequence[Comparison],
    fits: Mapping[str, Fit],
) -> tuple[Outcome, ...]:
    """The rows next to their values; `swept` in the order of the rows that are about chunks."""
    found = {comparison.scenario: comparison for comparison in comparisons}
    chunks = iter(swept)
    made = []
    for row in rows:
        simulated: Mean | None
        if row.measure == "chunk":
            simulated = _fastest(next(chunks))
        elif row.measure == "utilisation":
            simulated = _utilisation(row, found, fits[FIRST].shown)
        else:
            simulated = _MEASURES[row.measure](row, found)
        if simulated is not None:
            for fit in fits.values():
                simulated = _widened(simulated, fit.spread(row.id))
        made.append(Outcome(row=row, simulated=simulated, null=null_value(row, rows)))
    return tuple(made)


def _widened(mean: Mean, spread: tuple[float, float] | None) -> Mean:
    """With what the accepted candidates add: their reach and that of the seeds, in quadrature."""
    if spread is None:
        return mean
    below, above = max(0.0, mean.mean - spread[0]), max(0.0, spread[1] - mean.mean)
    if mean.low is not None and mean.high is not None:
        below, above = hypot(below, mean.mean - mean.low), hypot(above, mean.high - mean.mean)
    return Mean(mean.mean, mean.mean - below, mean.mean + above)


Found = Mapping[str, Comparison]


def _speedup(row: PaperRow, found: Found) -> Mean:
    standing = found[row.scenario][row.schedule]
    if not row.at:
        return of_ratios(standing.speedups, CONFIDENCE)
    baseline = found[row.at][row.baseline]
    both = zip(baseline.metrics, standing.metrics, strict=True)
    return of_ratios([before.mean_step_s / after.mean_step_s for before, after in both], CONFIDENCE)


def _fixed_d(row: PaperRow, found: Found) -> Mean:
    return of_ratios(found[row.scenario][_fixed_name(row)].speedups, CONFIDENCE)


def _minutes(row: PaperRow, found: Found) -> Mean | None:
    """The ratio of minutes to a reward; None where a run does not get there."""
    target, comparison = float(row.at), found[row.scenario]
    before, after = (
        [run.reached(target) for run in comparison[name].rewards]
        for name in (row.baseline, row.schedule)
    )
    ratios = [b.minutes / a.minutes for b, a in zip(before, after, strict=True) if b and a]
    return of_ratios(ratios, CONFIDENCE) if len(ratios) == len(before) else None


def _utilisation(row: PaperRow, found: Found, counts: Candidate) -> Mean:
    shares = [
        spent.counted(counts.decode_counts, counts.wait_counts)
        for spent in found[row.scenario][row.schedule].spent
        if spent is not None
    ]
    return of_independent(shares, CONFIDENCE)


def _late(row: PaperRow, found: Found) -> Mean:
    at, shares = int(row.at), []
    for metrics in found[row.scenario][row.schedule].metrics:
        counted = metrics.staleness
        late = sum(n for steps, n in counted.items() if min(steps, 2) == at)
        shares.append(late / sum(counted.values()))
    return of_independent(shares, CONFIDENCE)


def _reward(row: PaperRow, found: Found) -> Mean | None:
    runs = found[row.scenario][row.schedule].rewards
    rewards = [reward for run in runs if (reward := run.around(int(row.at))) is not None]
    return of_independent(rewards, CONFIDENCE) if len(rewards) == len(runs) else None


def _fastest(sweep: Comparison) -> Mean:
    """The fastest chunk, and the smallest and largest of those not decided against it."""
    best = max(sweep.standings, key=lambda standing: standing.speedup.mean)
    level = [
        chunk
        for chunk, standing in zip(CHUNKS, sweep.standings, strict=True)
        if standing is best or best.over(standing).includes(1)
    ]
    fastest = CHUNKS[sweep.standings.index(best)]
    single = len(sweep.seeds) == 1
    return Mean(fastest, None if single else level[0], None if single else level[-1])


_MEASURES: dict[str, Callable[[PaperRow, Found], Mean | None]] = {
    "speedup": _speedup,
    "fixed_d": _fixed_d,
    "minutes": _minutes,
    "late": _late,
    "reward": _reward,
}


def _with_chunk(row: PaperRow, chunk: int, own: Mapping[str, object]) -> Schedule:
    scenario = load_scenario(row.scenario, {**own, "schedule.chunk": chunk})
    return replace(scenario.schedule(row.schedule), name=f"{row.schedule}-chunk-{chunk}")


def _with_fixed_d(scenario: Scenario, row: PaperRow) -> Schedule:
    schedule = scenario.schedule(row.schedule)
    return replace(schedule, name=_fixed_name(row), overcommit=int(row.at))


def _fixed_name(row: PaperRow) -> str:
    return f"{row.schedule}-d{row.at}"

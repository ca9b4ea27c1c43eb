"""What each row of the paper needs simulated, and its value in what was."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from oppo_sim.analysis.compare import Comparison
from oppo_sim.analysis.intervals import Mean, of_independent, of_ratios
from oppo_sim.analysis.paper import Outcome, PaperRow
from oppo_sim.config import Scenario, load_scenario
from oppo_sim.policies import Schedule

Pair = tuple[Scenario, list[Schedule]]
CHUNKS = (50, 100, 200, 350, 500, 750, 1000, 2048)  # 2048 is the cap: the whole response
SWEEP_SEEDS = 2
SWEEP_STEPS = 200


def pairs(rows: Sequence[PaperRow]) -> list[Pair]:
    """Each scenario with its baseline and the schedules that its rows name, in their order."""
    names: dict[str, dict[str, None]] = {}
    for row in rows:
        if row.measure == "chunk":
            continue
        own = names.setdefault(row.scenario, {})
        own.update(dict.fromkeys(filter(None, (row.baseline, row.schedule))))
        if row.measure == "speedup" and row.at:
            names.setdefault(row.at, {}).update({row.baseline: None, row.schedule: None})
    scenarios = [(load_scenario(name), schedules) for name, schedules in names.items()]
    return [(s, [s.schedule(name) for name in schedules]) for s, schedules in scenarios]


def sweeps(rows: Sequence[PaperRow]) -> list[Pair]:
    """For each row about the fastest chunk, its schedule with every chunk of CHUNKS."""
    found = []
    for row in rows:
        if row.measure == "chunk":
            schedules = [_with_chunk(row, chunk) for chunk in CHUNKS]
            found.append((load_scenario(row.scenario), schedules))
    return found


def runs(of_pairs: Sequence[Pair], seeds: Sequence[int]) -> int:
    """How many runs that takes."""
    return len(seeds) * sum(len(schedules) for _, schedules in of_pairs)


def outcomes(
    rows: Sequence[PaperRow], comparisons: Sequence[Comparison], swept: Sequence[Comparison]
) -> tuple[Outcome, ...]:
    """The rows next to their values; `swept` in the order of the rows that are about chunks."""
    found = {comparison.scenario: comparison for comparison in comparisons}
    chunks = iter(swept)
    return tuple(
        [
            Outcome(
                row=row,
                simulated=_fastest(next(chunks))
                if row.measure == "chunk"
                else _MEASURES[row.measure](row, found),
            )
            for row in rows
        ]
    )


Found = Mapping[str, Comparison]


def _speedup(row: PaperRow, found: Found) -> Mean:
    standing = found[row.scenario][row.schedule]
    if not row.at:
        return standing.speedup
    baseline = found[row.at][row.baseline]
    both = zip(baseline.metrics, standing.metrics, strict=True)
    return of_ratios([before.mean_step_s / after.mean_step_s for before, after in both])


def _minutes(row: PaperRow, found: Found) -> Mean | None:
    """The ratio of minutes to a reward; None where a run does not get there."""
    target, comparison = float(row.at), found[row.scenario]
    before, after = (
        [run.reached(target) for run in comparison[name].rewards]
        for name in (row.baseline, row.schedule)
    )
    ratios = [b.minutes / a.minutes for b, a in zip(before, after, strict=True) if b and a]
    return of_ratios(ratios) if len(ratios) == len(before) else None


def _busy(row: PaperRow, found: Found) -> Mean:
    standing = found[row.scenario][row.schedule]
    return of_independent([metrics.mean_utilisation for metrics in standing.metrics])


def _weighted(row: PaperRow, found: Found) -> Mean | None:
    shares = [share for share in found[row.scenario][row.schedule].weighted if share is not None]
    return of_independent(shares) if shares else None


def _late(row: PaperRow, found: Found) -> Mean:
    at, shares = int(row.at), []
    for metrics in found[row.scenario][row.schedule].metrics:
        counted = metrics.staleness
        late = sum(n for steps, n in counted.items() if min(steps, 2) == at)
        shares.append(late / sum(counted.values()))
    return of_independent(shares)


def _reward(row: PaperRow, found: Found) -> Mean | None:
    runs = found[row.scenario][row.schedule].rewards
    rewards = [reward for run in runs if (reward := run.around(int(row.at))) is not None]
    return of_independent(rewards) if len(rewards) == len(runs) else None


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
    "minutes": _minutes,
    "busy": _busy,
    "weighted": _weighted,
    "late": _late,
    "reward": _reward,
}


def _with_chunk(row: PaperRow, chunk: int) -> Schedule:
    scenario = load_scenario(row.scenario, {"schedule.chunk": chunk})
    return replace(scenario.schedule(row.schedule), name=f"{row.schedule}-chunk-{chunk}")

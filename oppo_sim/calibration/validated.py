"""Real runs against their simulations: what is simulated, what must be said, what is written."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any

from oppo_sim.analysis.fidelity import Fidelity, Pair
from oppo_sim.analysis.fidelity_grades import NOISY
from oppo_sim.analysis.fidelity_page import page
from oppo_sim.analysis.fidelity_trace import write_side_by_side
from oppo_sim.calibration.decisions import other_choices
from oppo_sim.calibration.realruns import DOCUMENT, Real
from oppo_sim.calibration.refined import factors, in_words, refined
from oppo_sim.calibration.rescaled import rescaled
from oppo_sim.calibration.twin import LENGTHS, again, drawing, replaying, twin
from oppo_sim.costs import ExtrapolationWarning, measurements
from oppo_sim.costs.identity import CROWDED, SLOWED, differences
from oppo_sim.costs.measurements import as_text
from oppo_sim.runs import first_difference, read_run, write_whole

SEEDS = 10  # of simulations with drawn lengths
Progress = Callable[[int, int], None]


def validated(
    runs: Sequence[Real], table: Path, simulated: Path, warmup: int, progress: Progress
) -> tuple[Fidelity, list[str]]:
    """Simulate every run with its lengths, into folders of `simulated`, and with drawn ones.

    With what was asked beyond the table. ValueError or ConfigError where the table or a schedule
    does not fit.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ExtrapolationWarning)
        found = _validated(runs, table, simulated, warmup, progress)
    left = [str(one.message) for one in caught if one.category is ExtrapolationWarning]
    what = [*dict.fromkeys(": ".join(text.split(": ")[1:3]) for text in left)]
    for one in caught:
        if one.category is not ExtrapolationWarning:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    notes = [f"outside of what was measured: {', '.join(what)}"] if what else []
    if found.warmup < warmup:
        notes.append(
            f"the first {found.warmup} of a run's steps do not count, not {warmup}: the shortest "
            f"has {found.warmup + 1}"
        )
    return found, notes


def _validated(
    runs: Sequence[Real], table: Path, simulated: Path, warmup: int, progress: Progress
) -> Fidelity:
    shortest = min(len(real.recorded.run.steps) for real in runs)
    warmup = min(warmup, shortest - 1)
    workload, law = drawing([real.recorded for real in runs])
    pairs, drawn = [], {}
    for done, real in enumerate(runs):
        of = real.recorded
        document = of.run.header.scenario
        out = simulated / f"{real.schedule}-{real.repeat}"
        for _ in again(twin(document, table, replaying(of)), of, out):
            pass
        pairs.append(Pair(real.schedule, real.repeat, of.run, read_run(out)))
        if real.schedule not in drawn:
            scenario = twin(document, table, workload)
            drawn[real.schedule] = [
                fmean([step.seconds for step in again(scenario, of, None, seed)][warmup:])
                for seed in range(SEEDS)
            ]
        progress(done + 1, len(runs))
    return Fidelity(pairs=pairs, warmup=warmup, drawn=drawn, law=law)


def check_refining(schedule: str, names: Sequence[str]) -> None:
    """`names`: of each run's schedule. ValueError where there is no run of it, or no other."""
    if schedule not in names or len(names) < 2:
        there = ", ".join(dict.fromkeys(names))
        raise ValueError(
            f"--refine {schedule}: needs a run of it and others to judge by; there are {there}"
        )


def refined_document(
    runs: Sequence[Real], table: Path, place: Path, isolated: Fidelity, schedule: str
) -> dict[str, Any]:
    """The table scaled by a schedule's first run, and both tables' errors on the other runs."""
    first = next(pair for pair in isolated.pairs if pair.schedule == schedule)
    used = (schedule, first.repeat)
    others = [real for real in runs if (real.schedule, real.repeat) != used]
    by = factors(first, isolated.warmup)
    file = place / "costs-refined.csv"
    write_whole(file, as_text(refined(table, by, f"{schedule}-{first.repeat}")))
    simulated = place / "simulated-refined"
    shutil.rmtree(simulated, ignore_errors=True)
    again, _ = validated(others, file, simulated, isolated.warmup, _quiet)
    rest = [pair for pair in isolated.pairs if pair is not first]
    before = Fidelity(pairs=rest, warmup=isolated.warmup)
    keys = ("median_abs_error", "worst_abs_error", "speedup_error", "tau", "pairs", "grade")
    return {
        "with": f"{schedule}-{first.repeat}",
        "factors": in_words(by),
        "runs": len(others),
        "isolated": {key: before.as_dict()[key] for key in keys},
        "refined": {key: again.as_dict()[key] for key in keys},
    }


def rescaled_table(runs: Sequence[Real], table: Path, place: Path) -> tuple[Path, dict[str, float]]:
    """The table scaled to the models of the runs, in a file, and its factors. ValueError where it
    is not known of which models one of them is."""
    about = runs[0].machine
    found, by = rescaled(table, str(about.get("models", "")), str(about.get("scoring", "")))
    file = place / "costs-rescaled.csv"
    write_whole(file, as_text(found))
    return file, by


def _quiet(done: int, of: int) -> None:
    """Nobody watches."""


def notes_of(runs: Sequence[Real], table: Path, fidelity: Fidelity) -> list[str]:
    """What must be known to read the numbers: another machine's table, noise, others at work."""
    measured = measurements(str(table.resolve()))
    said, probe_s = measured.provenance, measured.said_s("probe_s")
    notes: dict[str, None] = {}
    crowded = max([real.elsewhere for real in runs])
    probes = [probe_s] if probe_s else []
    for real in runs:
        if real.machine:
            notes |= dict.fromkeys(differences(said, real.machine))
        if real.probe_s < inf:
            probes.append(real.probe_s)
        if not (real.folder / LENGTHS).exists():
            notes[
                f"{real.schedule}-{real.repeat} has no lengths.csv: how long rollouts would have "
                "become that were never trained is guessed"
            ] = None
        run = real.recorded.run
        others = other_choices(real.recorded.schedule, run.header.scenario, run.steps)
        if others:
            notes[
                f"{real.schedule}-{real.repeat}: at steps {others} its policies, shown the records,"
                " choose something else than they chose: it was run by another version"
            ] = None
    if crowded > CROWDED:
        notes[
            f"others took up to {crowded:.0%} of the machine while a run was timed: what "
            "was measured is too slow by about as much; use it for nothing else"
        ] = None
    if probes and max(probes) > SLOWED * min(probes):
        notes[
            f"cores were up to {max(probes) / min(probes) - 1:.0%} slower at one time than at "
            "another (the same little work, in CPU seconds: heat, throttling, or another virtual "
            "machine beside this one): times differ by as much"
        ] = None
    notes |= dict.fromkeys(_of_other_settings(runs))
    if "grouped" not in said:
        notes[
            "the table does not say `grouped`: it is not of this version, and its calls of score "
            "and train are priced as one forward, however many rows they have"
        ] = None
    spread = fidelity.repeat_spread
    if spread is None:
        notes["one run of each schedule: how far repeats differ is not known"] = None
    elif spread > NOISY:
        notes[
            f"a step's repeats differ by {spread:.0%}, more than {NOISY:.0%}: these runs cannot "
            "tell how wrong the simulator is; measure again on a quiet machine"
        ] = None
    return [*notes]


def _of_other_settings(runs: Sequence[Real]) -> Iterator[str]:
    """Runs that differ from the first in more than their schedule, and in what."""
    first = runs[0]
    for real in runs[1:]:
        found = first_difference(_settings(first), _settings(real))
        if found is not None:
            key, ours, theirs = found
            yield (
                f"{real.schedule}-{real.repeat} is of other settings than {first.schedule}-"
                f"{first.repeat} ({key}: {theirs}, not {ours}): their speed-up is not the "
                "schedule's alone"
            )


def _settings(real: Real) -> dict[str, Any]:
    """What makes a run fast or slow, besides its schedule."""
    scenario = real.recorded.run.header.scenario
    found = {key: scenario.get(key) for key in ("workload", "cluster", "real")}
    found["seed"] = real.recorded.run.header.seed
    if isinstance(found["real"], dict):
        idle = ("schedules", "save_steps")
        found["real"] = {key: value for key, value in found["real"].items() if key not in idle}
    return found


def write(
    out: Path,
    runs: Sequence[Real],
    fidelity: Fidelity,
    document: Mapping[str, Any],
    simulated: Path,
    about: Mapping[str, str],
) -> None:
    """validation.json, steps.csv, page.html and trace.json."""
    write_whole(out / DOCUMENT, json.dumps(document, indent=2, allow_nan=False) + "\n")
    lines = [
        f"{step.schedule},{step.repeat},{step.step},{step.real_s:.6f},{step.sim_s:.6f}\n"
        for step in fidelity.steps
    ]
    write_whole(out / "steps.csv", "schedule,repeat,step,real_s,sim_s\n" + "".join(lines))
    head = {"scenario": about["scenario"], "runs measured on": document["measured_on"]}
    head |= {f"cost table: {key}": said for key, said in about.items() if key != "scenario"}
    write_whole(out / "page.html", page(fidelity, head, document["notes"]))
    firsts = {real.schedule: real for real in reversed(runs)}
    labelled = [
        (f"{name} {side}", folder)
        for name, real in reversed(firsts.items())
        for side, folder in (
            ("real", real.folder),
            ("simulated", simulated / f"{real.schedule}-{real.repeat}"),
        )
    ]
    write_side_by_side(labelled, out / "trace.json")

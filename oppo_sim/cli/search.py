"""`oppo search`: the best settings of a scenario, without trying them all."""

from __future__ import annotations

from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from oppo_sim.cli import console, notes
from oppo_sim.cli.sweep import or_temporary, remark

if TYPE_CHECKING:
    from oppo_sim.search.result import Result
    from oppo_sim.search.sought import Search
    from oppo_sim.search.study import Tried

DATABASE = "search.db"
NOTHING_FOUND = 1  # exit code


class Found(NamedTuple):
    """What a search came to."""

    tried: list[Tried]
    front: list[Result]  # settled, within the bounds; the first is the winner
    reference: Result  # the schedule as it stands, which is no trial
    runs: int  # simulated by this process
    all_runs: int
    wall_s: float

    def count(self, status: str) -> int:
        return sum(one.status == status for one in self.tried)


def search(
    file: Annotated[
        str,
        typer.Argument(
            metavar="SEARCH", help="A TOML file: scenario, axes, objectives, constraints, trials."
        ),
    ],
    trials: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Points to try; else the file's.")
    ] = None,
    seeds: console.PointSeeds = None,
    steps: console.Steps = None,
    sets: console.Sets = None,
    out: console.Out = None,
    resume: console.Resume = False,
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="A database that several processes share, such as sqlite:///search.db; "
            f"{DATABASE} in --out if not given.",
        ),
    ] = None,
    as_json: console.AsJson = False,
) -> int | None:
    """Look for the fastest point of a search file, or for the best compromises.

    The file is that of a sweep, with objectives (step_s, speedup, staleness, length_bias, kv_peak),
    constraints such as "staleness <= 0.5", and trials. A point gets one seed first, and all of them
    only if it is not clearly worse than another; the schedule as it stands has the same seeds, and
    is shown beside the best. The winner is a schedule file, winner.toml, for
    run, compare, train and validate. Needs the extra [search].
    Whoever runs the same file with the same --storage joins the search; with --out, --resume goes
    on where it was stopped, or killed. Exit code 1: no point meets the constraints.
    """
    from oppo_sim.config import value_of
    from oppo_sim.search.sought import load_search

    console.need_out(out, resume=resume)
    if storage == "":
        raise ValueError("--storage is empty: give a URL such as sqlite:///search.db, or no option")
    overrides = {path: value_of(text) for path, text in console.overrides(sets).items()}
    loaded = load_search(file, overrides=overrides, steps=steps, seeds=seeds, trials=trials)
    remark(loaded.space)
    if loaded.taken:
        notes.say([f"{file} leaves to their defaults: {', '.join(loaded.taken)}"])
    if out is not None:
        from oppo_sim.analysis import claims

        claims.claim(out, loaded.header(), resume=resume)
    with or_temporary(out) as place:
        found = _run(loaded, storage or f"sqlite:///{place / DATABASE}")
    schedule = _schedule(loaded, found.front[0]) if found.front else None
    if out is not None:
        _write(loaded, found, out, schedule)
    if as_json:
        console.emit(_document(loaded, found, out, schedule))
    else:
        _print(loaded, found, out, schedule)
    return None if found.front else NOTHING_FOUND


def _run(loaded: Search, url: str) -> Found:
    try:
        import optuna  # noqa: F401
    except ModuleNotFoundError:
        raise ValueError(
            "a search needs optuna, which is not installed: pip install 'oppo-testbed[search]'"
        ) from None
    from oppo_sim.search.database import database_error, open_study
    from oppo_sim.search.study import SETTLED, Searcher, runs_of, tried

    began, study = monotonic(), open_study(loaded, url)
    searcher = Searcher(loaded, study)
    name = loaded.space.problem.document["name"]
    try:
        with console.Meter(f"searching {name}", "trials", says_left=True) as meter:
            searcher.run(meter)
        every, runs = tried(study), runs_of(study)
    except Exception as error:
        said = database_error(error)
        if said is None:
            raise
        raise RuntimeError(f"{url}: {said}; --resume, or the same again, goes on") from None
    front = loaded.goals.front([one.result for one in every if one.status == SETTLED])
    assert searcher.reference is not None
    return Found(every, front, searcher.reference, searcher.ran, runs, monotonic() - began)


def _schedule(loaded: Search, best: Result) -> str:
    from oppo_sim.search.winner import schedule_file

    problem = loaded.space.problem
    about = f"Found by `oppo search` on {problem.document['name']}: {_worth(loaded, best)}."
    return schedule_file(problem, best.values, f"{Path(loaded.space.file).stem}-winner", about)


def _worth(loaded: Search, result: Result) -> str:
    from oppo_sim.search.goals import told

    return ", ".join(f"{name} {told(name, result)}" for name in loaded.goals.asked)


def _sets(loaded: Search, best: Result) -> list[str]:
    from oppo_sim.search.winner import sets

    return sets(loaded.space.problem, best.values)


def _write(loaded: Search, found: Found, out: Path, schedule: str | None) -> None:
    from oppo_sim.runs import write_whole
    from oppo_sim.search.table import write_tables
    from oppo_sim.search.winner import WINNER

    write_tables(out, loaded.space.axes, (one.result for one in found.tried))
    if schedule is not None:
        write_whole(out / WINNER, schedule)


def _document(
    loaded: Search, found: Found, out: Path | None, schedule: str | None
) -> dict[str, Any]:
    from oppo_sim.search.winner import WINNER

    best = found.front[0] if found.front else None
    return {
        "role": "simulated",
        "search": loaded.space.file,
        "scenario": loaded.space.problem.document["name"],
        "baseline": loaded.space.problem.baseline,
        "objectives": list(loaded.goals.objectives),
        "constraints": [str(bound) for bound in loaded.goals.bounds],
        "runs": found.runs,
        "all_runs": found.all_runs,
        "wall_s": round(found.wall_s, 3),
        "trials": [{**one.result.as_dict(), "status": one.status} for one in found.tried],
        "reference": {
            **found.reference.as_dict(),
            "keeps_constraints": found.reference.is_ok
            and loaded.goals.keeps_bounds(found.reference),
        },
        "best": best and best.as_dict(),
        "pareto": [result.as_dict() for result in found.front],
        "schedule": schedule,
        "set": _sets(loaded, best) if best else [],
        "winner": str(out / WINNER) if out is not None and best else None,
    }


def _print(loaded: Search, found: Found, out: Path | None, schedule: str | None) -> None:
    from oppo_sim.analysis.why import count
    from oppo_sim.cli.found import against, nearest, table
    from oppo_sim.search.study import FAILED, PRUNED
    from oppo_sim.search.winner import WINNER

    ok = [one.result for one in found.tried if one.result.is_ok]
    broke = sum(not loaded.goals.keeps_bounds(result) for result in ok)
    broken = f", {broke} broke a constraint" if broke else ""
    failed = f", {found.count(FAILED)} failed" if found.count(FAILED) else ""
    console.show(
        f"{loaded.space.problem.document['name']}: {count(len(found.tried), 'point')} tried, "
        f"{found.count(PRUNED)} given up after fewer seeds{broken}{failed}; "
        f"{count(found.runs, 'run')} simulated in {found.wall_s:.0f} s, common random numbers. "
        "Every number is simulated."
    )
    if schedule is None:
        console.show(
            "No point meets the constraints"
            + "".join(f" {bound}," for bound in loaded.goals.bounds).rstrip(",")
            + ": relax them, widen the axes, or try more (--trials)."
        )
        console.show(*nearest(loaded, ok), against(loaded, None, found.reference))
        return
    many = len(loaded.goals.objectives) > 1
    shown = found.front if many else _best(loaded, found)
    console.show(table(loaded, shown, found.reference))
    if many:
        console.show(
            f"No point that was tried beats one of these {len(shown)} in "
            f"{' and '.join(loaded.goals.objectives)}; the first is best in "
            f"{loaded.goals.objectives[0]}."
        )
    console.show(against(loaded, found.front[0], found.reference))
    console.show("The best, as a schedule:\n")
    print(schedule)  # as it is: it may be copied from here
    if out is not None:
        console.show(f"Written to {out / WINNER}; all points to results.parquet and .csv there.")


def _best(loaded: Search, found: Found) -> list[Result]:
    from oppo_sim.search.study import SETTLED
    from oppo_sim.search.summary import BEST

    kept = [
        one.result
        for one in found.tried
        if one.status == SETTLED and loaded.goals.keeps_bounds(one.result)
    ]
    return sorted(kept, key=lambda result: (loaded.goals.losses(result), result.point))[:BEST]

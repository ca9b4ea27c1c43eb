"""`oppo search`: what it finds, that it is stopped and joined without harm, and what it refuses."""

import json
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from math import nextafter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from optuna.distributions import IntDistribution
from optuna.storages import BaseStorage
from optuna.storages._rdb.models import TrialModel
from optuna.trial import Trial, TrialState

from oppo_sim.config import load_scenario, load_schedule
from oppo_sim.search import Problem, Seeds, database, evaluate, owners, study
from oppo_sim.search.sought import Search, load_search
from oppo_sim.search.space import Space, key
from oppo_sim.search.winner import schedule_file
from tests.cli.conftest import Oppo
from tests.search.conftest import Write

TINY = """
scenario = "tiny"
steps = 4
seeds = 3
trials = 12
objectives = ["step_s"]

[axes]
"schedule.chunk" = { low = 10, high = 100 }
"schedule.overcommit" = [0, 1, 2, 3, 4, 6, 8]
"""
CHUNKS = [32, 64, 128, 192, 256, 512, 1024, 2048]
OVER = [0, 2, 4, 8, 16, 32, 64, 112]
KEYS: dict[str, Any] = {"costs.round_s": 0.5}


def found(oppo: Oppo, *arguments: object) -> dict[str, Any]:
    done = oppo("search", *arguments, "--json")
    assert done.code == 0, done.err
    document: dict[str, Any] = json.loads(done.out)
    return document


@pytest.mark.parametrize("bound", ["", 'constraints = ["staleness <= 0.3"]'])
def test_it_finds_the_best_of_a_grid_in_a_third_of_its_runs(
    oppo: Oppo, written: Write, bound: str
) -> None:
    """8 x 8 points that are all tried elsewhere, on the same seeds; the bound puts it inside."""
    problem = Problem.of("bench", KEYS, schedule="oppo", baseline=None, steps=5)
    grid = [{"schedule.chunk": c, "schedule.overcommit": d} for c, d in product(CHUNKS, OVER)]
    every = [evaluate(problem, values, Seeds(least=2)) for values in grid]
    kept = [one for one in every if not bound or (one.staleness or 0.0) <= 0.3]
    best_s = min(one.step_s.mean for one in kept if one.step_s)
    file = written(
        'scenario = "bench"\nschedule = "oppo"\nbaseline = "none"\nsteps = 5\nseeds = 2\n'
        f"set = {{ costs.round_s = 0.5 }}\ntrials = 21\n{bound}\n[axes]\n"
        f'"schedule.chunk" = {CHUNKS}\n"schedule.overcommit" = {OVER}\n'
    )
    document = found(oppo, file)
    assert document["all_runs"] <= 2 * 64 / 3
    assert len(document["trials"]) == 21
    assert document["best"]["step_s"]["mean"] <= 1.02 * best_s


def test_the_winner_is_a_schedule_that_compare_finds_as_fast(oppo: Oppo, written: Write) -> None:
    file = written(TINY)
    out = file.parent / "out"
    document = found(oppo, file, "--out", out)
    best = document["best"]
    assert document["winner"] == str(out / "winner.toml")
    schedules = f"trl,{out / 'winner.toml'}"
    done = oppo(
        *("compare", "tiny", "--steps", 4, "--seeds", 3, "--json", "--schedules", schedules)
    )
    row = json.loads(done.out)["schedules"][1]
    assert row["step_s"]["mean"] == pytest.approx(best["step_s"]["mean"])
    assert row["speedup"]["mean"] == pytest.approx(best["speedup"]["mean"])
    assert oppo("run", "tiny", "--steps", 1, "--schedule", out / "winner.toml").code == 0
    rows = (out / "results.csv").read_text().splitlines()
    assert len(rows) == 1 + 12


@pytest.mark.parametrize(("most", "is_kept"), [(9, True), (0, False)])
def test_the_schedule_as_it_stands_is_shown_beside_the_winner(
    oppo: Oppo, written: Write, most: float, is_kept: bool
) -> None:
    """On the seeds that the points have: what `compare` finds. It is simulated once."""
    axes = TINY.index("[axes]")
    text = f'{TINY[:axes]}constraints = ["staleness <= {most}"]\n{TINY[axes:]}'
    file = written(text.replace("trials = 12", "trials = 3"))
    out = file.parent / "out"
    document = found(oppo, file, "--out", out)
    done = oppo("compare", "tiny", "--steps", 4, "--seeds", 3, "--json", "--schedules", "trl,oppo")
    row = json.loads(done.out)["schedules"][1]
    reference = document["reference"]
    assert reference["step_s"]["mean"] == pytest.approx(row["step_s"]["mean"])
    assert reference["speedup"]["mean"] == pytest.approx(row["speedup"]["mean"])
    assert reference["seeds"] == 3
    assert reference["keeps_constraints"] is is_kept
    assert len(document["trials"]) == 3
    again = found(oppo, file, "--out", out, "--resume")
    assert (again["runs"], again["reference"]) == (0, reference)
    shown = " ".join(oppo("search", file, "--out", out, "--resume").out.split())
    step_s = f"The schedule as it stands (oppo) has step_s {reference['step_s']['mean']:.3f} s, "
    assert step_s + ("and keeps" if is_kept else "but breaks staleness <= 0 (") in shown


def test_a_schedule_that_fails_as_it_stands_does_not_end_the_search(
    oppo: Oppo, written: Write
) -> None:
    """A pool of 6 is below the scenario's batch of 8; the points have a smaller one."""
    begun = TINY[: TINY.index("[axes]")].replace("trials = 12", "trials = 2")
    file = written(f'{begun}set = {{ "schedule.pool" = 6 }}\n[axes]\n"schedule.batch" = [6, 4]\n')
    assert "The schedule as it stands fails: tiny: schedule: pool = 6" in oppo("search", file).out
    assert found(oppo, file)["reference"]["keeps_constraints"] is False


@pytest.mark.parametrize(
    "values",
    [
        {"schedule": "trl"},
        {"schedule": "april", "schedule.overcommit": {"policy": "share", "of_batch": 0.5}},
        {"schedule": "oppo", "schedule.chunk": {"policy": "probe", "candidates": [20, 40]}},
        {"schedule": "intra", "schedule.chunk": "whole", "schedule.scoring": "batch"},
        {"schedule": "eager.toml", "schedule.overcommit.most": 7},
        {"schedule": "oppo", "schedule.overcommit": {"policy": "reward-slope", "over": 3}},
    ],
    ids=str,
)
def test_a_schedule_file_says_all_of_a_schedule(tmp_path: Path, values: dict[str, Any]) -> None:
    (tmp_path / "eager.toml").write_text('base = "oppo"\nchunk = 30\nflush = "rollout"\n')
    problem = replace(Problem.of("tiny"), schedules=tmp_path)
    _, schedule = problem.built("point", values)
    file = tmp_path / "winner.toml"
    file.write_text(schedule_file(problem, values, schedule.name, "by 'hand' and \"quoted\""))
    assert load_schedule(file, load_scenario("tiny")) == schedule


def test_what_is_no_choice_of_a_schedule_is_told_as_settings(oppo: Oppo, written: Write) -> None:
    text = TINY.replace("trials = 12", 'trials = 2\nset = { "cluster.kv_tokens" = 9000 }')
    document = found(oppo, written(text + '"costs.round_s" = [0.5]\n"schedule.batch" = [4]\n'))
    assert document["set"] == ["cluster.kv_tokens=9000", "costs.round_s=0.5", "schedule.batch=4"]
    assert "batch = 4" in document["schedule"]
    assert "round_s" not in tomllib.loads(document["schedule"])
    options = "--set 'cluster.kv_tokens=9000' --set 'costs.round_s=0.5' --set 'schedule.batch=4'"
    assert document["schedule"].splitlines()[-1].endswith(f": {options}")


def test_several_objectives_leave_a_front(oppo: Oppo, written: Write) -> None:
    text = TINY.replace('["step_s"]', '["speedup", "staleness"]').replace("= 12", "= 15")
    document = found(oppo, written(text))
    settled = [one for one in document["trials"] if one["status"] == "settled"]
    pairs = [(one["speedup"]["mean"], one["staleness"], one["point"]) for one in settled]
    best = [
        point
        for gain, late, point in sorted(pairs, reverse=True)
        if not any(g >= gain and s <= late and (g, s) != (gain, late) for g, s, _ in pairs)
    ]
    shown = [one["point"] for one in document["pareto"]]
    assert set(shown) <= set(best)
    assert len({(g, s) for g, s, p in pairs if p in best}) == len(shown)
    assert document["best"] == document["pareto"][0]


def test_an_unpromising_point_gets_fewer_seeds(oppo: Oppo, written: Write) -> None:
    document = found(oppo, written(TINY))
    seeds = {one["status"]: set() for one in document["trials"]}
    for one in document["trials"]:
        seeds[one["status"]].add(one["seeds"])
    assert seeds["settled"] == {3}
    assert seeds["pruned"] <= {1, 2}
    own = sum(one["seeds"] for one in document["trials"])
    assert document["all_runs"] == own + 3 + 3  # the one baseline, and the schedule as it stands


def test_a_small_space_is_tried_whole_and_no_more(oppo: Oppo, written: Write) -> None:
    text = TINY.replace("high = 100", "high = 13").replace("[0, 1, 2, 3, 4, 6, 8]", "[0, 4]")
    document = found(oppo, written(text))
    tried = {tuple(one["values"].values()) for one in document["trials"]}
    assert len(document["trials"]) == 8
    assert tried == set(product(range(10, 14), (0, 4)))


def command(file: Path, out: Path, *more: object) -> list[str]:
    rest = [str(each) for each in ("search", file, "--out", out, *more)]
    return [sys.executable, "-m", "oppo_sim.cli", *rest]


@pytest.mark.parametrize("after", [1, 6])
def test_a_search_that_was_killed_goes_on(oppo: Oppo, written: Write, after: int) -> None:
    """The same points as if it had not been: proposals depend on what is done, not on when."""
    file = written(TINY.replace("steps = 4", "steps = 200"))
    undisturbed, out = file.parent / "undisturbed", file.parent / "out"
    expected = [one["values"] for one in found(oppo, file, "--out", undisturbed)["trials"]]
    process = subprocess.Popen(
        command(file, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until = time.monotonic() + 60
    while (_done(out) < after or not _running(out)) and process.poll() is None:
        assert time.monotonic() < until
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert after <= _done(out) < 12
    assert _running(out) == 1  # in the middle of a point
    document = found(oppo, file, "--out", out, "--resume")
    assert [one["values"] for one in document["trials"]] == expected
    assert found(oppo, file, "--out", out, "--resume")["runs"] == 0
    more = found(oppo, file, "--out", out, "--resume", "--trials", 14)
    assert len(more["trials"]) == 14


def _done(out: Path) -> int:
    return _count(out, "state IN ('COMPLETE', 'PRUNED')")


def _running(out: Path) -> int:
    """Those that have begun to simulate: their parameters are there."""
    return _count(out, "state = 'RUNNING' AND 2 = (SELECT count(*) FROM trial_params "
                       "WHERE trial_params.trial_id = trials.trial_id)")  # fmt: skip


def _count(out: Path, where: str) -> int:
    try:
        with sqlite3.connect(f"file:{out / 'search.db'}?mode=ro", uri=True) as base:
            rows = base.execute(f"SELECT count(*) FROM trials WHERE {where}")
            return int(rows.fetchone()[0])
    except sqlite3.OperationalError:
        return 0


@pytest.mark.parametrize("owner", [None, "another-machine 0 1"])
def test_the_trial_of_a_process_that_died_is_begun_again(
    written: Write, monkeypatch: pytest.MonkeyPatch, owner: str | None
) -> None:
    """Before it signed; and on another machine, of which nothing but its heartbeat is known."""
    monkeypatch.setattr(owners, "ORPHAN_S", 0.0)
    monkeypatch.setattr(database, "GRACE_S", 3)
    search = load_search(written(TINY), trials=3)
    opened = database.open_study(search, url_of(search))
    lost = opened.ask({"schedule.chunk": IntDistribution(10, 100)})
    if owner is not None:
        lost.set_user_attr("owner", owner)
        opened._storage.record_heartbeat(lost._trial_id)  # type: ignore[attr-defined]
    study.Searcher(search, opened).run()
    assert opened.trials[0].state == TrialState.FAIL
    assert len(study.tried(opened)) == 3


def url_of(search: Search) -> str:
    return f"sqlite:///{search.space.problem.schedules / 'search.db'}"


def test_a_trial_that_waits_is_taken_by_one_process_only(
    written: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another asks for it between this one's look at its state and its write."""
    search = load_search(written(TINY))
    one, other = (database.open_study(search, url_of(search)) for _ in range(2))
    one.enqueue_trial({"schedule.chunk": 10})
    trial_id = one.trials[0]._trial_id
    taken: list[bool] = []

    def take(storage: BaseStorage) -> None:
        taken.append(storage.set_trial_state_values(trial_id, TrialState.RUNNING))

    others = threading.Thread(target=take, args=(other._storage,))
    look = TrialModel.find_or_raise_by_id

    def look_and_wait(*arguments: Any, **options: Any) -> TrialModel:
        found = look(*arguments, **options)
        if threading.current_thread() is not others and not others.is_alive():
            others.start()
            others.join(0.5)  # it ends in between, or has to wait for this one
        return found

    monkeypatch.setattr(TrialModel, "find_or_raise_by_id", look_and_wait)
    take(one._storage)
    others.join()
    assert sorted(taken) == [False, True]


def test_a_trial_that_was_given_up_meanwhile_is_left(
    written: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was held up so long that it seemed dead: it goes on with the next trial."""
    search = load_search(written(TINY), trials=3)
    opened = database.open_study(search, url_of(search))
    with_seeds = study.Searcher._with_seeds

    def held_up(self: Any, trial: Trial, *rest: Any) -> Any:
        if trial.number < 2:
            database.open_study(search, url_of(search)).tell(trial.number, state=TrialState.FAIL)
        return with_seeds(self, trial, *rest)

    monkeypatch.setattr(study.Searcher, "_with_seeds", held_up)
    study.Searcher(search, opened).run()
    assert [trial.state for trial in opened.trials[:2]] == [TrialState.FAIL] * 2
    assert len(study.tried(opened)) == 3


def test_processes_join_a_search_and_no_point_is_tried_twice(oppo: Oppo, written: Write) -> None:
    file = written(TINY.replace("steps = 4", "steps = 20"))
    url = f"sqlite:///{file.parent / 'shared.db'}"
    processes = [
        subprocess.Popen(
            command(file, file.parent / f"out{number}", "--storage", url, "--json"),
            stdout=subprocess.PIPE,
        )
        for number in range(2)
    ]
    documents = [json.loads(process.communicate()[0]) for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    last = found(oppo, file, "--storage", url)
    assert last["runs"] == 0
    values = [json.dumps(one["values"]) for one in last["trials"]]
    assert len(values) == len(set(values))
    assert 12 <= len(values) <= 13  # two may begin the last one at once
    assert min(document["runs"] for document in documents) > 0


def test_a_range_of_two_fractions_has_an_end(oppo: Oppo, written: Write) -> None:
    """1 and the next number above it: Optuna proposes them again and again."""
    text = TINY[: TINY.index("[axes]")] + "[axes]\ncosts.round_s = { low = 1.0, high = "
    document = found(oppo, written(f"{text}{nextafter(1.0, 2.0)!r} }}\n"))
    assert 1 <= len(document["trials"]) <= 2


def test_beginnings_that_fall_together_are_tried_once(oppo: Oppo, written: Write) -> None:
    """Of ten points that are spread over 6 x 6, two are often the same one."""
    text = TINY[: TINY.index("[axes]")].replace("seeds = 3", "seeds = 1").replace("= 12", "= 36")
    lists = {"schedule.chunk": [10, 20, 30, 40, 50, 60], "schedule.overcommit": [*range(6)]}
    axes = "".join(f'"{path}" = {values}\n' for path, values in lists.items())
    file = written(f"{text}[axes]\n{axes}")
    search = load_search(file)
    spread = Space(search.space.axes).beginnings(study.FIRST, search.seed)
    assert len({key(params) for params in spread}) < study.FIRST
    points = {key(one["values"]) for one in found(oppo, file)["trials"]}
    assert len(points) == 36


def test_no_point_within_the_bounds_is_no_winner(oppo: Oppo, written: Write) -> None:
    file = written(TINY.replace("trials = 12", 'trials = 3\nconstraints = ["speedup >= 100"]'))
    done = oppo("search", file, "--out", file.parent / "out")
    assert done.code == 1
    assert "No point meets the constraints speedup >= 100: relax" in done.out
    best = pd.read_csv(file.parent / "out" / "results.csv").nlargest(1, "speedup").iloc[0]
    nearest = f"speedup: the most seen was {best['speedup']:.3f} x (point {best['point']})."
    assert nearest in done.out
    assert "The schedule as it stands (oppo) has step_s" in done.out
    assert not (file.parent / "out" / "winner.toml").exists()


def test_a_search_whose_axes_begin_at_a_point_that_fails_has_a_folder(
    oppo: Oppo, written: Write
) -> None:
    """A pool of 8 is below a batch of 12."""
    axes = '[axes]\n"schedule.pool" = [8, 40]\n"schedule.batch" = [12, 8]\n'
    file = written(TINY[: TINY.index("[axes]")] + axes)
    assert found(oppo, file, "--out", file.parent / "out")["winner"]


def test_points_that_fail_are_told_and_are_not_the_best(oppo: Oppo, written: Write) -> None:
    """A pool below the batch is refused."""
    axes = '"schedule.pool" = [10, 40]\n"schedule.batch" = [8, 12]\n'
    document = found(oppo, written(TINY + axes))
    pairs = [
        (one["values"]["schedule.pool"] < one["values"]["schedule.batch"], one["status"])
        for one in document["trials"]
    ]
    assert (True, "failed") in pairs
    assert all(is_refused == (status == "failed") for is_refused, status in pairs)
    assert document["best"]["status"] == "ok"


def test_what_a_sweep_file_does_not_say_of_a_search_is_told(oppo: Oppo, written: Write) -> None:
    sweep = TINY.replace("trials = 12\n", "").replace('objectives = ["step_s"]\n', "")
    sweep = sweep.replace("high = 100", "high = 11").replace("[0, 1, 2, 3, 4, 6, 8]", "[0, 4]")
    done = oppo("search", written(sweep))
    assert 'leaves to their defaults: objectives = ["step_s"], trials = 50\n' in done.err
    done = oppo("search", written(sweep), "--trials", 2)
    assert 'leaves to their defaults: objectives = ["step_s"]\n' in done.err
    assert "their defaults" not in oppo("search", written(TINY), "--trials", 1).err


def test_two_winners_are_compared(oppo: Oppo, written: Write) -> None:
    """They have the names of their searches."""
    winners = []
    for name in ("one", "other"):
        file = written(TINY.replace("trials = 12", "trials = 2"))
        file = file.rename(file.with_name(f"{name}.toml"))
        winners.append(found(oppo, file, "--out", file.with_suffix(""))["winner"])
    schedules = ",".join(["trl", *winners])
    done = oppo("compare", "tiny", "--steps", 2, "--seeds", 1, "--json", "--schedules", schedules)
    names = [row["schedule"] for row in json.loads(done.out)["schedules"]]
    assert names == ["trl", "one-winner", "other-winner"]


MISTAKES = {
    ('["step_s"]', '["step"]'): "objectives: 'step': no such metric; did you mean 'step_s'?",
    ('["step_s"]', "[]"): "objectives = []: name one or more",
    ("trials = 12", "trials = 0"): "trials = 0",
    ("trials = 12", 'constraints = ["kv_peak < 5"]'): "METRIC <= NUMBER, or METRIC >= NUMBER",
    ("trials = 12", 'constraints = ["kv <= 5"]'): "'kv <= 5': no such metric",
    (
        "trials = 12",
        'constraints = ["staleness <= 0.1", "staleness >= 0.5"]',
    ): "'staleness <= 0.1' and 'staleness >= 0.5': no value keeps both; change one",
    (
        "trials = 12",
        'constraints = ["step_s <= 3", "step_s <= 4"]',
    ): "'step_s <= 3' and 'step_s <= 4': bound the same side",
    ("trials = 12", 'baseline = "none"\nconstraints = ["speedup >= 2"]'): "needs a baseline",
    ("high = 100 }", "high = 100, count = 4 }"): "only a grid has it; leave it out",
    ("trials = 12", 'method = "latin"'): "unknown key 'method'",
}


@pytest.mark.parametrize(("old", "new"), MISTAKES)
def test_mistakes(refused: Callable[..., str], written: Write, old: str, new: str) -> None:
    assert MISTAKES[old, new] in refused("search", written(TINY.replace(old, new)))


def test_another_search_is_refused_its_folder(
    oppo: Oppo, refused: Callable[..., str], written: Write
) -> None:
    file = written(TINY.replace("trials = 12", "trials = 1"))
    out = file.parent / "out"
    found(oppo, file, "--out", out)
    file.write_text(TINY.replace('["step_s"]', '["speedup"]'))
    said = refused("search", file, "--out", out, "--resume")
    assert "objectives is ['step_s'] there and ['speedup'] here" in said
    assert "cannot be used" in refused("search", file, "--storage", "nosuch://x")


def test_a_database_that_is_of_something_else(
    refused: Callable[..., str], written: Write, tmp_path: Path
) -> None:
    file, other = written(TINY), tmp_path / "other.db"
    with sqlite3.connect(other) as database:
        database.execute("create table studies (x int)")
    said = refused("search", file, "--storage", f"sqlite:///{other}")
    assert "cannot be used: (sqlite3.OperationalError) table studies has no column" in said
    assert "--storage is empty" in refused("search", file, "--storage", "")


def test_a_database_that_is_damaged_meanwhile(
    refused: Callable[..., str], written: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = tmp_path / "search.db"

    def damaging(*arguments: Any, **options: Any) -> Any:
        with sqlite3.connect(database) as opened:
            opened.execute("drop table if exists trials")
        return evaluate(*arguments, **options)

    monkeypatch.setattr(study, "evaluate", damaging)
    said = refused("search", written(TINY), "--storage", f"sqlite:///{database}")
    assert f"sqlite:///{database}: (sqlite3.OperationalError) no such table: trials;" in said

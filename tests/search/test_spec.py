"""Mistakes in a sweep file: one line that names the axis, before anything runs."""

from collections.abc import Callable
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import pytest

from oppo_sim.search.spec import load_sweep
from oppo_sim.search.tries import MOST_TRIED, spread
from oppo_sim.simulate import workload
from tests.search.conftest import Write

AXES = {
    "an unknown field": (
        '"schedule.chnk" = [1]',
        "axis schedule.chnk, value 1: tiny: schedule: unknown key 'chnk'; did you mean 'chunk'?",
    ),
    "an unknown table": ("nothing.here = [1]", "axis nothing.here, value 1: tiny: unknown key"),
    "no value": ('"schedule.chunk" = []', "axis schedule.chunk = []: has no values"),
    "no list": ('"schedule.chunk" = 5', "axis schedule.chunk = 5: must be a list of values"),
    "a value that is refused": (
        '"schedule.chunk" = [20, 0, 50]',
        "axis schedule.chunk, value 0: tiny: schedule.chunk = 0: must be at least 1 token",
    ),
    "of two axes, the second is to blame": (
        '"schedule.overcommit" = [1, 2]\n"schedule.chunk" = ["all"]',
        "axis schedule.chunk, value 'all': tiny: schedule.chunk = 'all'",
    ),
    "a batch that no memory holds": (
        '"schedule.batch" = [8, 50]',
        "axis schedule.batch, value 50: tiny: schedule.batch = 50: an actor lane has KV memory",
    ),
    "two axes on one path": (
        '"schedule.chunk" = [1]\nschedule.chunk = [2]',
        "axis schedule.chunk is there twice",
    ),
    "an axis in another": (
        '"schedule.overcommit" = [1]\n"schedule.overcommit.most" = [2]',
        "axis schedule.overcommit.most: is a part of axis schedule.overcommit",
    ),
    "a value twice": ('"schedule.chunk" = [1, 2, 1]', "axis schedule.chunk: has 1 twice"),
    "not a number": ("costs.round_s = [0.1, nan]", "axis costs.round_s = nan: must be a finite"),
    "infinite": ("costs.round_s = [inf]", "axis costs.round_s = inf: must be a finite"),
    "not a number, inside": (
        '"schedule.overcommit" = [{ policy = "share", of_batch = nan }]',
        "axis schedule.overcommit = nan: must be a finite",
    ),
    "a range without its number": (
        '"schedule.chunk" = { low = 1, high = 9 }',
        "axis schedule.chunk: count is missing: a grid needs to know how many",
    ),
    "a range of one value": (
        '"schedule.chunk" = { low = 1, high = 9, count = 1 }',
        "axis schedule.chunk: count = 1: must be a whole number, at least 2",
    ),
    "half a range": ('"schedule.chunk" = { low = 1, count = 3 }', "high is missing"),
    "a range upside down": (
        '"schedule.chunk" = { low = 9, high = 1, count = 3 }',
        "axis schedule.chunk: low = 9 and high = 1: low must be below high",
    ),
    "a logarithm of nothing": (
        '"schedule.overcommit" = { low = 0, high = 8, log = true, count = 3 }',
        "axis schedule.overcommit: low = 0: must be above 0",
    ),
    "a range with a slip": (
        '"schedule.chunk" = { low = 1, high = 9, cuont = 3 }',
        "axis schedule.chunk: unknown key 'cuont'; known: low, high, log, count",
    ),
    "a grid of millions": (
        '"schedule.chunk" = { low = 1, high = 9000, count = 2000 }\n'
        '"schedule.overcommit" = { low = 0, high = 9000, count = 1000 }',
        "2,000 of schedule.chunk x 1,000 of schedule.overcommit are 2,000,000 points",
    ),
    "no such schedule": (
        'schedule = ["oppo", "opo"]',
        "axis schedule, value 'opo': no schedule is called 'opo'; did you mean 'oppo'?",
    ),
    "no such file": ('schedule = ["none.toml"]', "none.toml: the schedule cannot be read"),
    "the name of a schedule": (
        '"schedule.name" = ["trl"]',
        "name schedules by the axis 'schedule'",
    ),
    "seeds": ("seed = [1, 2]", "axis seed: every point has the same; use seed and seeds"),
    "none": ("", "axes is empty: add one"),
    "a value twice, once as a fraction": ("costs.round_s = [1, 0.5, 1.0]", "has 1.0 twice"),
    "a grid of a thousand millions": (
        '"schedule.chunk" = { low = 1, high = 9, count = 1_000_000_000 }',
        "count = 1000000000: must be at most 1,000,000",
    ),
    "a schedule that is a number": (
        'schedule = ["oppo", 1]',
        "axis schedule, value 1: must be the name or the file of a schedule, in quotes",
    ),
    "a schedule that is a table": (
        'schedule = [{ base = "oppo" }]',
        "axis schedule, value {'base': 'oppo'}: must be the name",
    ),
    "a range of schedules": (
        "schedule = { low = 1, high = 3, count = 2 }",
        "axis schedule, value 1: must be the name",
    ),
}


@pytest.mark.parametrize(("axes", "said"), AXES.values(), ids=list(AXES))
def test_a_mistake_in_an_axis_names_it(
    refused: Callable[..., str], written: Write, axes: str, said: str
) -> None:
    file = written(f'scenario = "tiny"\nsteps = 2\nseeds = 1\n\n[axes]\n{axes}\n')
    line = refused("sweep", file, "--out", file.parent / "out")
    assert str(file) in line
    assert said in line
    assert not (file.parent / "out").exists()


KEYS = {
    "an unknown key": ('scenari = "tiny"', "unknown key 'scenari'; did you mean 'scenario'?"),
    "no such scenario": (
        'scenario = "teeny"',
        "no scenario is called 'teeny'; did you mean 'tiny'",
    ),
    "no such baseline": (
        'scenario = "tiny"\nbaseline = "tlr"',
        "baseline = 'tlr': no schedule is called 'tlr'",
    ),
    "set and an axis": (
        'scenario = "tiny"\nset = { "schedule.chunk" = 9 }',
        "axis schedule.chunk: set says it too",
    ),
    "steps, set too": (
        'scenario = "tiny"\nsteps = 3\nset = { steps = 9 }',
        "set steps = 9: steps = 3 of the file counts instead",
    ),
    "the seed, set too": (
        'scenario = "tiny"\nseed = 3\nset = { seed = 9 }',
        "set seed = 9: seed = 3 of the file counts instead",
    ),
    "a schedule, set too": (
        'scenario = "tiny"\nschedule = "oppo"\nset = { "schedule.name" = "trl" }',
        "set schedule.name = 'trl': schedule = 'oppo' counts instead",
    ),
    "a schedule by set": (
        'scenario = "tiny"\nset = { schedule = "trl" }',
        "set schedule = 'trl': is the table of its choices",
    ),
    "a bad set": ('scenario = "tiny"\nset = { "cluster.actors" = 0 }', "cluster.actors = 0"),
    "most without enough": ('scenario = "tiny"\nmax_seeds = 9', "max_seeds = 9: is for sweeps"),
    "enough with one seed": (
        'scenario = "tiny"\nenough = 0.1\nseeds = 1',
        "seeds = 1: enough needs at least 2",
    ),
    "fewer at most": (
        'scenario = "tiny"\nenough = 0.1\nseeds = 5\nmax_seeds = 4',
        "max_seeds = 4: must be at least seeds = 5",
    ),
    "random without a number": ('scenario = "tiny"\nmethod = "random"', "points is missing"),
    "a grid with one": ('scenario = "tiny"\npoints = 5', "points = 5: a grid has all there are"),
    "too many": (
        'scenario = "tiny"\nmethod = "latin"\npoints = 1_000_001',
        "points = 1000001: must be at most 1,000,000",
    ),
    "another method": ('scenario = "tiny"\nmethod = "sobol"', "method = 'sobol': must be one of"),
}


@pytest.mark.parametrize(("keys", "said"), KEYS.values(), ids=list(KEYS))
def test_a_mistake_in_the_file_names_the_key(
    refused: Callable[..., str], written: Write, keys: str, said: str
) -> None:
    file = written(f'{keys}\n\n[axes]\n"schedule.chunk" = [20, 50]\n')
    assert said in refused("sweep", file)


def test_settings_that_an_axis_outdoes_are_refused(
    refused: Callable[..., str], written: Write
) -> None:
    plain = 'scenario = "tiny"\n\n[axes]\n'
    file = written(f"{plain}steps = [2, 4]\n")
    assert "axis steps: steps = 3 says it too" in refused("sweep", file, "--steps", 3)
    file = written(f'{plain}"schedule.overcommit" = [2, 4]\n')
    said = refused("sweep", file, "--set", "schedule.overcommit.most=3")
    assert "axis schedule.overcommit: it replaces schedule.overcommit.most" in said
    file = written(f'{plain}schedule = ["trl", "oppo"]\n')
    said = refused("sweep", file, "--set", "schedule.name=intra")
    assert "set schedule.name = 'intra': the axis schedule counts instead" in said


@pytest.mark.parametrize("has_scenario_file", [False, True])
def test_paths_are_those_beside_the_file_wherever_it_is_run_from(
    written: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_scenario_file: bool
) -> None:
    """Of a shipped scenario beside the sweep file, of one's own beside the scenario's."""
    beside, elsewhere = tmp_path, tmp_path / "elsewhere"
    elsewhere.mkdir()
    name = "tiny"
    if has_scenario_file:
        beside, name = tmp_path / "own", "own/own.toml"
        beside.mkdir()
        shipped = files("oppo_sim").joinpath("data/scenarios/tiny.toml")
        (beside / "own.toml").write_text(shipped.read_text())
    (beside / "lengths.csv").write_text("response_tokens\n7\n7\n")
    (elsewhere / "lengths.csv").write_text("response_tokens\n300\n300\n")
    axes = '[axes]\n"workload.lengths" = [{ file = "lengths.csv" }]\n'
    file = written(f'scenario = "{name}"\nsteps = 2\nseeds = 1\n{axes}')
    monkeypatch.chdir(elsewhere)
    loaded = load_sweep(file)
    scenario, _ = loaded.problem.built("point", next(loaded.first()))
    assert workload(scenario, 0).responses(range(3)) == [7, 7, 7]
    plain = written(f'scenario = "{name}"\n[axes]\n"schedule.chunk" = [20, 50]\n')
    loaded = load_sweep(plain, overrides={"workload.lengths": "lengths.csv"})
    scenario, _ = loaded.problem.built("point", next(loaded.first()))
    assert workload(scenario, 0).responses(range(3)) == [7, 7, 7]


def test_more_runs_than_a_journal_has_places_for(
    refused: Callable[..., str], written: Write
) -> None:
    text = 'scenario = "tiny"\nseeds = 1_000_000\n[axes]\n"schedule.chunk" = '
    file = written(text + "{ low = 1, high = 100, count = 50 }\n")
    assert "50 points of up to 1,000,000 seeds are 50,000,000 runs" in refused("sweep", file)


def test_of_a_long_axis_as_many_values_are_tried_as_one_waits_for() -> None:
    tried = spread(range(10**6))
    assert (len(tried), tried[0], tried[-1]) == (MOST_TRIED, 0, 10**6 - 1)
    gaps = {after - before for before, after in pairwise(tried)}
    assert gaps == {1001}  # 999 gaps of 999,999
    assert spread(range(5)) == range(5)


def test_no_file_and_no_toml(refused: Callable[..., str], written: Write, tmp_path: Path) -> None:
    assert "none.toml: the sweep cannot be read" in refused("sweep", tmp_path / "none.toml")
    assert "is not valid TOML" in refused("sweep", written("scenario = "))

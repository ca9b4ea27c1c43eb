"""A sweep as a user runs it: its table, its failures, and going on with it."""

import errno
import json
import math
import re
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pandas as pd
import pytest

from oppo_sim.cli.sweep import remark
from oppo_sim.search import units
from oppo_sim.search.axes import RANGE, Axis
from oppo_sim.search.design import Design
from oppo_sim.search.journal import Journal
from oppo_sim.search.problem import Unit
from oppo_sim.search.sought import load_search
from oppo_sim.search.spec import SweepFile, load_sweep
from oppo_sim.search.sweep import Driver
from oppo_sim.search.table import COLUMNS
from tests.cli.conftest import Oppo
from tests.search.conftest import TINY, Write, tables


def comparison(oppo: Oppo, *arguments: object) -> dict[str, Any]:
    """What `oppo compare` says of the same."""
    done = oppo("compare", "tiny", "--steps", 3, "--seeds", 2, "--json", *arguments)
    rows = json.loads(done.out)["schedules"]
    found: dict[str, Any] = rows[1]
    return found


def test_a_row_is_what_compare_finds(oppo: Oppo, tiny: Path) -> None:
    out = tiny.parent / "out"
    assert oppo("sweep", tiny, "--out", out, "--jobs", 1).code == 0
    table = pd.read_parquet(out / "results.parquet")
    assert list(table["point"]) == list(range(6))
    row = table[(table["schedule.chunk"] == 20) & (table["schedule.overcommit"] == 4)].iloc[0]
    sets = ("--set", "schedule.chunk=20", "--set", "schedule.overcommit=4")
    found = comparison(oppo, "--schedules", "trl,oppo", *sets)
    for ours, theirs in (("", "mean"), ("_low", "low"), ("_high", "high")):
        assert row[f"speedup{ours}"] == pytest.approx(found["speedup"][theirs])
        assert row[f"step{ours}_s"] == pytest.approx(found["step_s"][theirs])
    metrics = found["metrics"]
    assert row["kv_peak_tokens"] == max(m["kv_peak_tokens"] for m in metrics)
    late = [1 - m["deferrals"].get("0", 0) / sum(m["deferrals"].values()) for m in metrics]
    assert row["deferred_share"] == pytest.approx(sum(late) / 2)
    bias = [m["trained_tokens_mean"] / m["admitted_tokens_mean"] - 1 for m in metrics]
    assert row["length_bias"] == pytest.approx(sum(bias) / 2)
    assert (row["status"], row["error"], row["seeds"]) == ("ok", "", 2)
    pd.testing.assert_frame_equal(
        table, pd.read_csv(out / "results.csv", keep_default_na=False), check_dtype=False
    )


def test_the_table_does_not_depend_on_jobs_or_on_what_was_there(oppo: Oppo, tiny: Path) -> None:
    out, again = tiny.parent / "out", tiny.parent / "again"
    assert oppo("sweep", tiny, "--out", out, "--jobs", 1).code == 0
    assert oppo("sweep", tiny, "--out", again, "--jobs", 2).code == 0
    assert tables(again) == tables(out)
    lines = (out / "journal.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) == 14  # two seeds of six points and of their one baseline
    (again / "journal.jsonl").write_bytes(b"".join(lines[9:4:-1]) + lines[0][:30])
    (again / "results.parquet").unlink()
    document = json.loads(oppo("sweep", tiny, "--out", again, "--resume", "--json").out)
    assert document["runs"] == 9
    assert tables(again) == tables(out)


def test_the_document_counts(oppo: Oppo, tiny: Path) -> None:
    done = oppo("sweep", tiny, "--json", "--jobs", 1)
    document = json.loads(done.out)
    assert (document["points"], document["ok"], document["failed"]) == (6, 6, 0)
    assert document["wall_s"] > 0
    best = [one["speedup"]["mean"] for one in document["best"]]
    assert best == sorted(best, reverse=True)
    assert len(best) == 6


BROKEN = """
scenario = "tiny"
steps = 1
seeds = 1
set = { "cluster.kv_tokens" = 50_000, "workload.max_response_tokens" = 20 }

[axes]
"schedule.pool" = { low = 38, high = 62, count = 25 }
"schedule.batch" = { low = 1, high = 40, count = 40 }
"""


def test_of_a_thousand_points_three_fail_and_the_others_do_not_mind(
    oppo: Oppo, written: Write
) -> None:
    """A pool below the batch is refused: 38 with 39 and 40, 39 with 40."""
    file = written(BROKEN)
    done = oppo("sweep", file, "--out", file.parent / "out", "--json", "--jobs", 2)
    document = json.loads(done.out)
    assert (document["points"], document["ok"], document["failed"]) == (1000, 997, 3)
    assert done.code == 1
    table = pd.read_parquet(file.parent / "out" / "results.parquet")
    assert list(table["point"]) == list(range(1000))
    failed = table[table["status"] == "failed"]
    pairs = [(38, 39), (38, 40), (39, 40)]
    assert list(zip(failed["schedule.pool"], failed["schedule.batch"], strict=True)) == pairs
    for (pool, batch), error in zip(pairs, failed["error"], strict=True):
        assert f"pool = {pool} is less than batch = {batch}: raise it" in error
    assert failed["step_s"].isna().all()
    assert (table[table["status"] == "ok"]["step_s"] > 0).all()
    assert oppo("sweep", file, "--out", file.parent / "out", "--resume").code == 1


def test_an_error_nobody_foresaw_fails_its_point_alone(
    oppo: Oppo, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = units.Built._simulated

    def broken(self: units.Built, unit: Unit, *rest: Any) -> Any:
        if unit.id == 2 and unit.seed == 1:
            raise ZeroDivisionError("division\nby zero")
        return real(self, unit, *rest)

    monkeypatch.setattr(units.Built, "_simulated", broken)
    done = oppo("sweep", tiny, "--json", "--jobs", 1)
    document = json.loads(done.out)
    assert done.code == 1
    assert [one["error"] for one in document["errors"]] == [
        "ZeroDivisionError: division by zero (seed 1)"
    ]
    assert document["errors"][0]["values"] == {"schedule.chunk": 20, "schedule.overcommit": 4}
    assert document["ok"] == 5


def test_seeds_are_added_where_the_interval_is_wide_and_only_there(
    oppo: Oppo, written: Write
) -> None:
    file = written(
        'scenario = "tiny"\nsteps = 5\nseeds = 2\nenough = 0.05\nmax_seeds = 12\n'
        '[axes]\nschedule = ["trl", "oppo"]\n'
    )
    assert oppo("sweep", file, "--out", file.parent / "out", "--jobs", 1).code == 0
    trl, own = pd.read_parquet(file.parent / "out" / "results.parquet").itertuples()
    assert (trl.speedup, trl.seeds) == (1.0, 2)  # against itself: no width at all
    width = (own.speedup_high - own.speedup_low) / 2 / own.speedup
    assert own.seeds == 12 or width <= 0.05
    assert own.seeds > 2
    kinds = [json.loads(line)["unit"] for line in (file.parent / "out/journal.jsonl").open()]
    assert kinds.count("baseline") == own.seeds
    assert kinds.count("point") == own.seeds + 2


def test_a_changed_file_is_refused_with_what_changed(
    oppo: Oppo, refused: Callable[..., str], tiny: Path
) -> None:
    out = tiny.parent / "out"
    assert oppo("sweep", tiny, "--out", out, "--jobs", 1).code == 0
    before = tables(out)
    assert "add --resume" in refused("sweep", tiny, "--out", out)
    changes = {
        ("[20, 50]", "[20, 60]"): "axes.schedule.chunk is [20, 50] there and [20, 60] here",
        ("steps = 3", "steps = 4"): "steps is 3 there and 4 here",
        ("[axes]", 'baseline = "inter"\n[axes]'): "baseline is 'trl' there and 'inter' here",
        ("[axes]", "set = { costs.round_s = 0.1 }\n[axes]"): "scenario.costs.round_s is 0.02 there",
        ("seeds = 2", "seeds = 1"): "seeds is 0 to 1 there and 0 here",
    }
    for (old, new), said in changes.items():
        tiny.write_text(TINY.replace(old, new))
        assert said in refused("sweep", tiny, "--out", out, "--resume")
    assert tables(out) == before
    tiny.write_text(TINY.replace("seeds = 2", "seeds = 3"))
    done = oppo("sweep", tiny, "--out", out, "--resume", "--json", "--jobs", 1)
    assert json.loads(done.out)["runs"] == 7  # one more seed of six points and the baseline


def test_a_table_that_finds_no_room_is_told_and_written_later(
    oppo: Oppo, refused: Callable[..., str], tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tiny.parent / "out"

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "Error writing bytes to file")

    with monkeypatch.context() as patch:
        patch.setattr("pyarrow.parquet.ParquetWriter.write_table", full)
        said = refused("sweep", tiny, "--out", out, "--jobs", 1)
    assert "cannot write" in said
    assert "results.parquet and results.csv: No space left on device" in said
    assert not list(out.glob(".*"))
    done = oppo("sweep", tiny, "--out", out, "--jobs", 1, "--resume", "--json")
    assert (done.code, json.loads(done.out)["runs"]) == (0, 0)


IMPOSSIBLE = {"schedule.pool": 8, "schedule.batch": 12}  # a pool below the batch


def test_a_first_point_that_fails_does_not_keep_the_others_from_a_folder(
    oppo: Oppo, written: Write
) -> None:
    axes = '[axes]\n"schedule.pool" = [8, 40]\n"schedule.batch" = [12, 8]\n'
    file = written(f'scenario = "tiny"\nsteps = 2\nseeds = 1\n{axes}')
    out = file.parent / "out"
    done = oppo("sweep", file, "--out", out, "--jobs", 1, "--json")
    document = json.loads(done.out)
    assert (done.code, document["ok"], document["failed"]) == (1, 3, 1)
    assert document["errors"][0]["values"] == IMPOSSIBLE
    assert json.loads((out / "header.json").read_text())["schedules"]["trl"]["name"] == "trl"
    assert oppo("sweep", file, "--out", out, "--jobs", 1, "--resume").code == 1


def test_a_sweep_of_nothing_but_failures_has_a_folder_and_a_document(
    oppo: Oppo, refused: Callable[..., str], written: Write
) -> None:
    lists = {"schedule.pool": (8, 40), "schedule.batch": (8, 12)}
    axes = [Axis(path=path, choices=choices) for path, choices in lists.items()]
    seed = next(s for s in count() if Design(axes, "random", 1, s)[0].values == IMPOSSIBLE)
    table = "".join(f'"{path}" = {list(choices)}\n' for path, choices in lists.items())
    text = f'scenario = "tiny"\nmethod = "random"\npoints = 1\ndraw_seed = {seed}\n[axes]\n{table}'
    out = written(text).parent / "out"
    done = oppo("sweep", written(text), "--out", out, "--jobs", 1, "--page", "--json")
    document = json.loads(done.out)
    assert (done.code, document["points"], document["ok"], document["failed"]) == (1, 1, 0, 1)
    assert document["best"] == []
    assert "all points failed" in refused("plot", out)


def test_a_run_that_finds_no_room_fails_its_point_until_there_is_some(
    oppo: Oppo, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tiny.parent / "out"
    arguments = ("sweep", tiny, "--out", out, "--jobs", 1, "--keep-runs", "--json")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("oppo_sim.runs.writer.write_lines", full)
        done = oppo(*arguments)
    assert (done.code, json.loads(done.out)["failed"]) == (1, 6)
    again = oppo(*arguments, "--resume")
    assert (again.code, json.loads(again.out)["failed"]) == (0, 0)


def test_names_with_brackets_are_shown_as_they_are(oppo: Oppo, written: Write) -> None:
    axes = '[axes]\nname = ["[bold]x", "[/y]"]\n'
    done = oppo("sweep", written(f'scenario = "tiny"\nsteps = 2\nseeds = 1\n{axes}'), "--jobs", 1)
    assert done.code == 0
    assert "[bold]x" in done.out
    assert "[/y]" in done.out


def test_runs_are_kept_on_request(oppo: Oppo, tiny: Path) -> None:
    out = tiny.parent / "out"
    assert oppo("sweep", tiny, "--out", out, "--keep-runs", "--jobs", 1).code == 0
    assert len(list((out / "runs").iterdir())) == 14
    steps = pd.read_json(out / "runs/point-5-seed-1/steps.jsonl", lines=True)
    own = oppo(
        *("run", "tiny", "--steps", 3, "--seed", 1, "--json", "--schedule", "oppo"),
        *("--set", "schedule.chunk=50", "--set", "schedule.overcommit=4"),
    )
    mean = json.loads(own.out)["mean_step_s"]
    assert math.isclose(steps["end_s"].iloc[-1] / 3, mean)


def test_axes_of_every_kind_have_columns(oppo: Oppo, written: Write) -> None:
    eager = 'base = "oppo"\nchunk = 30\n'
    file = written(
        'scenario = "tiny"\nsteps = 1\nseeds = 1\nbaseline = "none"\n[axes]\n'
        'schedule = ["oppo", "own.toml"]\n'
        '"schedule.overcommit" = [2, { policy = "reward-slope", most = 4 }]\n'
        '"costs.round_s" = [0, 0.5]\n"workload.lengths" = [{ exponential = 50 }]\n'
    )
    (file.parent / "own.toml").write_text(eager)
    assert oppo("sweep", file, "--out", file.parent / "out", "--jobs", 1).code == 0
    table = pd.read_parquet(file.parent / "out/results.parquet")
    assert len(table) == 8
    assert set(table["costs.round_s"]) == {0.0, 0.5}
    assert json.loads(table["schedule.overcommit"].iloc[-1]) == {
        "policy": "reward-slope",
        "most": 4,
    }
    assert set(table["schedule"]) == {"oppo", "own.toml"}
    assert table["speedup"].isna().all()
    assert table["step_low_s"].isna().all()  # one seed has no interval


FOLDED = """
scenario = "tiny"
steps = 3
seeds = 2

[axes]
schedule = ["response", "oppo"]
"schedule.chunk" = [20, 50, 70]
"schedule.overcommit" = [0, 4]
"""


def test_points_with_the_same_numbers_are_one_row(oppo: Oppo, written: Write) -> None:
    """Whole responses have no chunk size that could matter."""
    out = written(FOLDED).parent / "out"
    done = oppo("sweep", written(FOLDED), "--jobs", 1, "--out", out)
    rows = [line.split() for line in done.out.splitlines() if " response " in line]
    assert sorted(row[1:4] for row in rows) == [["response", "any", "0"], ["response", "any", "4"]]
    assert "points with the same numbers" in done.out
    assert len(pd.read_parquet(out / "results.parquet")) == 12
    document = json.loads(oppo("sweep", written(FOLDED), "--json").out)
    assert sum(one["points"] for one in document["best"]) == document["points"] == 12


def test_what_is_not_shown_and_what_is_written_is_named(oppo: Oppo, written: Write) -> None:
    file = written(TINY.replace("[20, 50]", "{ low = 20, high = 40, count = 6 }"))
    out = file.parent / "out"
    said = " ".join(oppo("sweep", file, "--jobs", 1, "--out", out).out.split())
    table = pd.read_parquet(out / "results.parquet")
    rows = len(table.drop_duplicates("step_s"))
    assert rows > 10
    assert "more points: in results.csv" in said
    names = said.rpartition(": ")[2].split(", ")
    assert {*names, "header.json", "journal.jsonl"} == {path.name for path in out.iterdir()}
    assert "--out DIR writes them all" in oppo("sweep", file, "--jobs", 1).out


def test_the_best_is_decided_against_the_next_on_the_seeds_of_both(oppo: Oppo, tiny: Path) -> None:
    out = tiny.parent / "out"
    done = oppo("sweep", tiny, "--seeds", 3, "--jobs", 1, "--out", out)
    table = pd.read_parquet(out / "results.parquet").nlargest(2, "speedup")
    first, second = table["point"]
    times: dict[int, list[float]] = {first: [], second: []}
    for line in (out / "journal.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["unit"] == "point" and row["id"] in times:
            times[row["id"]].append(row["found"]["step_s"])
    logs = [math.log(b / a) for a, b in zip(times[first], times[second], strict=True)]
    half = 4.302653 * stdev(logs) / math.sqrt(3)  # Student's t, two degrees of freedom
    lead = json.loads(oppo("sweep", tiny, "--seeds", 3, "--json", "--jobs", 1).out)["lead"]
    assert lead["mean"] == pytest.approx(math.exp(fmean(logs)))
    assert lead["low"] == pytest.approx(math.exp(fmean(logs) - half))
    said = " ".join(done.out.split())
    assert f"The best, point {first}, is {lead['mean']:.2f}x point {second}" in said
    verdict = "decided." if lead["low"] > 1 else "not decided; use more seeds or steps."
    assert f"the next: {verdict}" in said
    one = " ".join(oppo("sweep", tiny, "--seeds", 1, "--jobs", 1).out.split())
    assert "(1 seed, so no interval), the next: not decided" in one


def test_a_best_value_at_the_edge_is_named(oppo: Oppo, tiny: Path) -> None:
    """Of the two chunk sizes each is an edge, which says nothing."""
    said = " ".join(oppo("sweep", tiny, "--jobs", 1).out.split())
    assert "at the edge of what was tried: schedule.overcommit = 4 (the largest)." in said
    assert "what late rollouts cost in learning is not in it" in said


def test_what_is_odd_of_any_point_is_said_once(oppo: Oppo, written: Write) -> None:
    file = written(
        'scenario = "tiny"\nsteps = 1\nseeds = 1\nset = { "workload.max_response_tokens" = 40 }\n'
        '[axes]\n"schedule.chunk" = [20, 40, 50]\nschedule = ["trl", "oppo", "intra"]\n'
    )
    (said,) = oppo("sweep", file, "--jobs", 1).err.splitlines()
    assert "no chunk (40 tokens) is below workload.max_response_tokens = 40" in said
    assert said.endswith("(so at 4 of 9 points)")


def test_of_a_search_nobody_counts_points_that_it_has_not_yet(
    written: Write, recwarn: pytest.WarningsRecorder
) -> None:
    text = 'scenario = "tiny"\nset = { "workload.max_response_tokens" = 40 }\n'
    remark(load_search(written(f'{text}[axes]\n"schedule.chunk" = [20, 40, 50]\n')).space)
    (said,) = (str(one.message) for one in recwarn if "no chunk" in str(one.message))
    assert said.startswith("oppo: no chunk (50 tokens) is below")
    assert "points" not in said


@pytest.mark.parametrize("is_kept", [False, True])
def test_an_interrupt_says_how_far_it_came(
    oppo: Oppo, tiny: Path, monkeypatch: pytest.MonkeyPatch, is_kept: bool
) -> None:
    out = ("--out", tiny.parent / "out") if is_kept else ()
    real = units.Built._simulated

    def stopped(self: units.Built, unit: Unit, *rest: Any) -> Any:
        if (unit.kind, unit.id) == ("point", 3):
            raise KeyboardInterrupt
        return real(self, unit, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(units.Built, "_simulated", stopped)
        patch.setattr("oppo_sim.search.workers.MOST_IN_BATCH", 1)
        done = oppo("sweep", tiny, "--jobs", 1, *out)
    remedy = "the same command with --resume goes on" if is_kept else "--out DIR would keep them"
    assert done.code == 130
    assert done.err == f"oppo: interrupted after 8 of 14 runs; {remedy}\n"


def test_help_explains_every_key_and_every_column(oppo: Oppo) -> None:
    told = set(re.findall(r"\w+", oppo("sweep", "--help").out))
    assert told >= set(SweepFile.model_fields)
    bounds = {"speedup_low", "speedup_high"}  # "_low, _high"
    assert told >= {name for name, _ in COLUMNS} - bounds
    assert told >= set(RANGE)


class Idle:
    """Workers that know the answer."""

    def run(self, units: Iterable[Unit]) -> Iterator[tuple[Unit, dict[str, Any]]]:
        rest = ("staleness", "deferred_share", "length_bias", "busy", "wasted_share")
        for unit in units:
            yield unit, {"step_s": 1.5, "kv_peak_tokens": 7, **dict.fromkeys(rest, 0.25)}


def test_memory_does_not_grow_with_what_is_known_of_points(written: Write, tmp_path: Path) -> None:
    """A hundred bytes each, less than the text of one of its runs."""
    sweep = load_sweep(
        written(
            'scenario = "tiny"\nseeds = 2\n[axes]\n'
            '"schedule.chunk" = { low = 1, high = 100, count = 100 }\n'
            '"costs.round_s" = { low = 0.0, high = 1.0, count = 50 }\n'
        )
    )
    with Journal(tmp_path / "journal.jsonl", len(sweep.design()), sweep.seeds) as journal:
        tracemalloc.start()
        try:
            driver = Driver(sweep, journal)
            driver.run(Idle())
            held, _ = tracemalloc.get_traced_memory()
            assert sum(1 for _ in driver.results()) == 5000
        finally:
            tracemalloc.stop()
    assert held / 5000 < 100

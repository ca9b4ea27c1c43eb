"""A run folder becomes a trace that a trace viewer reads as it was meant.

The trace processor of ui.perfetto.dev is a binary that no package ships: its Python package fetches
it at run time, which an offline machine cannot. So the traces are loaded here by a small reader of
its own, which follows the rules by which that processor reads JSON traces (events ordered by time,
then by place in the file; a stack of open slices per thread; a flow binds to the innermost slice
that is open on its thread) and refuses what breaks them. What it read goes into SQLite, and is
asked about in SQL. The last test asks the real processor the same, where OPPO_TRACE_PROCESSOR names
its binary and `perfetto` is installed; it has never run on the machine that this was written on.
"""

import json
import os
import sqlite3
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from oppo_sim.analysis.trace import write_trace
from oppo_sim.cli import main
from oppo_sim.records import Span
from oppo_sim.runs import RunError, read_run
from tests.analysis.by_hand import SPANS, by_hand

TABLES = """
create table process (pid integer primary key, name text not null);
create table thread (tid integer primary key, pid integer not null, name text not null);
create table slice (id integer primary key, ts, dur, pid, tid, name, cat, depth, args);
create table counter (ts, pid, name, unit, value real);
create table flow (id integer primary key, slice_out, slice_in);
create view on_thread as select s.*, p.name as device, t.name as lane
  from slice s join process p using (pid) join thread t using (tid);
"""


def load(file: Path) -> sqlite3.Connection:
    """The tables of a JSON trace; AssertionError where it breaks the rules."""
    document = json.loads(file.read_text())
    db = sqlite3.connect(":memory:")
    db.executescript(TABLES)
    events = document["traceEvents"]
    for event in events:
        if event["ph"] == "M" and event["name"].endswith("_name"):
            table = event["name"].removesuffix("_name")
            name, ids = event["args"]["name"], (event["tid"], event["pid"])
            if table == "process":
                db.execute("insert into process values (?, ?)", (event["pid"], name))
            else:
                db.execute("insert into thread values (?, ?, ?)", (*ids, name))
    open_slices: dict[int, list[tuple[int, int]]] = {}  # by thread: end, id
    begun: dict[int, int] = {}
    for event in sorted((e for e in events if e["ph"] != "M"), key=lambda event: event["ts"]):
        assert type(event["ts"]) is int
        _read(db, event, open_slices, begun)
    assert not begun, "flows that never end"
    named = db.execute("select count(*) from on_thread").fetchone()
    assert named == db.execute("select count(*) from slice").fetchone()
    return db


def _read(
    db: sqlite3.Connection,
    event: dict[str, Any],
    open_slices: dict[int, list[tuple[int, int]]],
    begun: dict[int, int],
) -> None:
    ts, kind = event["ts"], event["ph"]
    if kind == "C":
        for unit, value in event["args"].items():
            assert type(value) in (int, float)
            row = (ts, event["pid"], event["name"], unit, value)
            db.execute("insert into counter values (?, ?, ?, ?, ?)", row)
        return
    stack = open_slices.setdefault(event["tid"], [])
    while stack and stack[-1][0] <= ts and kind in "Xi":
        stack.pop()
    if kind in "Xi":
        end = ts + event.get("dur", 0)
        assert end >= ts
        assert not stack or end <= stack[-1][0], f"sticks out of the slice around it: {event}"
        row = (ts, end - ts, event["pid"], event["tid"], event["name"], event["cat"], len(stack))
        row_id = db.execute(
            "insert into slice values (null, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*row, json.dumps(event["args"])),
        ).lastrowid
        assert row_id is not None
        stack.append((end, row_id))
    else:
        assert stack, f"no slice around {event}"
        assert stack[-1][0] >= ts, f"no slice around {event}"
        if kind == "s":
            assert begun.setdefault(event["id"], stack[-1][1]) == stack[-1][1]
        else:
            assert (kind, event["bp"]) == ("f", "e")
            ends = (event["id"], begun.pop(event["id"]), stack[-1][1])
            db.execute("insert into flow values (?, ?, ?)", ends)


@pytest.fixture
def hand(tmp_path: Path) -> sqlite3.Connection:
    write_trace(by_hand(tmp_path), tmp_path / "trace.json")
    return load(tmp_path / "trace.json")


def test_a_process_per_device_and_a_thread_per_lane_in_their_order(
    hand: sqlite3.Connection,
) -> None:
    assert hand.execute(
        "select p.name, t.name from process p left join thread t using (pid) order by pid, tid"
    ).fetchall() == [
        ("PPO steps, simulated: by-hand, oppo, seed 3", "steps"),
        ("PPO steps, simulated: by-hand, oppo, seed 3", "batches"),
        ("gpu2", "actor0"),
        ("gpu2", "trainer"),
        ("gpu10", "actor1"),
        ("gpu10", "trainer"),
        ("gpu11", "scorer0"),
    ]
    assert not hand.execute(
        "select tid from thread where tid in (select pid from process)"
    ).fetchall()


def test_slices_are_where_the_spans_were(hand: sqlite3.Connection) -> None:
    assert hand.execute(
        "select device, lane, name, ts, dur from on_thread where cat not in "
        "('step', 'stage', 'milestone') order by pid, ts"
    ).fetchall() == [
        ("gpu2", "actor0", "decode", 0, 2_000_000),
        ("gpu2", "actor0", "decode", 2_000_000, 2_000_000),
        ("gpu2", "trainer", "train", 7_000_000, 2_000_000),
        ("gpu2", "actor0", "sync", 9_000_000, 1_000_000),
        ("gpu10", "actor1", "decode", 0, 3_000_000),
        ("gpu10", "trainer", "train", 7_000_000, 2_000_000),
        ("gpu10", "actor1", "sync", 9_000_000, 1_000_000),
        ("gpu11", "scorer0", "score", 2_500_000, 1_000_000),
        ("gpu11", "scorer0", "score", 4_000_000, 2_000_000),
    ]
    (args,) = hand.execute("select args from slice where cat = 'score' order by ts").fetchone()
    assert json.loads(args) == {"step": 0, "rollouts": 2, "tokens": 20}


def test_arrows_go_from_what_was_decoded_to_what_reads_it(hand: sqlite3.Connection) -> None:
    assert hand.execute(
        "select o.lane, o.ts, i.lane, i.ts from flow f join on_thread o on o.id = f.slice_out "
        "join on_thread i on i.id = f.slice_in order by f.id"
    ).fetchall() == [
        ("actor0", 0, "scorer0", 2_500_000),
        ("actor0", 2_000_000, "scorer0", 4_000_000),
        ("actor1", 0, "scorer0", 4_000_000),
    ]


def test_steps_hold_their_stages_and_batches_their_milestones(hand: sqlite3.Connection) -> None:
    """As `tests.steps.step` makes them: 4 generation, 2 scoring, 1 waiting, 2 training, 1 sync."""
    rows = hand.execute(
        "select depth, name, ts / 1e6, dur / 1e6 from on_thread where lane = 'steps' "
        "and ts < 10000000 order by id"
    ).fetchall()
    assert rows == [
        (0, "step 0", 0, 10),
        (1, "generation", 0, 4),
        (1, "scoring", 4, 2),
        (1, "waiting", 6, 1),
        (1, "training", 7, 2),
        (1, "sync", 9, 1),
    ]
    assert hand.execute(
        "select name, ts / 1e6, json_extract(args, '$.step') from on_thread "
        "where lane = 'batches' order by ts"
    ).fetchall() == [
        ("taken", 4, 0), ("scored", 6, 0), ("trained", 9, 0),
        ("taken", 14, 1), ("scored", 16, 1), ("trained", 19, 1),
    ]  # fmt: skip


def test_counters_hold_from_the_start_of_a_step(hand: sqlite3.Connection) -> None:
    """Admitted 3 and then 6, of which 2 were trained before the second step."""
    rows = hand.execute("select name, unit, ts, value from counter order by ts, rowid").fetchall()
    assert rows == [
        ("in flight", "rollouts", 0, 3),
        ("D (overcommit)", "rollouts", 0, 1),
        ("chunk (0: whole responses)", "tokens", 0, 256),
        ("KV peak of a lane", "tokens", 0, 100),
        ("in flight", "rollouts", 10_000_000, 4),
        ("D (overcommit)", "rollouts", 10_000_000, 2),
        ("chunk (0: whole responses)", "tokens", 10_000_000, 0),
        ("KV peak of a lane", "tokens", 10_000_000, 100),
    ]


def test_a_score_that_reads_nobody_is_refused(tmp_path: Path) -> None:
    lost = SPANS[2]._replace(reads=(("actor9", 2.0),))
    with pytest.raises(RunError, match="reads lane actor9, which never worked"):
        write_trace(by_hand(tmp_path, [*SPANS, lost]), tmp_path / "trace.json")
    assert not list(tmp_path.glob("*trace*"))


def test_the_reader_refuses_what_does_not_nest(tmp_path: Path) -> None:
    crossing = SPANS[0]._replace(start_s=1.0, end_s=3.0)
    write_trace(by_hand(tmp_path, [*SPANS, crossing]), tmp_path / "trace.json")
    with pytest.raises(AssertionError, match="sticks out"):
        load(tmp_path / "trace.json")


# real runs

RUNS = {
    "trl": ("--schedule", "trl"),
    "oppo": ("--schedule", "oppo"),
    "inter": ("--schedule", "inter"),
    "response": ("--schedule", "response"),
    "areal": ("--schedule", "areal", "--set", "cluster.devices=4", "--set",
              "cluster.trainer_devices=1", "--set", "costs.sync_call_s=0.5"),
    "colocated": ("--schedule", "oppo", "--set", "cluster.placement=colocated", "--set",
                  "cluster.devices=2", "--set", "cluster.contention.decode_stretch=1.3", "--set",
                  "cluster.contention.score_stretch=1.2"),
    "wide": ("--schedule", "intra", "--set", "cluster.devices=5", "--set",
             "cluster.devices_per_actor=2", "--set", "costs.sync_call_s=0.5"),
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Run folders of 12 steps with their traces, each made once."""
    root = tmp_path_factory.mktemp("runs")

    def make(name: str) -> Path:
        folder = root / name
        if not folder.exists():
            arguments = ["run", "tiny", *RUNS[name], "--steps", "12", "--spans"]
            assert main([*arguments, "--out", str(folder)]) == 0
            write_trace(folder, folder / "trace.json")
        return folder

    return make


@pytest.fixture(params=RUNS)
def folder(request: pytest.FixtureRequest, made: Callable[[str], Path]) -> Path:
    return made(str(request.param))


def test_slices_last_as_long_as_the_spans(folder: Path) -> None:
    """To the microsecond that each end is rounded to."""
    db, spans = load(folder / "trace.json"), read_run(folder).spans
    for kind in ("decode", "score", "train", "sync"):
        of_kind = [span for span in spans if span.kind == kind]
        seconds = sum((span.end_s - span.start_s) * len(span.devices) for span in of_kind)
        count, total = db.execute(
            "select count(*), total(dur) / 1e6 from slice where cat = ?", (kind,)
        ).fetchone()
        assert count == sum(len(span.devices) for span in of_kind)
        assert total == pytest.approx(seconds, abs=1e-6 * max(1, count))


def test_devices_are_busy_as_long_as_the_records_say(folder: Path) -> None:
    """The union of a device's slices; a decode span is cut at a sync, which leaves a lane busy."""
    db = load(folder / "trace.json")
    busy_s: dict[str, float] = {}
    for record in read_run(folder).steps:
        for device, seconds in record.busy_s.items():
            busy_s[device] = busy_s.get(device, 0.0) + seconds
    assert busy_s.keys() == {
        name for (name,) in db.execute("select name from process where pid > 1")
    }
    for device, seconds in busy_s.items():
        rows = db.execute(
            "select ts, ts + dur from on_thread where device = ? and (cat <> 'sync' "
            "or json_extract(args, '$.rollouts') > 0) order by ts",
            (device,),
        ).fetchall()
        assert union(rows) / 1e6 == pytest.approx(seconds, abs=1e-6 * (len(rows) + 1))


def union(intervals: list[tuple[int, int]]) -> int:
    total = reached = 0
    for start, end in intervals:
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def test_lanes_do_one_thing_at_a_time(folder: Path) -> None:
    db = load(folder / "trace.json")
    for (tid,) in db.execute("select tid from thread where pid > 1").fetchall():
        rows = db.execute("select ts, ts + dur from slice where tid = ? order by id", (tid,))
        assert all(one[1] <= other[0] for one, other in pairwise(rows))


def test_every_score_reads_something_that_began_before_it(folder: Path) -> None:
    db = load(folder / "trace.json")
    assert db.execute("select count(*) from flow").fetchone()[0] >= 12
    assert db.execute(
        "select distinct o.cat, i.cat, o.ts < i.ts from flow f "
        "join slice o on o.id = f.slice_out join slice i on i.id = f.slice_in"
    ).fetchall() == [("decode", "score", 1)]
    assert not db.execute(
        "select id from on_thread where cat = 'score' and device = "
        "(select min(device) from on_thread where cat = 'score') "
        "and id not in (select slice_in from flow)"
    ).fetchall()


def test_rollouts_in_flight_are_those_seen_those_admitted_and_those_in_training(
    folder: Path,
) -> None:
    """Against what the policies saw, from which a batch that was taken (of 8) has gone."""
    db, before = load(folder / "trace.json"), 0
    values = db.execute("select value from counter where name = 'in flight' order by ts").fetchall()
    taken = set()
    for record, (value,) in zip(read_run(folder).steps, values, strict=True):
        seen = record.carried + record.finished + record.queued
        taken.add(value - seen - (record.admitted - before))
        before = record.admitted
    assert taken <= ({0, 8, 16} if folder.name == "areal" else {0})


def test_stages_fill_their_steps(folder: Path) -> None:
    db = load(folder / "trace.json")
    assert db.execute(
        "select depth, sum(dur), count(distinct json_extract(args, '$.step')) "
        "from on_thread where lane = 'steps' group by depth"
    ).fetchall() == [(depth, round(read_run(folder).steps[-1].end_s * 1e6), 12) for depth in (0, 1)]


def test_the_same_run_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    write_trace(folder, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (folder / "trace.json").read_bytes()


def test_a_long_run_is_not_held_in_memory(tmp_path: Path) -> None:
    def decoding() -> Iterator[Span]:
        for number in range(8_000):
            yield SPANS[0]._replace(start_s=float(number), end_s=number + 1.0)

    by_hand(tmp_path, [*decoding()])
    tracemalloc.start()
    write_trace(tmp_path, tmp_path / "trace.json")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (tmp_path / "trace.json").stat().st_size > 1_000_000
    assert peak < 300_000


@pytest.mark.skipif(
    "OPPO_TRACE_PROCESSOR" not in os.environ, reason="names no trace_processor_shell"
)
def test_the_trace_processor_of_perfetto_reads_the_same(folder: Path) -> None:
    api = pytest.importorskip("perfetto.trace_processor")
    config = api.TraceProcessorConfig(bin_path=os.environ["OPPO_TRACE_PROCESSOR"])
    db = load(folder / "trace.json")
    with api.TraceProcessor(trace=str(folder / "trace.json"), config=config) as processor:
        for table in ("slice", "flow", "counter"):
            (row,) = processor.query(f"select count(*) as n from {table}")
            assert (row.n,) == db.execute(f"select count(*) from {table}").fetchone()
        rows = processor.query(
            "select category as cat, sum(dur) as ns from slice group by 1 order by 1"
        )
        assert [(row.cat, row.ns) for row in rows] == db.execute(
            "select cat, sum(dur) * 1000 from slice group by 1 order by 1"
        ).fetchall()
        wrong = processor.query("select name from stats where severity = 'error' and value > 0")
        assert [row.name for row in wrong] == []


def test_progress_is_told_once_a_step(tmp_path: Path) -> None:
    folder, told = tmp_path / "run", []
    assert main(["run", "tiny", "--steps", "5", "--spans", "--out", str(folder)]) == 0
    write_trace(folder, tmp_path / "trace.json", lambda done, total: told.append((done, total)))
    assert told == [(step, 5) for step in range(1, 5)]

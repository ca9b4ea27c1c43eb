"""A profile: when a point is known well enough, which points there are; and a tiny one whole."""

from __future__ import annotations

import os
import threading
import warnings
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oppo_real.bench.task import TINY
from oppo_real.errors import ModelError
from oppo_real.machine.memory import keep_freed
from oppo_real.networks import decoding, scoring
from oppo_real.profile.beside import Work, side_by_side
from oppo_real.profile.busy import busy_s
from oppo_real.profile.measure import PASSES, SHARES, _passes, described, profile
from oppo_real.profile.plan import Plan
from oppo_real.profile.tasks import Group
from oppo_real.profile.timing import Series, timing
from oppo_real.profile.work import varied
from oppo_real.rounds import is_done, rounds, timed_run
from oppo_sim.analysis.documents import header_of
from oppo_sim.calibration.twin import again, recorded, replaying, twin
from oppo_sim.config import Scenario
from oppo_sim.costs import Measured, forwards
from oppo_sim.costs.identity import KEYS, differences, digest
from oppo_sim.costs.measurements import parse_measurements
from oppo_sim.runs import read_run
from oppo_sim.workload.loads import workload


class Hands:
    """A clock that is moved by what it times."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def work(self, seconds: float) -> float:
        self.now_s += seconds
        return seconds


def test_a_single_stall_counts_for_little() -> None:
    found = timing([1.0, 1.0, 1.0, 1.0, 50.0])
    assert (found.seconds, found.error) == ((4 + 1.5) / 5, 0.0)
    spread = timing([0.9, 1.0, 1.1, 1.0])
    assert spread.seconds == pytest.approx(1.0)
    assert spread.error == pytest.approx(0.05 / 1.349 / 2)


def test_what_does_not_vary_is_measured_the_fewest_times() -> None:
    clock, times = Hands(), Series()
    times.repeat(lambda: clock.work(1.0), 100.0, clock=clock)
    assert times.timing == (1.0, 0.0, 3)
    times.repeat(lambda: clock.work(1.0), 100.0, clock=clock)
    assert times.timing.repeats == 4, "once more in a second pass: the machine may have changed"


def test_what_varies_is_measured_until_its_time_is_up() -> None:
    clock, turns, times = Hands(), iter(range(1000)), Series()
    times.repeat(lambda: clock.work(1.0 + next(turns) % 2), 12.0, clock=clock)
    assert times.timing.repeats == 8, "four times 1 + 2 s"
    assert times.timing.seconds == 1.5


def test_all_points_have_their_turn_in_every_pass_while_there_is_time() -> None:
    clock, seen = Hands(), []

    def group(name: str) -> tuple[int, Group]:
        def visit(share_s: float) -> None:
            seen.append((name, share_s))
            clock.work(5.0)

        return torch.get_num_threads(), Group([visit, visit], list)

    groups = {task: group(task) for task in ("decode", "train")}
    assert _passes(groups, 50.0, lambda what: None, clock) == []
    assert [name for name, _ in seen] == ["decode", "decode", "train", "train"] * 2
    assert dict(seen)["train"] == SHARES["train"] * 50.0 / PASSES / 2


def test_which_points_a_schedule_can_ask_for() -> None:
    plan = Plan(batch=8, most=12, prompt=16, longest=80, chunks=(8,), micro_rows=4, minis=1)
    assert plan.batches == [12, 8, 4, 2, 1]
    assert plan.between == [11, 10, 9, 7, 6, 5, 3], "every batch up to 16"
    assert replace(plan, most=40).between[:9] == [37, 33, 30, 27, 24, 22, 20, 18, 15]
    assert plan.contexts == [17, 42, 68]
    assert {(12, 17), (4, 17), (4, 68), (3, 42)} <= {*plan.decoding}
    assert not {(4, 42), (3, 17)} & {*plan.decoding}
    assert plan.widths == [20, 24, 40, 80], "halves of 80 above the prompt, and prompt + chunk"
    assert (8, 80) not in plan.opening, "not all rows are the longest"
    assert (1, 80) in plan.opening
    assert (8, 2, 24) in plan.going_on, "a quarter of a chunk, which ends a response"


@given(st.lists(st.integers(1, 20000), max_size=40))
def test_the_simulator_cuts_calls_as_the_machine_does(lengths: list[int]) -> None:
    """They share the function; nothing is lost, and at most half of a row is padding."""
    for module in (decoding, scoring):
        assert vars(module)["groups"] is forwards.groups
    found = forwards.groups(lengths)
    assert sorted(row for group in found for row in group) == list(range(len(lengths)))
    for group in found:
        assert 2 * min(lengths[row] for row in group) >= max(lengths[row] for row in group)


def test_calls_differ_in_shape_and_on_average_not_at_all() -> None:
    sizes = [varied(200, turn) for turn in range(7)]
    assert sizes == [200, 203, 197, 206, 194, 209, 191]
    assert [varied(4, turn) for turn in range(7)] == [4] * 7, "there is no 4.2nd token"


def test_two_kinds_of_work_are_timed_beside_each_other() -> None:
    meeting = threading.Barrier(2)

    def meet(seconds: float) -> float:
        with suppress(threading.BrokenBarrierError):
            meeting.wait(5)
        return seconds

    one, other = Work(lambda: meet(1.0), 1), Work(lambda: meet(2.0), 1)
    stop = threading.Timer(0.2, meeting.abort)
    stop.start()
    found = side_by_side(one, other, 0.0)
    stop.join()
    assert [{*times} for times in found] == [{1.0}, {2.0}]


def test_work_that_fails_ends_both() -> None:
    def fail() -> float:
        raise ModelError("too long")

    with pytest.raises(ModelError, match="too long"):
        side_by_side(Work(lambda: 1.0, 1), Work(fail, 1), 60.0)


def test_others_are_all_that_worked_and_what_the_host_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Idle, iowait and guests (whose time is in user and nice) do not count."""
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 20 3 9999 9999 400 50 6 7000 8000\ncpu0 1 2 3\n")
    monkeypatch.setattr("oppo_real.profile.busy.STAT", stat)
    assert busy_s() * os.sysconf("SC_CLK_TCK") == 100 + 20 + 3 + 400 + 50 + 6
    stat.unlink()
    assert busy_s() == 0


def test_a_table_of_another_machine_is_noticed() -> None:
    here = dict.fromkeys(KEYS, "the same")
    assert differences({**here, "date": "yesterday"}, here) == []
    found = differences({**here, "machine": "a laptop"}, here)
    assert found == ["machine: the table is of 'a laptop', this is 'the same'"]
    assert digest(here) != digest({**here, "dtype": "bfloat16"})


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    folder = tmp_path_factory.mktemp("tiny")
    TINY.write(folder, 40, 0)
    return TINY.scenario(folder, {"share_threads": True})


def test_rounds_begin_with_another_schedule_each() -> None:
    assert [*rounds(["a", "b", "c"], 2)] == [
        ("a", 0),
        ("b", 0),
        ("c", 0),
        ("b", 1),
        ("c", 1),
        ("a", 1),
    ]


def test_lanes_by_turns_have_no_table(scenario: Scenario) -> None:
    assert scenario.real is not None
    real = scenario.real.model_copy(update={"workers": "inline"})
    with pytest.raises(ModelError, match=r"real.workers = 'inline'.*'threads'"):
        profile(scenario.model_copy(update={"real": real}), [scenario.schedule()])


@pytest.mark.slow
def test_a_profile_a_run_and_its_twin(
    scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is read as any; the twin trains the batches that the real machine trained."""
    schedule = scenario.schedule("trl")
    found = profile(scenario, [schedule, scenario.schedule("oppo")], budget_s=4.0)
    table = tmp_path / "costs.csv"
    table.write_text(found.text())
    read = parse_measurements("costs", found.text())
    assert not differences(read.provenance, described(scenario))
    assert read.provenance["digest"] == digest(read.provenance)
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    elsewhere = described(scenario)
    monkeypatch.delenv("MALLOC_ARENA_MAX")
    assert "memory" not in elsewhere["threads"]
    assert bool(differences(read.provenance, elsewhere)) == keep_freed()
    tasks = {row.task for row in read.rows}
    assert tasks >= {"decode", "prefill", "score", "train", "sync", "handoff", "decode+score"}
    assert Measured(measurements=read).by_row is not None

    header = header_of(scenario, schedule, seed=None, steps=2, spans=True, role="measured")
    out = tmp_path / "run"
    assert not is_done(out, header)
    steps = list(timed_run(scenario, schedule, header, out))
    assert is_done(out, header)
    of = recorded(read_run(out), out)
    length_of = workload(scenario).response_tokens
    assert list(of.responses[:8]) == [length_of(rollout) for rollout in range(8)]
    assert set(of.prompts or ()) == {TINY.prompt_tokens}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        simulated = list(again(twin(header.scenario, table, replaying(of)), of, None))
    assert [s.trained for s in simulated] == [s.trained for s in steps]
    assert [s.tokens for s in simulated] == [s.tokens for s in steps]


@pytest.mark.slow
def test_two_actor_lanes_are_timed_beside_each_other(scenario: Scenario) -> None:
    cluster = scenario.cluster.model_copy(update={"actors": 2, "devices": 2})
    two = scenario.model_copy(update={"cluster": cluster})
    found = profile(two, [scenario.schedule("trl")], budget_s=2.0)
    assert {row.batch for row in found.table.of("decode+decode")} == {TINY.batch // 2}
    assert not found.table.of("decode+train"), "the update has the machine for itself"


def test_another_run_in_its_place_is_cleared(tmp_path: Path, scenario: Scenario) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{")
    header = header_of(
        scenario, scenario.schedule(), seed=None, steps=2, spans=True, role="measured"
    )
    assert not is_done(tmp_path / "run", header)
    assert not (tmp_path / "run").exists()

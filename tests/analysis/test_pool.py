"""Work in processes: all results, each warning once, and no process outlives its parent."""

import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from oppo_sim.analysis import pool
from oppo_sim.analysis.parts import Part, WorkerDied, run_parts
from oppo_sim.analysis.pool import each, processes
from oppo_sim.config import load_scenario
from oppo_sim.policies import Schedule
from oppo_sim.records import Observation


def square(number: int) -> int:
    return number * number


def warn(number: int) -> int:
    warnings.warn(f"{number % 2} is left", UserWarning, stacklevel=1)
    return number


def tell_slowly(number: int) -> int:
    """Another thread has the time to begin and to end in between."""
    time.sleep(0.001)
    warnings.warn(f"{number} is told", UserWarning, stacklevel=1)
    return number


def squared_unless_fatal(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


@pytest.mark.parametrize("jobs", [1, 2])
def test_every_task_is_done_once_and_its_place_is_told(jobs: int) -> None:
    found = list(each(square, [5, 3, 4, 9], processes(jobs)))
    assert sorted(found) == [(0, 25), (1, 9), (2, 16), (3, 81)]


@pytest.mark.parametrize("jobs", [1, 2])
def test_each_warning_is_given_once(jobs: int) -> None:
    with pytest.warns(UserWarning, match="is left") as caught:
        assert len(list(each(warn, range(6), processes(jobs)))) == 6
    assert sorted(str(warning.message) for warning in caught) == ["0 is left", "1 is left"]
    assert {warning.filename for warning in caught} == {__file__}


def until_death(
    work: Callable[[int], int], tasks: Iterable[int], backend: pool.Backend | None
) -> tuple[dict[int, int], tuple[int, ...]]:
    """What was done, by place, and what is said to have been running."""
    done: dict[int, int] = {}
    try:
        for place, result in each(work, tasks, backend):
            done[place] = result
    except pool.WorkerDied as death:
        return done, death.running
    pytest.fail("nobody died")


def test_a_killed_process_is_told_with_what_it_ran_and_no_result_is_lost() -> None:
    """Task 2 kills its process; then one more at most was running, and all before it are begun."""
    done, running = until_death(squared_unless_fatal, [1, 2, 3, 4, 5, 6], processes(2))
    assert 2 in running
    assert len(running) <= 2
    assert {0, 1} <= {*running} ^ {*done}


def dead_or_done(result: object) -> Future[Any]:
    """None: its process died."""
    future: Future[Any] = Future()
    if result is None:
        future.set_exception(BrokenProcessPool())
    else:
        future.set_result(result)
    return future


def test_all_that_was_done_comes_before_the_news_of_a_death() -> None:
    """Of eight tasks held at a time, by two processes: the four dead ones' oldest two were run."""

    def submit(work: object, own: object, place: int, number: int) -> Future[Any]:
        return dead_or_done((place, number, []) if number % 2 else None)

    backend = pool.Backend(2, 8, lambda needed: nullcontext(submit), (BrokenProcessPool,))
    done, running = until_death(square, range(20), backend)
    assert done == {1: 1, 3: 3, 5: 5, 7: 7}
    assert running == (0, 2)


def test_no_more_processes_are_asked_for_than_there_are_tasks() -> None:
    asked: list[int] = []

    def opened(needed: int) -> nullcontext[pool.Submit]:
        asked.append(needed)
        return nullcontext(lambda *_: dead_or_done((0, 0, [])))

    backend = pool.Backend(50, 100, opened, ())
    assert len(list(each(square, range(3), backend))) == 3
    assert not list(each(square, [], backend))
    assert asked == [3]


def test_processes_that_take_nothing_any_more_were_running_nothing() -> None:
    def submit(*_: object) -> Future[Any]:
        raise BrokenProcessPool

    backend = pool.Backend(2, 4, lambda needed: nullcontext(submit), (BrokenProcessPool,))
    assert until_death(square, range(20), backend) == ({}, ())


@dataclass(frozen=True)
class Fatal:
    """A chunk policy that ends the process that asks it."""

    window: int = 0

    def chunk_tokens(self, seen: Observation) -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return 1


@pytest.mark.parametrize(
    ("kept", "remedy"),
    [
        (True, "--resume goes on from the runs that are finished, and fewer --jobs"),
        (False, "with --out DIR, --resume can go on from finished runs, and fewer --jobs"),
    ],
)
def test_the_error_names_schedule_and_seed_and_says_what_to_do(
    tmp_path: Path, kept: bool, remedy: str
) -> None:
    tiny = load_scenario("tiny")
    deadly = Schedule(name="deadly", batch=8, chunk=Fatal())
    parts = [Part(scenario=tiny, schedule=deadly, seed=seed, steps=2) for seed in (4, 5)]
    with pytest.raises(WorkerDied, match="deadly with seed 4 or deadly with seed 5") as death:
        run_parts(parts, jobs=2, keep=tmp_path if kept else None)
    assert remedy in str(death.value)


# threads and signals


def test_threads_of_one_process_catch_their_own_warnings() -> None:
    """As a Dask worker of several has: forty tasks with a warning each."""
    with ThreadPoolExecutor(8) as threads:
        done = threads.map(partial(pool._done, tell_slowly), range(40), range(40))
    told = [[warning.text for warning in told] for _, _, told in done]
    assert told == [[f"{number} is told"] for number in range(40)]


def test_an_interrupt_while_processes_start_is_not_lost() -> None:
    script = (
        "import os, signal; from oppo_sim.analysis.pool import _without_interrupts\n"
        "try:\n"
        "    with _without_interrupts():\n"
        "        os.kill(os.getpid(), signal.SIGINT); print('started', end=' ')\n"
        "    print('lost')\n"
        "except KeyboardInterrupt:\n"
        "    print('kept')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "started kept\n", done.stderr


def started(out: Path) -> subprocess.Popen[str]:
    """A comparison in two processes, and in a group of its own, that has finished some run."""
    command = [sys.executable, "-m", "oppo_sim.cli", "compare", "tiny", "--out", str(out)]
    process = subprocess.Popen(
        [*command, "--jobs", "2", "--steps", "200", "--seeds", "200"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until = time.monotonic() + 60
    while not any((out / "parts").glob("*.json")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)
    return process


@pytest.mark.parametrize("with_signal", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_their_parent(tmp_path: Path, with_signal: signal.Signals) -> None:
    """They hold the ends of its pipes, which are read to their end here."""
    process = started(tmp_path / "out")
    os.kill(process.pid, with_signal)
    process.communicate(timeout=60)
    assert process.returncode == -with_signal


def test_an_interrupt_of_all_processes_is_one_line(tmp_path: Path) -> None:
    process = started(tmp_path / "out")
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    lines = [line for line in said.splitlines() if not line.startswith("comparing on tiny: ")]
    assert lines == ["oppo: interrupted; with --out, --resume goes on from what is written"]
    assert process.returncode in (130, -signal.SIGINT)

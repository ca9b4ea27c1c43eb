"""Work in several processes that end with their parent, leave Ctrl-C to it, and warn through it."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from joblib import Parallel, delayed, parallel_config

Task = TypeVar("Task")
Result = TypeVar("Result")

LOOK_S = 0.5  # how often a worker looks for its parent


class WorkerDied(RuntimeError):
    """A process ended in the middle of its work; `running` are the places of the tasks begun."""

    def __init__(self, running: Sequence[int]) -> None:
        super().__init__(f"a worker process died; tasks {list(running)} were running")
        self.running = tuple(running)


class Backend(NamedTuple):
    """Whose processes: joblib's name for it, options of `Parallel`, what it raises for a death."""

    name: str
    options: Mapping[str, Any]
    deaths: tuple[type[Exception], ...]


def on_this_machine() -> Backend:
    """Processes that end with this one."""
    follow = {"initializer": _follow, "initargs": (os.getpid(),)}
    return Backend("loky", follow, (BrokenProcessPool,))


class Told(NamedTuple):
    """A warning, as it goes from a worker to its parent."""

    text: str
    category: type[Warning]
    file: str
    line: int


def each(
    work: Callable[[Task], Result],
    tasks: Iterable[Task],
    jobs: int,
    backend: Backend | None = None,
) -> Iterator[tuple[int, Result]]:
    """The place and the result of every task, as they are done, `jobs` of them at a time.

    Tasks are asked for when there is room for them, from any thread, one at a time. What they warn
    of is warned of here, each text once. WorkerDied where a process is killed. `backend` None: on
    this machine.
    """
    seen: set[tuple[str, type[Warning]]] = set()
    for place, result, told in _results(work, tasks, jobs, backend or on_this_machine()):
        for text, category, file, line in told:
            if (text, category) not in seen:
                seen.add((text, category))
                warnings.warn_explicit(text, category, file, line)
        yield place, result


def _results(
    work: Callable[[Task], Result], tasks: Iterable[Task], jobs: int, backend: Backend
) -> Iterator[tuple[int, Result, list[Told]]]:
    if jobs == 1:
        yield from (_done(work, *numbered) for numbered in enumerate(tasks))
        return
    left: dict[int, None] = {}

    def numbered() -> Iterator[tuple[int, Task]]:
        for place, task in enumerate(tasks):
            left[place] = None
            yield place, task

    try:
        with parallel_config(backend=backend.name), _without_interrupts():
            pool = Parallel(
                n_jobs=jobs,
                return_as="generator_unordered",
                batch_size=1,  # the tasks that run are then the first `jobs` of those begun
                **backend.options,
            )
            results = pool(delayed(_done)(work, place, task) for place, task in numbered())
        for place, result, told in results:
            del left[place]
            yield place, result, told
    except backend.deaths:
        raise WorkerDied(list(left)[: jobs if jobs > 0 else None]) from None


def _done(work: Callable[[Task], Result], place: int, task: Task) -> tuple[int, Result, list[Told]]:
    with warnings.catch_warnings(record=True) as caught:
        result = work(task)
    return place, result, [Told(str(w.message), w.category, w.filename, w.lineno) for w in caught]


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Processes started in it never see Ctrl-C, which a terminal sends to all: their parent does.

    What a process ignores, its children ignore from their first instruction on; a mask would not
    do, for the process that joblib starts first takes it off.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set a handler
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)


def _follow(parent: int) -> None:
    """In a worker: leave Ctrl-C to the parent, and end when it has ended, however it did.

    A worker that waits for work would not notice, and hold the parent's output open for minutes.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # for those that are started later
    if os.name != "posix":
        return  # elsewhere the number of the parent says nothing about its life

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="follow-parent").start()

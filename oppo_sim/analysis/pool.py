"""Work in several processes that end with their parent, leave Ctrl-C to it, and warn through it."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from loky import get_reusable_executor

Task = TypeVar("Task")
Result = TypeVar("Result")
Submit = Callable[..., Future[Any]]  # a function and its arguments

LOOK_S = 0.5  # how often a worker looks for its parent
IDLE_S = 300.0  # after which a worker that has nothing to do ends
AHEAD = 2  # tasks per process: one runs, one is there when it is done
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


# What is caught is of the whole process: threads of one (Dask's may have some) take turns, as they
# do for Python's own lock. A task may have tasks of its own.
CATCHING = threading.RLock()


class WorkerDied(RuntimeError):
    """A process ended in the middle of its work; `running` are the places of the tasks begun."""

    def __init__(self, running: Sequence[int]) -> None:
        super().__init__(f"a worker process died; tasks {list(running)} were running")
        self.running = tuple(running)


class Backend(NamedTuple):
    """Whose processes: they run `jobs` tasks at a time, oldest first, and hold `room` of them.

    `opened`, of how many are needed, hands tasks over until it is left, with an error where they
    are no longer wanted; `deaths` is what a future raises where a process died.
    """

    jobs: int
    room: int
    opened: Callable[[int], AbstractContextManager[Submit]]
    deaths: tuple[type[Exception], ...]


def processes(jobs: int) -> Backend | None:
    """As many at most, on this machine; they end with this one. None for 1: this process itself."""
    if jobs <= 1:
        return None

    @contextmanager
    def opened(needed: int) -> Iterator[Submit]:
        executor = get_reusable_executor(
            max_workers=needed,
            timeout=IDLE_S,
            initializer=_follow,
            initargs=(os.getpid(),),
            env=dict.fromkeys(THREADS, "1"),
        )
        try:
            yield executor.submit
        except BaseException:
            executor.shutdown(kill_workers=True)
            raise

    return Backend(jobs, AHEAD * jobs, opened, (BrokenProcessPool,))


class Told(NamedTuple):
    """A warning, as it goes from a worker to its parent."""

    text: str
    category: type[Warning]
    file: str
    line: int


def each(
    work: Callable[[Task], Result], tasks: Iterable[Task], backend: Backend | None
) -> Iterator[tuple[int, Result]]:
    """The place and the result of every task, as they are done; `backend` None: done here.

    Tasks are asked for when there is room for them. What they warn of is warned of here, each text
    once. WorkerDied where a process is killed, after the results of all that are done.
    """
    seen: set[tuple[str, type[Warning]]] = set()
    results = _here(work, tasks) if backend is None else _there(work, tasks, backend)
    for place, result, told in results:
        for text, category, file, line in told:
            if (text, category) not in seen:
                seen.add((text, category))
                warnings.warn_explicit(text, category, file, line)
        yield place, result


def _here(
    work: Callable[[Task], Result], tasks: Iterable[Task]
) -> Iterator[tuple[int, Result, list[Told]]]:
    return (_done(work, place, task) for place, task in enumerate(tasks))


def _there(
    work: Callable[[Task], Result], tasks: Iterable[Task], backend: Backend
) -> Iterator[tuple[int, Result, list[Told]]]:
    numbered = enumerate(tasks)
    first = [*islice(numbered, backend.room)]
    if not first:
        return
    begun: dict[Future[Any], int] = {}
    undone: list[int] = []
    with backend.opened(min(backend.jobs, len(first))) as submit:

        def are_alive(some: Iterable[tuple[int, Task]]) -> bool:
            """Begin some tasks; False where the processes take none any more."""
            try:
                for place, task in some:
                    begun[submit(_done, work, place, task)] = place
            except backend.deaths:
                return False
            return True

        with _without_interrupts():
            alive = are_alive(first)
        while begun:
            wait(begun, return_when=FIRST_COMPLETED)
            for future in [one for one in begun if one.done()]:
                place = begun.pop(future)
                if isinstance(future.exception(), backend.deaths):
                    undone.append(place)
                else:
                    yield future.result()
            more = islice(numbered, backend.room - len(begun))
            alive = alive and not undone and are_alive(more)
        if not alive:
            raise WorkerDied(sorted(undone)[: backend.jobs])  # the others were not begun


def _done(work: Callable[[Task], Result], place: int, task: Task) -> tuple[int, Result, list[Told]]:
    with CATCHING, warnings.catch_warnings(record=True) as caught:
        result = work(task)
    return place, result, [Told(str(w.message), w.category, w.filename, w.lineno) for w in caught]


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Processes started in it never see Ctrl-C, which a terminal sends to all: their parent does.

    What a process ignores, its children ignore from their first instruction on; a mask alone would
    not do, for what is started first may take it off. The mask keeps a Ctrl-C for afterwards.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set a handler
        return
    masked = os.name == "posix"
    if masked:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
        if masked:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


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

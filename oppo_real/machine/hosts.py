"""Where lanes run: in turns on the engine's own thread, or on a thread each."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from queue import SimpleQueue
from typing import NamedTuple, Protocol

from oppo_real.machine.messages import NOTHING, News, Task, Worker
from oppo_sim.engine.contract import Command

JOIN_S = 30.0  # the longest that a closing host waits for a lane to end what it does
WATCH_S = 1.0  # how often an idle lane looks whether its process lives


class Broken(NamedTuple):
    """A step that failed."""

    command: Command | None
    rollouts: tuple[int, ...]
    why: str


class Host(Protocol):
    """Runs lanes and carries tasks to them and news from them."""

    def give(self, lane: str, task: Task) -> None: ...

    def take(self) -> tuple[str, News | Broken]:
        """The next news, and whose; waits for it."""

    def answered(self) -> None:
        """All news taken so far has been answered: lanes that wait for that go on."""

    def close(self) -> None: ...


class Inline:
    """All lanes on the caller's thread, a step each in turn: slow, and the same every time."""

    def __init__(self, workers: Mapping[str, Worker]) -> None:
        self._workers = workers
        self._news: deque[tuple[str, News | Broken]] = deque()

    def give(self, lane: str, task: Task) -> None:
        self._workers[lane].give(task)

    def take(self) -> tuple[str, News | Broken]:
        while not self._news:
            for lane, worker in self._workers.items():
                news = _step(worker)
                if news is not None and news is not NOTHING:
                    self._news.append((lane, news))
        return self._news.popleft()

    def answered(self) -> None:
        """Lanes step only when news is taken."""

    def close(self) -> None:
        for worker in self._workers.values():
            worker.close()


class Threads:
    """Each lane on a thread of its own.

    A lane that has told of events does not go on before they were answered, so that a batch is
    closed at its last token and not some tokens later (rule 2 of the contract).
    `within(lane)`: what a lane's thread runs in, such as a CUDA stream and a number of torch
    threads.
    """

    def __init__(
        self,
        workers: Mapping[str, Worker],
        *,
        within: Callable[[str], AbstractContextManager[object]] = lambda lane: nullcontext(),
    ) -> None:
        self._workers, self._within = workers, within
        self._news: SimpleQueue[tuple[str, News | Broken]] = SimpleQueue()
        self._wake = {lane: threading.Event() for lane in workers}
        self._go = {lane: threading.Event() for lane in workers}
        self._told: list[str] = []  # lanes whose events were taken, and not answered yet
        self._closing = False
        self._threads = [
            threading.Thread(target=self._run, args=(lane,), name=f"oppo-{lane}", daemon=True)
            for lane in workers
        ]
        for thread in self._threads:
            thread.start()

    def give(self, lane: str, task: Task) -> None:
        self._workers[lane].give(task)
        self._wake[lane].set()

    def take(self) -> tuple[str, News | Broken]:
        lane, news = self._news.get()
        self._told.append(lane)
        return lane, news

    def answered(self) -> None:
        for lane in self._told:
            self._go[lane].set()
        self._told.clear()

    def close(self) -> None:
        self._closing = True
        for event in (*self._wake.values(), *self._go.values()):
            event.set()
        for worker in self._workers.values():
            worker.close()
        for thread in self._threads:
            thread.join(JOIN_S)

    def _run(self, lane: str) -> None:
        try:
            with self._within(lane):
                self._work(lane)
        except Exception as error:  # not the lane's work, which says so itself
            self._news.put((lane, Broken(None, (), f"{type(error).__name__}: {error}")))

    def _work(self, lane: str) -> None:
        worker, wake, go = self._workers[lane], self._wake[lane], self._go[lane]
        while not self._closing:
            wake.clear()
            news = _step(worker)
            if news is None:
                wake.wait(WATCH_S)
                continue
            if news is NOTHING:
                continue
            go.clear()
            self._news.put((lane, news))
            if isinstance(news, Broken):
                return
            if news.events and not self._closing:  # closing has set it, maybe before the clear
                go.wait()


def _step(worker: Worker) -> News | Broken | None:
    try:
        return worker.step()
    except Exception as error:
        command, rollouts = worker.doing()
        return Broken(command, rollouts, f"{type(error).__name__}: {error}")

"""A scorer in a process of its own: it is built there, and shares nothing but a pipe.

The parent's thread waits for the pipe, so that a process that dies is noticed at once when it has
work, and within a second when it has none. The child ends when the pipe does, which is also what
happens when the parent is killed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from oppo_real.machine.lanes import ScorerLane
from oppo_real.machine.memory import keep_freed
from oppo_real.machine.messages import Clock, News, Read, Task
from oppo_sim.engine.contract import Command, EngineError

# What builds the scorer, over there: a module's function and its plain arguments.
Build = Callable[..., Any]
STOP_S = 5.0


class ProcessScorer:
    """A Worker. `build(*arguments)` makes the Scorer in the child, with `threads` torch threads."""

    def __init__(
        self, lane: str, build: Build, arguments: tuple[Any, ...], threads: int, clock: Clock
    ) -> None:
        self._lane, self._clock = lane, clock
        self._inbox: deque[Task] = deque()
        self._task: Read | None = None
        context = multiprocessing.get_context("spawn")
        self._pipe, child = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(child, lane, build, arguments, threads), name=lane, daemon=True
        )
        self._process.start()
        child.close()
        try:
            self._receive()  # it is built, or says why not
        except EngineError:
            self.close()
            raise

    def give(self, task: Task) -> None:
        self._inbox.append(task)

    def doing(self) -> tuple[Command | None, tuple[int, ...]]:
        if self._task is None:
            return None, ()
        return self._task.command, tuple([chunk.rollout for chunk in self._task.chunks])

    def step(self) -> News | None:
        if not self._inbox:
            if not self._process.is_alive():
                raise EngineError(self._obituary())
            return None
        task = self._inbox.popleft()
        if isinstance(task, Read):
            self._task = task
        try:
            self._pipe.send((self._clock(), task))
        except OSError:
            raise EngineError(self._obituary()) from None
        news: News = self._receive()
        self._task = None
        return news

    def close(self) -> None:
        end(self._process, self._pipe, STOP_S)

    def _receive(self) -> Any:
        wait([self._pipe, self._process.sentinel])
        try:
            answer = self._pipe.recv()
        except (EOFError, OSError):
            raise EngineError(self._obituary()) from None
        if isinstance(answer, str):
            raise EngineError(answer)
        return answer

    def _obituary(self) -> str:
        self._process.join(STOP_S)
        code = self._process.exitcode
        how = f"exit code {code}"
        if code is not None and code < 0:
            how = f"killed by {signal.Signals(-code).name}"
        return f"the process of lane {self._lane} (pid {self._process.pid}) died: {how}"


def end(process: BaseProcess, pipe: Connection, patience_s: float) -> None:
    """A process that works for a pipe ends with it, or is killed."""
    pipe.close()
    process.join(patience_s)
    if process.is_alive():
        process.kill()
        process.join()


def _serve(
    pipe: Connection, lane: str, build: Build, arguments: tuple[Any, ...], threads: int
) -> None:
    """The child: builds its scorer, then answers tasks until the pipe ends."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the parent decides when to stop
        signal.signal(number, signal.SIG_IGN)
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    import time

    import torch

    keep_freed()
    torch.set_num_threads(threads)
    offset_s = 0.0

    def clock() -> float:
        return time.monotonic() + offset_s

    try:
        worker = ScorerLane(lane, build(*arguments), clock, lambda: None)
        pipe.send(None)
        while True:
            now_s, task = pipe.recv()
            offset_s = now_s - time.monotonic()
            worker.give(task)
            pipe.send(worker.step())
    except (EOFError, KeyboardInterrupt):
        return
    except Exception as error:
        try:
            pipe.send(f"{type(error).__name__}: {error}")
        except OSError:
            return

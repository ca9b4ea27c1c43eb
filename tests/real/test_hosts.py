"""Threads end when their host closes, at whatever moment that is."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from oppo_real.machine import hosts
from oppo_real.machine.messages import News, Task
from oppo_sim.engine.contract import Command, Finished


class LastWord:
    """A lane that is at work when its host closes, and has an event to tell of after that."""

    def __init__(self) -> None:
        self.at_work, self._closed = threading.Event(), threading.Event()

    def give(self, task: Task) -> None:
        raise AssertionError(task)

    def step(self) -> News:
        self.at_work.set()
        self._closed.wait()
        return News(events=(Finished(1.0, "actor", 0, 5, "stop"),))

    def doing(self) -> tuple[Command | None, tuple[int, ...]]:
        return None, ()

    def close(self) -> None:
        self._closed.set()


def test_an_event_told_of_while_closing_keeps_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "JOIN_S", 5.0)
    before = set(threading.enumerate())
    lane = LastWord()
    host = hosts.Threads({"actor": lane})
    lane.at_work.wait()
    host.close()
    assert set(threading.enumerate()) <= before


def test_a_thread_that_cannot_begin_is_news() -> None:
    def refuse(lane: str) -> Any:
        raise RuntimeError("no such stream")

    host = hosts.Threads({"actor0": LastWord()}, within=refuse)
    assert host.take() == ("actor0", hosts.Broken(None, (), "RuntimeError: no such stream"))
    host.close()

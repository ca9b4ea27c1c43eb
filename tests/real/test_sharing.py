"""Lanes that lend threads: who works has its own and those of all idle ones."""

from __future__ import annotations

from oppo_real.machine.messages import NOTHING, News, Task
from oppo_real.machine.sharing import Sharing, Team
from oppo_sim.engine.contract import Command, Drop


class Steps:
    """A worker with some steps to do."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def give(self, task: Task) -> None:
        self.steps += 1

    def step(self) -> News | None:
        self.steps -= 1
        return NOTHING if self.steps >= 0 else None

    def doing(self) -> tuple[Command | None, tuple[int, ...]]:
        return None, (0,) if self.steps > 0 else ()

    def close(self) -> None:
        self.steps = 0


def test_a_lane_alone_has_all_threads_and_two_have_their_own() -> None:
    used: list[int] = []
    team = Team({"actor0": 1, "scorer0": 2}, used.append, most=8)
    actor, scorer = Sharing("actor0", Steps(5), team), Sharing("scorer0", Steps(2), team)
    actor.step()
    assert used == [3], "the scorer has not begun"
    actor.step()
    assert used == [3], "it is told once"
    scorer.step()
    actor.step()
    assert used == [3, 2, 1], "both work"
    scorer.step()
    actor.step()
    assert used[-1] == 3, "the scorer has no rows any more"
    assert scorer.step() is None
    actor.step()
    scorer.give(Drop((0,)))
    scorer.step()
    assert used[-1] == 3, "the actor has told of its last rollout, and lends its thread at once"


def test_nobody_borrows_more_threads_than_there_are_cores() -> None:
    used: list[int] = []
    team = Team({"actor0": 1, "actor1": 3, "scorer0": 1}, used.append, most=2)
    Sharing("actor0", Steps(5), team).step()
    assert used == [2], "of 5"
    Sharing("actor1", Steps(5), team).step()
    assert used == [2, 3], "its own, which were asked for"

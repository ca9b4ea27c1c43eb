"""What the machine knows of rollouts, and what it takes to score them and to train on them."""

from __future__ import annotations

from typing import Protocol

from oppo_sim.costs.interface import Costs
from oppo_sim.engine.contract import Score, Train
from oppo_sim.simulator.batch import Stop


class Workload(Protocol):
    """What the machine knows of a rollout, and the engine only hears afterwards."""

    def response_tokens(self, rollout: int) -> int: ...
    def stop_reason(self, rollout: int) -> Stop: ...
    def prompt_tokens(self, rollout: int) -> int: ...
    def reward(self, rollout: int, updates: float) -> float: ...


def score_s(command: Score, workload: Workload, costs: Costs) -> float:
    """Seconds of scoring its chunks in one call; a row's first chunk brings its prompt."""
    prompt_of = workload.prompt_tokens
    if costs.by_row is not None:
        return costs.by_row.score_s(
            [
                (prompt_of(rollout) + start if start else 0, prompt_of(rollout) + end)
                for rollout, start, end, _ in command.chunks
            ]
        )
    tokens, attention, lasts = 0, 0.0, 0
    for rollout, start, end, last in command.chunks:
        prompt = prompt_of(rollout)
        first = prompt + start if start else 0
        final = prompt + end
        tokens += final - first
        attention += (final * final - first * first) * 0.5
        lasts += last
    return costs.score_s(len(command.chunks), tokens, attention, lasts)


def train_s(command: Train, workload: Workload, costs: Costs) -> float:
    """Seconds of one update on its rollouts, prompts included."""
    contexts = [workload.prompt_tokens(r) + workload.response_tokens(r) for r in command.rollouts]
    if costs.by_row is not None:
        return costs.by_row.train_s(contexts)
    return costs.train_s(len(contexts), sum(contexts), max(contexts))


def score_tokens(command: Score, workload: Workload) -> int:
    """New tokens of its chunks, with the prompts of rows that it opens."""
    prompt_of = workload.prompt_tokens
    return sum(
        [
            end - start + (0 if start else prompt_of(rollout))
            for rollout, start, end, _ in command.chunks
        ]
    )


def train_tokens(command: Train, workload: Workload) -> int:
    return sum([workload.prompt_tokens(r) + workload.response_tokens(r) for r in command.rollouts])

"""GRPO: advantages, loss and gradient by hand, and a tiny actor that learns by it."""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from oppo_real.ppo.trainer import Trainer
from oppo_sim.cli import main
from oppo_sim.config.real import Ppo
from oppo_sim.engine.contract import EngineError
from oppo_sim.runs import read_run
from tests.real import tiny
from tests.real.recorded import gradients, record

EVEN = Path("experiments/configs/real/even-tokens.toml")
GROUP = 4
BATCH = record(tiny.nudged(tiny.actor()), tiny.reward()).batch(rollouts=[*range(8, 16)])
KL = 0.3


def logprobs(model: torch.nn.Module, prompt: list[int], response: list[int]) -> Tensor:
    """[T] of one row, without padding."""
    ids = torch.tensor([[*prompt, *response]])
    scores = model(ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
    return scores[torch.arange(len(response)), torch.tensor(response)]


def by_hand(actor: torch.nn.Module, reference: torch.nn.Module) -> Tensor:
    """TRL 1.12 by default: (r - mean) / (std + 1e-4) of the group, and its mean over tokens."""
    total, tokens = torch.zeros((), dtype=torch.float64), 0
    for row in range(len(BATCH.rollouts)):
        start = row - row % GROUP
        rewards = [float(reward) for reward in BATCH.rewards[start : start + GROUP]]
        spread = statistics.stdev(rewards) + 1e-4
        advantage = (float(BATCH.rewards[row]) - statistics.mean(rewards)) / spread
        prompt, response = list(BATCH.prompts[row]), list(BATCH.responses[row])
        new = logprobs(actor, prompt, response)
        with torch.no_grad():
            there = logprobs(reference, prompt, response)
        old = torch.tensor(BATCH.logprobs[row], dtype=torch.float64)
        away, ratio = there - new, (new - old).exp()
        gain = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
        total = total + (KL * (away.exp() - away - 1) - gain).sum()
        tokens += len(response)
    return total / tokens


def lab() -> tuple[torch.nn.Module, torch.nn.Module]:
    double = torch.float64
    return tiny.actor(dtype=double), tiny.nudged(tiny.actor(dtype=double), seed=11)


@pytest.mark.parametrize("micro_batch", [None, 3])
def test_the_gradient_is_that_of_plain_loops(micro_batch: int | None) -> None:
    actor, reference = lab()
    settings = Ppo(learning_rate=1e-3, num_ppo_epochs=1, kl_coef=KL, micro_batch=micro_batch)
    trainer = Trainer(actor, None, reference, settings, group=GROUP)
    other, _ = lab()
    loss = by_hand(other, reference)
    loss.backward()
    with gradients(actor=actor) as steps:
        told = trainer.update(BATCH, 0)
    assert told["loss/policy_avg"] == pytest.approx(loss.item(), abs=1e-6)
    (ours,) = steps
    for name, weight in other.named_parameters():
        assert weight.grad is not None
        assert (ours[f"actor.{name}"] - weight.grad).abs().max() < 1e-6, name
    assert told["loss/value_avg"] == 0


def test_half_a_group_is_not_trained() -> None:
    actor, reference = lab()
    trainer = Trainer(actor, None, reference, Ppo(), group=GROUP)
    shifted = replace(BATCH, rollouts=[rollout + 1 for rollout in BATCH.rollouts])
    with pytest.raises(EngineError, match="whole groups of 4, nothing was trained"):
        trainer.update(shifted, 0)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["trl", "oppo"])
@pytest.mark.parametrize("seed", ["0", "1"])
def test_a_tiny_actor_learns(schedule: str, seed: str, tmp_path: Path) -> None:
    """Chance is a half of the tokens even; PPO's own test asks the same of its runs."""
    sets = ["real.objective=grpo", "schedule.group=8", "real.workers=inline"]
    options = [part for one in sets for part in ("--set", one)]
    arguments = ["--schedule", schedule, "--seed", seed, "--steps", "20", "--out", str(tmp_path)]
    assert main(["train", str(EVEN), *arguments, *options]) == 0
    rewards = [record.reward for record in read_run(tmp_path).steps]
    assert statistics.mean(rewards[:2]) < 0.6
    assert statistics.mean(rewards[-3:]) > 0.8

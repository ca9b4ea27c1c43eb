"""Recorded batches - ragged rows, and the logits they were sampled from - and gradients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from oppo_real.ppo.trainer import Batch
from tests.real.tiny import EOS, VOCAB

# a response's length, and whether it ends in EOS; the widest batch is 7 tokens
RAGGED = ((7, False), (3, True), (5, True), (7, True), (1, True), (6, True), (2, True), (7, False))


@dataclass(frozen=True)
class Recorded:
    """`logits[r]` are those that response r's tokens were sampled from, `[tokens, V]`."""

    prompts: list[list[int]]
    responses: list[list[int]]
    logits: list[Tensor]
    rewards: list[float]
    stopped: list[bool]

    def batch(self, **changes: object) -> Batch:
        rows = range(len(self.prompts))
        along = [
            self.logits[r].log_softmax(1)[range(len(self.responses[r])), self.responses[r]]
            for r in rows
        ]
        logprobs = [logprobs.float().tolist() for logprobs in along]  # as a machine records them
        given: dict[str, object] = {
            "rollouts": [10 + r for r in rows],
            "prompts": self.prompts,
            "responses": self.responses,
            "logprobs": logprobs,
            "rewards": self.rewards,
            "ended": ["stop" if stopped else "cap" for stopped in self.stopped],
            "versions": [[0] * len(response) for response in self.responses],
        }
        return Batch(**(given | changes))  # type: ignore[arg-type]


def record(
    sampler: nn.Module,
    reward: nn.Module,
    temperature: float = 1.0,
    shape: tuple[tuple[int, bool], ...] = RAGGED,
    seed: int = 0,
) -> Recorded:
    """Responses of given lengths, sampled from `sampler`'s logits over the words."""
    generator = torch.Generator().manual_seed(seed)
    prompts, responses, logits, rewards = [], [], [], []
    for tokens, stops in shape:
        length = int(torch.randint(1, 6, (), generator=generator))
        prompts.append(torch.randint(3, VOCAB, (length,), generator=generator).tolist())
        response: list[int] = []
        for t in range(tokens):
            seen = _logits(sampler, [*prompts[-1], *response])[-1] / temperature
            seen[:3] = -torch.inf
            token = int(torch.multinomial(seen.softmax(0), 1, generator=generator))
            response.append(EOS if stops and t == tokens - 1 else token)
        responses.append(response)
        whole = _logits(sampler, [*prompts[-1], *response])
        logits.append(whole[len(prompts[-1]) - 1 : -1] / temperature)
        rewards.append(_score(reward, [*prompts[-1], *response]))
    return Recorded(prompts, responses, logits, rewards, [stops for _, stops in shape])


@torch.no_grad()
def _logits(model: nn.Module, ids: list[int]) -> Tensor:
    return model(input_ids=torch.tensor([ids])).logits[0]


@torch.no_grad()
def _score(model: nn.Module, ids: list[int]) -> float:
    return model(input_ids=torch.tensor([ids])).logits.float().item()


@contextmanager
def gradients(**models: nn.Module) -> Iterator[list[dict[str, Tensor]]]:
    """What each optimiser step in the while is given, by parameter's name."""
    names = {
        id(weight): f"{model}.{name}"
        for model, module in models.items()
        for name, weight in module.named_parameters()
    }
    steps: list[dict[str, Tensor]] = []

    def take(optimiser: torch.optim.Optimizer, *_: object) -> None:
        weights = [weight for group in optimiser.param_groups for weight in group["params"]]
        given = [(names.get(id(w)), w.grad) for w in weights]
        steps.append({name: grad.clone() for name, grad in given if name and grad is not None})

    handle = register_optimizer_step_pre_hook(take)
    try:
        yield steps
    finally:
        handle.remove()

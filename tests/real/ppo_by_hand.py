"""PPO's first optimiser step with plain loops: row by row, token by token, nothing padded."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from oppo_real.ppo.trainer import Batch
from oppo_sim.config.real import Ppo


def gradient(
    actor: nn.Module,
    critic: nn.Module,
    reference: nn.Module,
    batch: Batch,
    settings: Ppo,
    temperature: float,
) -> dict[str, Tensor]:
    """Of policy loss + vf_coef * value loss over the whole batch; metrics are not computed."""
    for model in (actor, critic):
        model.zero_grad()
    rows = range(len(batch.rollouts))
    new = [_logprobs(actor, batch, r, temperature) for r in rows]
    values = [_values(critic, batch, r) for r in rows]
    policy_losses, value_losses = [], []
    advantages, returns = [], []
    old, behaviour = [], []
    for r in rows:
        sampled = list(batch.logprobs[r])
        recomputed = [_rounded(x) for x in new[r].tolist()]
        old.append(sampled if settings.ratio == "behaviour" else recomputed)
        behaviour.append(sampled)
        penalised = recomputed if settings.ratio == "recomputed" else sampled
        known = [_rounded(x) for x in _logprobs(reference, batch, r, temperature).tolist()]
        rewards = [
            -settings.kl_coef * _kl(p, q, settings) for p, q in zip(penalised, known, strict=True)
        ]
        rewards[-1] += batch.rewards[r]
        if batch.ended[r] == "cap":
            rewards[-1] -= settings.missing_eos_penalty or 0.0
        now = [_rounded(x) for x in values[r].tolist()]
        gained = _advantages(rewards, now, settings)
        advantages.append(gained)
        returns.append([a + v for a, v in zip(gained, now, strict=True)])
    flat = [a for row in advantages for a in row]
    mean = sum(flat) / len(flat)
    deviation = math.sqrt(sum((a - mean) ** 2 for a in flat) / (len(flat) - 1) + 1e-8)
    for r in rows:
        for t, unwhitened in enumerate(advantages[r]):
            advantage = (unwhitened - mean) / deviation
            ratio = torch.exp(new[r][t] - old[r][t])
            near = min(max(ratio, 1 - settings.cliprange), 1 + settings.cliprange)
            loss = -min(ratio * advantage, near * advantage)
            if settings.ratio == "decoupled":
                weight = math.exp(old[r][t] - behaviour[r][t])
                loss = loss * min(weight, settings.behaviour_cap)
            policy_losses.append(loss)
            # at the first step values are the old ones: what is clipped is the rounding alone
            value_losses.append(0.5 * (values[r][t] - returns[r][t]) ** 2)
    tokens = len(policy_losses)
    (sum(policy_losses) / tokens + settings.vf_coef * sum(value_losses) / tokens).backward()
    named = [("actor", actor), ("critic", critic)]
    return {
        f"{model}.{name}": weight.grad
        for model, module in named
        for name, weight in module.named_parameters()
    }


def _logprobs(model: nn.Module, batch: Batch, row: int, temperature: float) -> Tensor:
    prompt, response = list(batch.prompts[row]), list(batch.responses[row])
    logits = model(input_ids=torch.tensor([prompt + response])).logits[0]
    logprobs = (logits / (temperature + 1e-7)).log_softmax(1)
    return torch.stack([logprobs[len(prompt) - 1 + t, y] for t, y in enumerate(response)])


def _values(critic: nn.Module, batch: Batch, row: int) -> Tensor:
    prompt, response = list(batch.prompts[row]), list(batch.responses[row])
    states = critic.model(input_ids=torch.tensor([prompt + response])).last_hidden_state
    return critic.score(states)[0, len(prompt) - 1 : -1, 0]


def _rounded(number: float) -> float:
    return torch.tensor(number, dtype=torch.float32).item()


def _kl(logprob: float, reference: float, settings: Ppo) -> float:
    away = reference - logprob
    return -away if settings.kl_estimator == "k1" else math.exp(away) - 1 - away


def _advantages(rewards: list[float], values: list[float], settings: Ppo) -> list[float]:
    ahead = [*values[1:], 0.0]
    delta = [r + settings.gamma * n - v for r, n, v in zip(rewards, ahead, values, strict=True)]
    weight = settings.gamma * settings.lam
    return [
        sum(weight ** (k - t) * delta[k] for k in range(t, len(delta))) for t in range(len(delta))
    ]

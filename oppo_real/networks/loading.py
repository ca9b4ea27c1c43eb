"""All models of a `[real]` table, loaded and checked against each other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from oppo_real.errors import ModelError
from oppo_real.networks.models import context_tokens, critic_of, load
from oppo_real.networks.rules import RuleReward, is_rule, load_rule
from oppo_real.networks.sources import check_source, place
from oppo_real.networks.vocabulary import (
    check_same_tokens,
    check_vocabulary,
    load_tokenizer,
    stop_ids,
)
from oppo_sim.config import Real

# Random weights of different models must not be the same: each has a seed of its own.
_SEEDS = {"actor": 0, "reward": 1, "reference": 2, "critic": 3}


@dataclass(frozen=True, slots=True)
class Models:
    """On their device, in eval mode. What is frozen wants no gradient."""

    actor: Any  # a causal LM
    critic: Any | None  # a backbone with `.score` of one number; None: GRPO has none
    reference: nn.Module | None  # frozen; None: there is no KL term
    reward: nn.Module | RuleReward  # frozen
    tokenizer: Any | None  # None: prompts and rules are token ids
    stop_ids: tuple[int, ...]

    @property
    def trained(self) -> dict[str, nn.Module]:
        """By their names in checkpoints."""
        both = {"actor": self.actor, "critic": self.critic}
        return {name: model for name, model in both.items() if model is not None}

    @property
    def vocabulary(self) -> int:
        return int(self.actor.config.vocab_size)

    @property
    def context_tokens(self) -> int | None:
        """Tokens that the actor and a reward model can read."""
        models = [self.actor, self.critic, self.reference]
        if isinstance(self.reward, nn.Module):
            models.append(self.reward)
        known = [context_tokens(model) for model in models if model is not None]
        return min([tokens for tokens in known if tokens is not None], default=None)


def load_models(real: Real, folder: Path, seed: int) -> Models:
    """Paths are relative to `folder`. The same seed gives the same random weights.

    Raises ModelError: field, value, remedy.
    """
    _need_device(real)
    _need_sources(real, folder)
    actor = _load(real, folder, "actor", real.actor, seed)
    tokenizer = _tokenizer(real, folder)
    reward = _reward(real, folder, seed, actor, tokenizer)
    critic = None if real.objective == "grpo" else _critic(real, folder, seed, actor, reward)
    stops = stop_ids(actor, tokenizer, real.stop_token_ids)
    reference = _reference(real, folder, seed)
    for kind, model in (("critic", critic), ("reference", reference)):
        if model is not None:
            check_vocabulary(f"real.{kind}", actor, model)
    return Models(actor, critic, reference, reward, tokenizer, stops)


def load_scorer(
    real: Real, folder: Path, seed: int
) -> tuple[nn.Module | RuleReward, nn.Module | None]:
    """Reward and reference alone, the same as `load_models` has them: for a process of its own."""
    reward = _reward(real, folder, seed, None, _tokenizer(real, folder))
    return reward, _reference(real, folder, seed) if "reference" in real.on_scorer else None


def _tokenizer(real: Real, folder: Path) -> Any | None:
    if real.tokenizer == "none":
        return None
    if real.tokenizer is None:
        return load_tokenizer(place(folder, real.actor), "real.actor")
    return load_tokenizer(place(folder, real.tokenizer))


def _reward(
    real: Real, folder: Path, seed: int, actor: Any | None, tokenizer: Any | None
) -> nn.Module | RuleReward:
    if is_rule(real.reward):
        decode = None if tokenizer is None else partial(tokenizer.decode, skip_special_tokens=True)
        return RuleReward(load_rule(real.reward), decode)
    reward: nn.Module = _load(real, folder, "reward", real.reward, seed).requires_grad_(False)
    if actor is not None:
        its = load_tokenizer(place(folder, real.reward), "real.reward")
        check_same_tokens((actor, tokenizer), (reward, its))
    return reward


def _critic(real: Real, folder: Path, seed: int, actor: Any, reward: nn.Module | RuleReward) -> Any:
    critic = (
        critic_of(reward if isinstance(reward, nn.Module) else actor, seed + _SEEDS["critic"])
        if real.critic is None
        else _load(real, folder, "critic", real.critic, seed)
    )
    for parameter in critic.parameters():
        parameter.requires_grad_(True)
    return critic


def _reference(real: Real, folder: Path, seed: int) -> nn.Module | None:
    """The actor as the run begins is the actor loaded again: a resumed run has the same one."""
    if real.reference == "none":
        return None
    if real.reference is None:
        model: nn.Module = _load(real, folder, "actor", real.actor, seed)
    else:
        model = _load(real, folder, "reference", real.reference, seed)
    return model.requires_grad_(False)


def _load(real: Real, folder: Path, kind: Any, source: str, seed: int) -> Any:
    return load(
        place(folder, source),
        kind,
        seed=seed + _SEEDS[kind],
        dtype=real.dtype,
        device=real.device,
        initializer_range=real.initializer_range,
    )


def _need_sources(real: Real, folder: Path) -> None:
    """All of them, before the first is loaded."""
    sources = {
        "actor": real.actor,
        "reward": None if is_rule(real.reward) else real.reward,
        "reference": real.reference,
        "critic": real.critic,
        "tokenizer": real.tokenizer,
    }
    for kind, source in sources.items():
        if source is not None and source != "none":
            check_source(folder, source, f"real.{kind}")


def _need_device(real: Real) -> None:
    if real.device == "cuda" and not torch.cuda.is_available():
        raise ModelError(
            "real.device = 'cuda': torch sees no CUDA device here; set it to 'cpu', or install a "
            "CUDA build of torch"
        )

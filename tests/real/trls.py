"""TRL's own PPOTrainer, unmodified, on a recorded batch: its gradients, metrics and weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from tests.real.recorded import Recorded
from tests.real.tiny import PAD, tokenizer


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
        steps.append({names[id(w)]: w.grad.clone() for w in weights if w.grad is not None})

    handle = register_optimizer_step_pre_hook(take)
    try:
        yield steps
    finally:
        handle.remove()


@dataclass(frozen=True)
class Trained:
    gradients: list[dict[str, Tensor]]
    metrics: dict[str, float]


def train(
    actor: nn.Module,
    critic: nn.Module,
    reference: nn.Module,
    reward: nn.Module,
    recorded: Recorded,
    folder: Path,
    **settings: object,
) -> Trained:
    """One update of `PPOTrainer.train()`; only its generation is replaced by the recording."""
    from trl.experimental.ppo import PPOConfig, PPOTrainer, ppo_trainer

    queries = _padded(recorded.prompts, left=True)
    responses = _padded(recorded.responses, left=False)
    logits = nn.utils.rnn.pad_sequence(recorded.logits, batch_first=True)
    rows = len(queries)
    given: dict[str, object] = {
        "output_dir": str(folder),
        "use_cpu": True,
        "bf16": False,
        "report_to": "none",
        "gradient_checkpointing": False,
        "per_device_train_batch_size": rows,
        "total_episodes": rows,
        "response_length": responses.shape[1],
        "num_sample_generations": 0,
        "save_strategy": "no",
        "stop_token": "eos",
    }
    with pytest.MonkeyPatch.context() as patch:
        both = torch.cat((queries, responses), 1)
        patch.setattr(ppo_trainer, "batch_generation", lambda *_: (both, logits))
        trainer = PPOTrainer(
            args=PPOConfig(**(given | settings)),
            processing_class=tokenizer(),
            model=actor,
            ref_model=reference,
            reward_model=reward,
            value_model=critic,
            train_dataset=Dataset.from_dict({"input_ids": queries.tolist()}),
            data_collator=lambda _: {"input_ids": queries},
        )
        told: list[dict[str, float]] = []
        patch.setattr(trainer, "log", told.append)
        with gradients(actor=actor, critic=critic) as steps:
            trainer.train()
    return Trained(steps, told[0])


def _padded(rows: list[list[int]], left: bool) -> Tensor:
    width = max(len(row) for row in rows)
    pads = [[PAD] * (width - len(row)) for row in rows]
    pairs = zip(pads, rows, strict=True)
    return torch.tensor([pad + row if left else row + pad for pad, row in pairs])

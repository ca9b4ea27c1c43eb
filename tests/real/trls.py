"""TRL's own PPOTrainer, unmodified, on a recorded batch: its gradients, metrics and weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from torch import Tensor, nn

from tests.real.recorded import Recorded, gradients
from tests.real.tiny import PAD, tokenizer


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
    passes: int = 2,
    rounded: bool = False,
    **settings: object,
) -> Trained:
    """One update of `PPOTrainer.train()`; only its generation is replaced by the recording.

    `passes`: batches in the data. With 1, the batch is the last of the data: there accelerate ends
    every gradient accumulation at once, and TRL steps after each micro-batch. `rounded`: numbers
    that an update holds fixed are rounded to float32, as our machine's are.
    """
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
        if rounded:
            score, read = ppo_trainer.get_reward, ppo_trainer.selective_log_softmax
            patch.setattr(ppo_trainer, "get_reward", lambda *x: (*map(_single, score(*x)),))
            patch.setattr(
                ppo_trainer,
                "selective_log_softmax",
                lambda *x: read(*x) if torch.is_grad_enabled() else _single(read(*x)),
            )
        trainer = PPOTrainer(
            args=PPOConfig(**(given | settings)),
            processing_class=tokenizer(),
            model=actor,
            ref_model=reference,
            reward_model=reward,
            value_model=critic,
            train_dataset=Dataset.from_dict({"input_ids": queries.tolist() * passes}),
            data_collator=lambda _: {"input_ids": queries},
        )
        told: list[dict[str, float]] = []
        patch.setattr(trainer, "log", told.append)
        torch.set_default_dtype(logits.dtype)  # whitening divides integers
        try:
            with gradients(actor=actor, critic=critic) as steps:
                trainer.train()
        finally:
            torch.set_default_dtype(torch.float32)
    return Trained(steps, told[0])


def _single(numbers: Tensor) -> Tensor:
    return numbers.float().to(numbers.dtype)


def _padded(rows: list[list[int]], left: bool) -> Tensor:
    width = max(len(row) for row in rows)
    pads = [[PAD] * (width - len(row)) for row in rows]
    pairs = zip(pads, rows, strict=True)
    return torch.tensor([pad + row if left else row + pad for pad, row in pairs])

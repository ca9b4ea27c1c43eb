"""Tiny PPOTrainers, and what passes through their `train()`: recorded, or looked at from within."""

from __future__ import annotations

import gc
import inspect
import os
import random
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from torch import Tensor
from transformers import TrainerCallback

from oppo_real.ppo.batch import Batch
from oppo_real.trl.hooks import HOOKED
from tests.real import tiny
from tests.real.tiny import EOS, VOCAB

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
from trl.experimental.ppo import PPOConfig, PPOTrainer, ppo_trainer

gc.freeze()  # TRL collects garbage several times a step; what was imported lies in its way

BATCH = 8
CAP = 16


def prompts(count: int = 3 * BATCH) -> list[list[int]]:
    draw = random.Random(3)
    return [[draw.randrange(3, VOCAB) for _ in range(draw.randint(1, 6))] for _ in range(count)]


def trainer(folder: Path, *, is_pad_eos: bool = False, steps: int = 4, **settings: Any) -> Any:
    """A tiny PPOTrainer: batches of 8 in micro-batches of 4, a large learning rate."""
    tokenizer = tiny.tokenizer()
    tokenizer.padding_side = "left"
    if is_pad_eos:
        tokenizer.pad_token = tokenizer.eos_token
    rest = {
        "eval_dataset": settings.pop("eval_dataset", None),
        "callbacks": settings.pop("callbacks", None),
        "reward_model": settings.pop("reward_model", None) or tiny.reward(),
        "train_dataset": Dataset.from_dict({"input_ids": settings.pop("prompts", prompts())}),
    }
    given: dict[str, Any] = {
        "output_dir": str(folder),
        "use_cpu": True,
        "bf16": False,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "logging_strategy": "no",
        "num_sample_generations": 0,
        "per_device_train_batch_size": BATCH // 2,
        "gradient_accumulation_steps": 2,
        "local_rollout_forward_batch_size": 3,
        "num_ppo_epochs": 2,
        "learning_rate": 1e-3,
        "total_episodes": steps * BATCH,
        "response_length": CAP,
        "stop_token": "eos",
        "temperature": 0.9,
        "kl_coef": 0.2,
        "missing_eos_penalty": 1.0,
    }
    made = PPOTrainer(
        args=PPOConfig(**(given | settings)),
        processing_class=tokenizer,
        model=tiny.actor(),
        ref_model=tiny.actor(),
        value_model=tiny.critic(),
        **rest,
    )
    np.random.seed(11)  # noqa: NPY002 - TRL's minibatches are drawn from it
    return made


def weights(trainer: Any) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in trainer.model.named_parameters()}


def distance(some: dict[str, Tensor], others: dict[str, Tensor]) -> float:
    return max(float((value - others[name]).abs().max()) for name, value in some.items())


@dataclass
class Step:
    """What one update of TRL had in its local variables when it was done."""

    queries: Tensor
    responses: Tensor
    logprobs: Tensor
    scores: Tensor
    is_padding: Tensor
    ratio: float


class Watch(TrainerCallback):
    """Looks into `PPOTrainer.train()` itself at the end of each step."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        frame: FrameType | None = inspect.currentframe()
        while frame is not None and frame.f_code is not PPOTrainer.train.__code__:
            frame = frame.f_back
        assert frame is not None
        at = frame.f_locals
        names = ("queries", "responses", "logprobs", "scores", "padding_mask")
        tensors = [at[name].clone() for name in names]
        self.steps.append(Step(*tensors, ratio=float(at["ratio_stats"][0, 0, 0])))


@dataclass
class Recording:
    """A plain run of TRL, its rollouts as they passed from one of its functions to the next."""

    batches: list[Batch] = field(default_factory=list)

    def attach(self, patch: pytest.MonkeyPatch, reward_model: object, pad: int) -> None:
        generate, softmax, reward = (getattr(ppo_trainer, name) for name in HOOKED)
        rows: dict[str, list[Tensor]] = {}

        def batch_generation(model: Any, queries: Tensor, *rest: Any) -> Any:
            rows.update(queries=[queries], logprobs=[], scores=[])
            both, logits = generate(model, queries, *rest)
            rows["responses"] = [both[:, queries.shape[1] :]]
            self.batches.append(None)  # type: ignore[arg-type]
            return both, logits

        def selective_log_softmax(logits: Tensor, index: Tensor) -> Tensor:
            found = softmax(logits, index)
            # it is asked for the actor's and the reference's, in turns, until the scores are there
            if sum(map(len, rows["scores"])) < BATCH:
                rows["logprobs"].append(found)
            return found

        def get_reward(model: Any, *rest: Any) -> Any:
            found = reward(model, *rest)
            if model is reward_model:
                rows["scores"].append(found[1])
                if sum(map(len, rows["scores"])) == BATCH:
                    logprobs = rows["logprobs"][::2]
                    self.batches[-1] = self._batch(rows | {"logprobs": logprobs}, pad)
            return found

        patch.setattr(ppo_trainer, "batch_generation", batch_generation)
        patch.setattr(ppo_trainer, "selective_log_softmax", selective_log_softmax)
        patch.setattr(ppo_trainer, "get_reward", get_reward)

    def _batch(self, rows: dict[str, list[Tensor]], pad: int) -> Batch:
        queries, responses, logprobs, scores = (
            torch.cat(rows[name]) for name in ("queries", "responses", "logprobs", "scores")
        )
        lengths = [length(row, EOS) for row in responses.tolist()]
        first = BATCH * (len(self.batches) - 1)
        return Batch(
            rollouts=range(first, first + BATCH),
            prompts=[row[row != pad].tolist() for row in queries],
            responses=[row[:n].tolist() for row, n in zip(responses, lengths, strict=True)],
            logprobs=[row[:n].tolist() for row, n in zip(logprobs, lengths, strict=True)],
            rewards=scores.tolist(),
            ended=["stop" if n < responses.shape[1] else "cap" for n in lengths],
            versions=[[len(self.batches) - 1] * n for n in lengths],
        )


def length(response: list[int], *ends: int) -> int:
    """Through the first of these tokens."""
    found = [t for t, token in enumerate(response) if token in ends]
    return found[0] + 1 if found else len(response)

"""TRL's own trainer on recorded rollouts: it leaves what it leaves by itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from oppo_real.networks.scoring import ScoreChunk
from oppo_real.ppo.batch import Batch
from oppo_real.trl import ppo_module
from oppo_real.trl.hooks import train_on
from oppo_real.trl.rollouts import RewardBeforePad
from tests.real.tiny import EOS
from tests.real.trl_lab import BATCH, Recording, distance, length, trainer, weights


@dataclass(frozen=True)
class Plain:
    """What TRL does by itself."""

    batches: list[Batch]
    weights: dict[str, Tensor]
    before: dict[str, Tensor]
    settings: dict[str, Any]


CASES: dict[str, dict[str, Any]] = {
    "eos": {},
    "pad is eos": {"is_pad_eos": True},
    "minibatches": {"num_mini_batches": 2, "kl_estimator": "k3", "missing_eos_penalty": None},
    "whole": {"gradient_accumulation_steps": 1, "per_device_train_batch_size": BATCH},
}


@pytest.fixture(scope="module", params=CASES)
def plain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Plain:
    """Four updates of three to an epoch: the third ends one, and the gradients' accumulation."""
    settings = CASES[request.param]
    ours = trainer(tmp_path_factory.mktemp("plain"), **settings)
    before = weights(ours)
    recording = Recording()
    with pytest.MonkeyPatch.context() as patch:
        pad = ours.processing_class.pad_token_id
        recording.attach(patch, ours.reward_model, pad)
        ours.train()
    assert len(recording.batches) == 4
    ended = Counter(end for batch in recording.batches for end in batch.ended)
    assert ended["stop"]
    return Plain(recording.batches, weights(ours), before, settings)


# replay


def test_replayed_rollouts_leave_bit_identical_weights(plain: Plain, tmp_path: Path) -> None:
    again = trainer(tmp_path, **plain.settings)
    train_on(again, ppo_module(), iter(plain.batches))
    assert distance(plain.before, plain.weights) > 1e-3, "nothing was learnt"
    for name, value in weights(again).items():
        assert torch.equal(value, plain.weights[name]), name


def streamed(batch: Batch, scorer: RewardBeforePad, chunk: int, pad: int) -> Batch:
    """The batch with rewards that were read while the responses grew by `chunk` tokens.

    TRL's own actor goes on after a sampled pad, behind which nobody looks: ours ends there.
    """
    rewards = dict[int, float]()
    longest = max(map(len, batch.responses))
    responses = [response[: length(list(response), EOS, pad)] for response in batch.responses]
    for start in range(0, longest, chunk):
        chunks = [
            ScoreChunk(rollout, prompt, response[start : start + chunk], start, last)
            for rollout, prompt, response in zip(
                batch.rollouts, batch.prompts, responses, strict=True
            )
            if start < len(response)
            for last in [start + chunk >= len(response)]
        ]
        for scored in scorer.score(chunks):
            if scored.reward is not None:
                rewards[scored.rollout] = scored.reward
    return replace(batch, rewards=[rewards[rollout] for rollout in batch.rollouts])


def test_streamed_rewards_leave_the_same_weights_within_1e_4(plain: Plain, tmp_path: Path) -> None:
    again = trainer(tmp_path, **plain.settings)
    pad = again.processing_class.pad_token_id
    scorer = RewardBeforePad(again.reward_model, pad, coalesce=True)
    batches = [streamed(batch, scorer, 3, pad) for batch in plain.batches]
    worst = max(
        abs(a - b)
        for one, other in zip(batches, plain.batches, strict=True)
        for a, b in zip(one.rewards, other.rewards, strict=True)
    )
    assert worst < 2e-5
    train_on(again, ppo_module(), iter(batches))
    assert distance(weights(again), plain.weights) < 1e-4

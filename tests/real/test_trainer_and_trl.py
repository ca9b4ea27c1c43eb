"""The trainer against TRL 1.12's own, unmodified PPOTrainer.train() on the same recorded batch."""

from pathlib import Path

import numpy as np
import pytest
import torch

from oppo_real.ppo.trainer import Trainer
from oppo_sim.config.real import Ppo
from tests.real import tiny, trls
from tests.real.recorded import RAGGED, Recorded, gradients, record

pytestmark = pytest.mark.slow  # importing TRL takes most of it
TEMPERATURE = 0.7


class Models:
    """Two of these are equal, weight for weight."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.actor, self.critic = tiny.actor(dtype=dtype), tiny.critic(dtype=dtype)
        self.reference = tiny.nudged(tiny.actor(dtype=dtype), seed=11)
        self.reward = tiny.reward(dtype=dtype)

    def recorded(self, shape: tuple[tuple[int, bool], ...] = RAGGED) -> Recorded:
        """Sampled by slightly other weights, so that ratios are not 1 and some are clipped."""
        return record(tiny.nudged(self.actor), self.reward, TEMPERATURE, shape)

    def weights(self) -> list[torch.Tensor]:
        return [*self.actor.parameters(), *self.critic.parameters()]


def both(
    dtype: torch.dtype,
    folder: Path,
    shape: tuple[tuple[int, bool], ...] = RAGGED,
    theirs: dict[str, object] | None = None,
    ours: dict[str, object] | None = None,
    **settings: object,
) -> tuple[trls.Trained, trls.Trained, Models, Models]:
    """The same update by TRL and by us."""
    settings = {"learning_rate": 1e-3, "num_ppo_epochs": 3} | settings
    one, other = Models(dtype), Models(dtype)
    recorded = one.recorded(shape)
    trl = trls.train(
        one.actor,
        one.critic,
        one.reference,
        one.reward,
        recorded,
        folder,
        temperature=TEMPERATURE,
        **(settings | (theirs or {})),
    )
    trainer = Trainer(
        other.actor,
        other.critic,
        other.reference,
        Ppo(**(settings | (ours or {}))),
        temperature=TEMPERATURE,
        score_at="trl",
    )
    with gradients(actor=other.actor, critic=other.critic) as steps:
        metrics = trainer.update(recorded.batch(), 0)
    return trl, trls.Trained(steps, metrics), one, other


def furthest(theirs: trls.Trained, ours: trls.Trained) -> float:
    assert len(theirs.gradients) == len(ours.gradients) > 0
    return max(
        (expected[name] - got[name]).abs().max().item()
        for expected, got in zip(theirs.gradients, ours.gradients, strict=True)
        for name in expected
    )


SETTINGS = {
    "plain": {"missing_eos_penalty": 0.5},
    "other": {"kl_estimator": "k3", "whiten_rewards": True, "gamma": 0.98, "lam": 0.9},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_and_losses_are_trls(
    dtype: torch.dtype, settings: dict[str, object], tmp_path: Path
) -> None:
    theirs, ours, *_ = both(dtype, tmp_path, **settings)
    assert furthest(theirs, ours) <= 1e-6
    same = [
        "objective/kl",
        "objective/entropy",
        "objective/non_score_reward",
        "objective/rlhf_reward",
        "objective/scores",
        "policy/clipfrac_avg",
        "loss/policy_avg",
        "loss/value_avg",
        "val/clipfrac_avg",
        "val/num_eos_tokens",
        "lr",
    ]
    for name in same:
        assert ours.metrics[name] == pytest.approx(theirs.metrics[name], abs=1e-6, rel=1e-6), name
    assert 0.05 < ours.metrics["policy/clipfrac_avg"] < 0.95


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_weights_are_trls(settings: dict[str, object], tmp_path: Path) -> None:
    """In float64, all but our rounding: Adam makes much of gradients next to nothing."""
    rounded: dict[str, object] = {"rounded": True}
    theirs, ours, one, other = both(torch.float64, tmp_path, theirs=rounded, **settings)
    assert furthest(theirs, ours) <= 1e-12
    for expected, got in zip(one.weights(), other.weights(), strict=True):
        torch.testing.assert_close(got, expected, atol=1e-9, rtol=0)
    moved = Models(torch.float64).weights()
    assert not any(torch.equal(was, now) for was, now in zip(moved, other.weights(), strict=True))


def test_means_differ_from_trls_by_its_padding_alone(tmp_path: Path) -> None:
    theirs, ours, *_ = both(torch.float64, tmp_path)
    real = sum(tokens for tokens, _ in RAGGED) / (len(RAGGED) * 7)
    kl = ours.metrics["policy/approxkl_avg"]
    assert theirs.metrics["policy/approxkl_avg"] == pytest.approx(kl * real, rel=1e-5)
    ratio = ours.metrics["val/ratio"]
    assert theirs.metrics["val/ratio"] == pytest.approx(ratio * real + 1 - real, rel=1e-5)
    spread = ours.metrics["val/ratio_var"]
    assert theirs.metrics["val/ratio_var"] == pytest.approx(spread * real**2, rel=1e-4)


FULL = ((7, True), (7, False)) * 4


def test_without_padding_every_metric_is_trls(tmp_path: Path) -> None:
    theirs, ours, *_ = both(torch.float64, tmp_path, FULL)
    for name, number in ours.metrics.items():
        assert theirs.metrics[name] == pytest.approx(number, rel=1e-5, abs=1e-6), name


def test_mini_batches_of_the_same_rows_are_trls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = iter([np.random.default_rng((0, 0, epoch)).permutation(8) for epoch in range(3)])
    monkeypatch.setattr(np.random, "permutation", lambda _: next(orders))
    theirs, ours, *_ = both(torch.float64, tmp_path, num_mini_batches=2)
    assert len(ours.gradients) == 6
    assert furthest(theirs, ours) <= 1e-6


def test_trl_weighs_micro_batches_alike_and_we_weigh_tokens(tmp_path: Path) -> None:
    theirs = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
    ours = {"micro_batch": 4}
    equal = both(torch.float64, tmp_path, FULL, theirs, ours)[:2]
    assert furthest(*equal) <= 1e-6
    ragged = both(torch.float64, tmp_path, RAGGED, theirs, ours)[:2]
    assert furthest(*ragged) > 1e-3


def test_trl_with_micro_batches_steps_once_an_epoch_whatever_the_mini_batches(
    tmp_path: Path,
) -> None:
    theirs = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
    trl, ours, *_ = both(
        torch.float64, tmp_path, FULL, theirs, {"micro_batch": 2}, num_mini_batches=2
    )
    assert (len(trl.gradients), len(ours.gradients)) == (3, 6)

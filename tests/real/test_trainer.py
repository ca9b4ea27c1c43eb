"""The update against PPO written by hand, and what must not change it: pieces, order, restarts."""

import io
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oppo_real.errors import ModelError
from oppo_real.ppo.trainer import Batch, Trainer
from oppo_sim.config.real import Ppo
from oppo_sim.engine.contract import EngineError
from tests.real import ppo_by_hand, tiny
from tests.real.recorded import gradients, record

TEMPERATURE = 0.7


class Lab:
    """A trainer of two tiny models; labs of one dtype begin equal, weight for weight."""

    def __init__(
        self,
        settings: Ppo | None = None,
        dtype: torch.dtype = torch.float64,
        device: str = "cpu",
        **more: Any,
    ) -> None:
        self.reference = tiny.nudged(tiny.actor(dtype=dtype), seed=11).to(device)
        self.actor = tiny.actor(dtype=dtype).to(device)
        self.critic = tiny.critic(dtype=dtype).to(device)
        self.settings = settings or ppo()
        reference = more.pop("reference", self.reference)
        more = {"temperature": TEMPERATURE} | more
        self.trainer = Trainer(self.actor, self.critic, reference, self.settings, **more)

    def update(self, batch: Batch | None = None) -> list[dict[str, Tensor]]:
        """The gradient of each optimiser step."""
        with gradients(actor=self.actor, critic=self.critic) as steps:
            self.metrics = self.trainer.update(batch or BATCH, self.trainer.updates)
        return steps

    def weights(self) -> list[Tensor]:
        return [w.detach().clone() for w in (*self.actor.parameters(), *self.critic.parameters())]


def ppo(**settings: Any) -> Ppo:
    return Ppo(**({"learning_rate": 1e-3, "num_ppo_epochs": 2} | settings))


RECORDED = record(tiny.nudged(tiny.actor()), tiny.reward(), TEMPERATURE)
BATCH = RECORDED.batch()


def assert_equal(ours: Iterable[Tensor], theirs: Iterable[Tensor]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert torch.equal(one, other)


def furthest(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    assert ours.keys() == theirs.keys()
    return max((ours[name].cpu() - theirs[name].cpu()).abs().max().item() for name in ours)


def relatively(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    """How far a gradient is off, as a share of its length."""
    off = sum((ours[name] - theirs[name]).double().square().sum() for name in ours)
    length = sum(grad.double().square().sum() for grad in theirs.values())
    return float(off / length) ** 0.5


@pytest.mark.parametrize(
    "settings",
    [
        {"missing_eos_penalty": 0.5},
        {"kl_estimator": "k3", "kl_coef": 0.3, "gamma": 0.97, "lam": 0.8},
        {"ratio": "recomputed", "kl_coef": 0.2},
        {"ratio": "decoupled", "behaviour_cap": 1.1, "vf_coef": 1.0},
    ],
)
def test_the_gradient_is_that_of_plain_loops(settings: dict[str, Any]) -> None:
    """One row at a time, without padding: lengths and ends are the carried ones."""
    lab, other = Lab(ppo(**settings)), Lab(ppo(**settings))
    expected = ppo_by_hand.gradient(
        other.actor, other.critic, other.reference, BATCH, other.settings, TEMPERATURE
    )
    assert furthest(lab.update()[0], expected) <= 1e-9


def test_a_pad_may_be_sampled_and_a_cut_row_may_end_in_eos() -> None:
    responses = [list(response) for response in BATCH.responses]
    responses[2][1] = responses[5][0] = tiny.PAD
    responses[0][-1] = tiny.EOS  # cut at the cap all the same
    batch = RECORDED.batch(responses=responses)
    settings = ppo(missing_eos_penalty=3.0)
    lab, other = Lab(settings), Lab(settings)
    expected = ppo_by_hand.gradient(
        other.actor, other.critic, other.reference, batch, settings, TEMPERATURE
    )
    assert furthest(lab.update(batch)[0], expected) <= 1e-9
    stopped = batch.ended.count("stop")
    assert lab.metrics["val/num_eos_tokens"] == stopped
    score = (sum(batch.rewards) - 3.0 * (8 - stopped)) / 8
    assert lab.metrics["objective/scores"] == pytest.approx(score)


def test_the_objectives_metrics_are_sums_over_responses() -> None:
    lab = Lab()
    lab.update()
    known = [
        ppo_by_hand._logprobs(lab.reference, BATCH, row, TEMPERATURE).tolist() for row in range(8)
    ]
    kl = sum(sum(p) - sum(q) for p, q in zip(BATCH.logprobs, known, strict=True)) / 8
    surprise = -sum(sum(p) for p in BATCH.logprobs) / 8
    reward = sum(BATCH.rewards) / 8
    assert lab.metrics["objective/kl"] == pytest.approx(kl)
    assert lab.metrics["objective/entropy"] == pytest.approx(surprise)
    assert lab.metrics["objective/non_score_reward"] == pytest.approx(-0.05 * kl)
    assert lab.metrics["objective/rlhf_reward"] == pytest.approx(reward - 0.05 * kl)
    assert lab.metrics["objective/scores"] == pytest.approx(reward)


@pytest.mark.parametrize("mini_batches", [1, 3])
@pytest.mark.parametrize("rows", [1, 3])
def test_micro_batches_add_up_to_the_mini_batch(rows: int, mini_batches: int) -> None:
    whole = Lab(ppo(num_mini_batches=mini_batches))
    pieces = Lab(ppo(num_mini_batches=mini_batches, micro_batch=rows))
    expected, got = whole.update(), pieces.update()
    assert len(got) == len(expected) == 2 * mini_batches
    assert max(map(furthest, got, expected)) <= 1e-12
    for name, number in whole.metrics.items():
        assert pieces.metrics[name] == pytest.approx(number, abs=1e-9), name


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("settings", [{}, {"micro_batch": 3, "gradient_checkpointing": True}])
def test_on_cuda_the_gradients_are_the_same(settings: dict[str, Any]) -> None:
    here, there = Lab(), Lab(ppo(**settings), device="cuda")
    # transformers' norms and rotations compute in float32, whatever the weights are
    assert max(map(furthest, there.update(), here.update())) <= 1e-5
    again = Lab(ppo(**settings), device="cuda")
    again.update()
    assert_equal(again.weights(), there.weights())


def test_layers_computed_again_change_nothing() -> None:
    plain, checkpointed = Lab(), Lab(ppo(gradient_checkpointing=True))
    for model in (checkpointed.actor, checkpointed.critic):
        for layer in model.model.layers:
            assert layer.gradient_checkpointing
        assert not model.training
    assert max(map(furthest, checkpointed.update(), plain.update())) <= 1e-12
    assert not checkpointed.actor.training


def test_dropout_is_off_where_checkpointing_wants_training_mode() -> None:
    dropping = tiny.actor(dtype=torch.float64, attention_dropout=0.5)
    lab = Lab(ppo(gradient_checkpointing=True))
    trainer = Trainer(dropping, lab.critic, lab.reference, lab.settings, temperature=TEMPERATURE)
    with gradients(actor=dropping, critic=lab.critic) as steps:
        trainer.update(BATCH, 0)
    assert max(map(furthest, steps, Lab().update())) <= 1e-12


def test_autocast_is_near_and_leaves_weights_in_float32() -> None:
    exact, cast = Lab(dtype=torch.float32), Lab(ppo(autocast="bfloat16"), torch.float32)
    expected, got = exact.update()[0], cast.update()[0]
    assert {weight.dtype for weight in cast.weights()} == {torch.float32}
    assert 1e-4 < relatively(got, expected) < 0.1


def test_steps_too_small_for_bfloat16_are_not_lost() -> None:
    """32 steps of 2e-5 on a weight near 0.15, whose neighbours in bfloat16 are 1e-3 away."""
    lab = Lab(ppo(learning_rate=2e-5, num_ppo_epochs=32), torch.bfloat16)
    before = lab.weights()
    lab.update()
    changed = [(now != was).float().mean() for now, was in zip(lab.weights(), before, strict=True)]
    assert sum(changed) / len(changed) > 0.2


def test_gradients_are_clipped_over_both_networks_together() -> None:
    free, clipped = Lab(), Lab(ppo(max_grad_norm=0.01))
    expected, got = free.update()[0], clipped.update()[0]
    norm = sum(float(grad.square().sum()) for grad in expected.values()) ** 0.5
    assert norm > 0.01
    scaled = {name: grad * 0.01 / norm for name, grad in expected.items()}
    assert relatively(got, scaled) < 1e-4


def test_a_linear_rate_reaches_zero_after_the_last_step() -> None:
    lab = Lab(ppo(lr_schedule="linear", num_ppo_epochs=1), steps=4)
    rates = []
    for _ in range(4):
        lab.update()
        rates.append(lab.metrics["lr"])
    assert rates == pytest.approx([1e-3, 0.75e-3, 0.5e-3, 0.25e-3])
    with pytest.raises(ModelError, match=r"lr_schedule.*steps"):
        Lab(ppo(lr_schedule="linear"))


def test_only_matrices_decay() -> None:
    lab, plain = Lab(ppo(weight_decay=0.1, num_ppo_epochs=1)), Lab(ppo(num_ppo_epochs=1))
    lab.update()
    plain.update()
    start = Lab().weights()
    for decayed, kept, was in zip(lab.weights(), plain.weights(), start, strict=True):
        expected = kept - 1e-3 * 0.1 * was if was.ndim >= 2 else kept
        torch.testing.assert_close(decayed, expected, atol=1e-12, rtol=0)


def shuffled(batch: Batch, order: list[int]) -> Batch:
    rows = {name: getattr(batch, name) for name in Batch.__slots__}
    return Batch(**{n: v and [v[row] for row in order] for n, v in rows.items()})


def test_the_order_of_arrival_does_not_matter() -> None:
    one, other = (Lab(ppo(num_mini_batches=2, micro_batch=3), torch.float32) for _ in range(2))
    one.update()
    other.update(shuffled(BATCH, [5, 2, 7, 0, 1, 4, 6, 3]))
    assert_equal(one.weights(), other.weights())
    assert one.metrics == other.metrics


def test_rows_are_dealt_by_seed_update_and_epoch() -> None:
    def dealt(seed: int) -> list[dict[str, Tensor]]:
        return Lab(ppo(num_mini_batches=2, num_ppo_epochs=1), seed=seed).update()

    assert furthest(dealt(3)[0], dealt(3)[0]) == 0
    assert furthest(dealt(3)[0], dealt(4)[0]) > 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_resumed_trainer_leaves_the_same_bits(dtype: torch.dtype) -> None:
    settings = ppo(num_mini_batches=2, lr_schedule="linear", max_grad_norm=0.5)
    through, first, second = (Lab(settings, dtype, steps=3) for _ in range(3))
    for _ in range(3):
        through.update()
    first.update()
    saved = io.BytesIO()
    models = [first.actor.state_dict(), first.critic.state_dict()]
    torch.save((models, first.trainer.state_dict()), saved)
    saved.seek(0)
    (actor, critic), state = torch.load(saved, weights_only=True)
    second.actor.load_state_dict(actor)
    second.critic.load_state_dict(critic)
    second.trainer.load_state_dict(state)
    second.update()
    second.update()
    assert_equal(second.weights(), through.weights())


def test_streamed_numbers_leave_the_same_weights_as_computed_ones() -> None:
    """Exactly, in float64, though their last bits differ: an update reads them as float32."""
    computed, streamed = Lab(), Lab(reference=None)
    rows = range(8)
    known = [ppo_by_hand._logprobs(computed.reference, BATCH, r, TEMPERATURE) for r in rows]
    values = [ppo_by_hand._values(computed.critic, BATCH, r) for r in rows]
    computed.update()
    streamed.update(
        RECORDED.batch(
            reference=[row.tolist() for row in known],
            values=[row.tolist() for row in values],
        )
    )
    assert_equal(streamed.weights(), computed.weights())


def forced(logits: Tensor, rollouts: Tensor, index: Tensor) -> Tensor:
    """Rollouts end at the recorded length and not before."""
    lengths = {rollout: len(r) for rollout, r in zip(BATCH.rollouts, BATCH.responses, strict=True)}
    last = [lengths[r] - 1 == i for r, i in zip(rollouts.tolist(), index.tolist(), strict=True)]
    eos = torch.arange(logits.shape[1]) == tiny.EOS
    return logits.masked_fill(eos != torch.tensor(last)[:, None], -torch.inf)


def test_a_rule_on_logits_holds_in_training_too() -> None:
    """A forced token has probability 1 under every model: no KL, no gradient, ratio 1."""
    responses = [[*response[:-1], tiny.EOS] for response in BATCH.responses]
    logprobs = [[*row[:-1], 0.0] for row in BATCH.logprobs]
    batch = RECORDED.batch(responses=responses, logprobs=logprobs)
    lab = Lab(ppo(num_ppo_epochs=1), rule=forced)
    lab.update(batch)
    one_token = shuffled(batch, [4])
    assert len(one_token.responses[0]) == 1
    alone = Lab(ppo(num_ppo_epochs=1), rule=forced)
    steps = alone.update(one_token)
    assert alone.metrics["objective/kl"] == 0
    assert alone.metrics["val/ratio"] == 1
    assert not any(grad.any() for name, grad in steps[0].items() if name.startswith("actor"))


def nan_at(rows: Any, row: int) -> list[list[float]]:
    rows = [list(values) for values in rows]
    rows[row][-1] = float("nan")
    return rows


BAD = {
    "reward": ({"rewards": [0.0] * 3 + [float("inf")] + [0.0] * 4}, "13: its reward is inf"),
    "logprob": ({"logprobs": nan_at(BATCH.logprobs, 1)}, r"11: logprobs\[2\] is nan"),
    "reference": ({"reference": nan_at(BATCH.logprobs, 2)}, r"12: reference\[4\] is nan"),
    "values": ({"values": nan_at(BATCH.logprobs, 5)}, r"15: values\[5\] is nan"),
    "prompt": ({"prompts": [*BATCH.prompts[:7], []]}, "17: its prompt is empty"),
    "response": ({"responses": [[], *BATCH.responses[1:]]}, "10: its response is empty"),
    "count": ({"logprobs": [[0.0], *BATCH.logprobs[1:]]}, "10: 1 logprobs for 7 tokens"),
    "end": ({"ended": ["eos"] * 8}, "10: it ended by 'eos'"),
    "version": ({"versions": [[1]] * 8}, r"10: its tokens' versions \[1\]"),
    "twice": ({"rollouts": [1] * 8}, "different rollouts"),
}


@pytest.mark.parametrize(("changes", "message"), BAD.values(), ids=BAD)
def test_bad_rows_are_named_and_nothing_is_trained(
    changes: dict[str, object], message: str
) -> None:
    lab = Lab()
    before = lab.weights()
    with pytest.raises(EngineError, match=message):
        lab.update(RECORDED.batch(**changes))
    assert_equal(lab.weights(), before)
    lab.update()  # and the trainer still works
    assert lab.trainer.updates == 1


@pytest.mark.parametrize("model", ["critic", "reference", "actor"])
def test_a_model_that_gives_nan_is_found_before_training(model: str) -> None:
    lab = Lab(ppo(ratio="decoupled"))
    module: nn.Module = getattr(lab, model)
    weight = module.model.embed_tokens.weight
    with torch.no_grad():
        weight[BATCH.responses[3][0]] = float("nan")
    before = lab.weights()
    with pytest.raises(EngineError, match=r"rollout \d+: the .* of token \d+ is nan"):
        lab.update()
    for now, was in zip(lab.weights(), before, strict=True):
        torch.testing.assert_close(now, was, atol=0, rtol=0, equal_nan=True)


def test_a_loss_that_overflows_changes_nothing() -> None:
    logprobs = [list(row) for row in BATCH.logprobs]
    logprobs[6] = [-1e4] * len(logprobs[6])  # finite, but the ratio is not
    lab = Lab(ppo(kl_coef=0.0))
    before = lab.weights()
    with pytest.raises(EngineError, match=r"update 0 of rollouts \[10, .*17\].*not taken"):
        lab.update(RECORDED.batch(logprobs=logprobs))
    assert_equal(lab.weights(), before)
    assert all(weight.grad is None for weight in lab.actor.parameters())
    assert lab.trainer.updates == 0
    other = Lab(ppo(kl_coef=0.0))
    lab.update()
    other.update()
    assert_equal(lab.weights(), other.weights())


def test_a_kl_term_without_a_reference_is_refused() -> None:
    with pytest.raises(EngineError, match=r"kl_coef: 0\.05 needs reference"):
        Lab(reference=None).update()
    lab = Lab(ppo(kl_coef=0.0), reference=None)
    lab.update()
    assert lab.metrics["objective/kl"] == 0


def test_updates_come_in_turn() -> None:
    lab = Lab()
    with pytest.raises(EngineError, match="update 1 was asked for, but update 0 is due"):
        lab.trainer.update(BATCH, 1)

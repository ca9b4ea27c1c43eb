"""A continuous batch against rollouts decoded alone and against plain forwards without a cache."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM

from oppo_real.errors import ModelError
from oppo_real.networks import cache as caches
from oppo_real.networks.decoding import ContinuousBatch
from oppo_sim.costs import forwards
from tests.real import tiny

SEED, CAP = 11, 24
STOPS = (tiny.EOS, 7, 13)
PROMPTS = ([5, 6, 8], [9], [10] * 40, [3, 4], list(range(20, 37)), [50, 51, 52, 53, 54, 55])
CAPS = (CAP, 5, CAP, 1, CAP, 17)


def llama(seed: int = 0) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=tiny.VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=256,
        initializer_range=0.2,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
    )
    return LlamaForCausalLM(config).eval()


MODELS: dict[str, Callable[[], Any]] = {
    "qwen2": tiny.actor,
    "no grouped heads": lambda: tiny.actor(3, num_key_value_heads=4, tie_word_embeddings=True),
    "llama": llama,
}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def batch_of(model: Any, **settings: Any) -> ContinuousBatch:
    return ContinuousBatch(
        model, **({"stop_ids": STOPS, "cap_tokens": CAP, "seed": SEED} | settings)
    )


class Record:
    """What rollouts decoded, by rollout."""

    def __init__(self) -> None:
        self.tokens: dict[int, list[int]] = {}
        self.logprobs: dict[int, list[float]] = {}
        self.ended: dict[int, str] = {}

    def decode(self, batch: ContinuousBatch) -> None:
        out = batch.decode()
        for rollout, token, logprob, end in zip(*out, strict=True):
            assert rollout not in self.ended, "decoded after its end"
            self.tokens.setdefault(rollout, []).append(token)
            self.logprobs.setdefault(rollout, []).append(logprob)
            if end:
                self.ended[rollout] = end

    def matches(self, alone: Record, tolerance: float = 1e-5) -> None:
        assert self.tokens == alone.tokens
        assert self.ended == alone.ended
        for rollout, logprobs in alone.logprobs.items():
            assert self.logprobs[rollout] == pytest.approx(logprobs, abs=tolerance)


def alone(model: Any, prompts: Any = PROMPTS, **settings: Any) -> Record:
    record = Record()
    for rollout, (prompt, cap) in enumerate(zip(prompts, CAPS, strict=True)):
        batch = batch_of(model, **settings)
        batch.join(rollout, prompt, (), cap)
        batch.prefill()
        while batch.rollouts:
            record.decode(batch)
    return record


def full_logprobs(model: Any, prompt: list[int], response: list[int], temperature: float) -> Any:
    """A forward over the whole, without cache, mask or positions of ours."""
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *response]]), use_cache=False).logits
    logits = logits[0, len(prompt) - 1 : -1].double() / (temperature + 1e-7)
    return logits.log_softmax(-1).gather(1, torch.tensor(response)[:, None])[:, 0].tolist()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probabilities_are_those_of_a_full_forward(name: str, temperature: float) -> None:
    model = MODELS[name]()
    record = together(model, temperature=temperature)
    for rollout, response in record.tokens.items():
        exact = full_logprobs(model, PROMPTS[rollout], response, temperature)
        assert record.logprobs[rollout] == pytest.approx(exact, abs=1e-5)


def together(model: Any, **settings: Any) -> Record:
    record, batch = Record(), batch_of(model, **settings)
    for rollout, (prompt, cap) in enumerate(zip(PROMPTS, CAPS, strict=True)):
        batch.join(rollout, prompt, (), cap)
    assert batch.prefill() == sum(len(prompt) - 1 for prompt in PROMPTS)
    while batch.rollouts:
        record.decode(batch)
    return record


@pytest.mark.parametrize("name", MODELS)
def test_a_batch_decodes_what_each_decodes_alone(name: str) -> None:
    model = MODELS[name]()
    together(model).matches(alone(model))


def test_responses_end_at_any_stop_id_or_at_their_own_cap_and_nothing_follows() -> None:
    record = together(tiny.actor())
    for rollout, response in record.tokens.items():
        stopped = [token in STOPS for token in response]
        assert not any(stopped[:-1])
        assert record.ended[rollout] == ("stop" if stopped[-1] else "cap")
        assert stopped[-1] or len(response) == CAPS[rollout]
    assert len({record.tokens[r][-1] for r, end in record.ended.items() if end == "stop"}) > 1


@settings(max_examples=20)
@given(st.integers(0, 10**9), st.sampled_from(["qwen2", "llama"]))
def test_nothing_that_happens_around_a_rollout_changes_it(seed: int, name: str) -> None:
    """Rollouts join late, pause with and without their cache, are saved, moved to another batch."""
    drawn = random.Random(seed)
    model = _model(name)
    record, batches = Record(), [batch_of(model), batch_of(model)]
    waiting, paused = list(range(len(PROMPTS))), list[tuple[int, bool, ContinuousBatch]]()
    while waiting or paused or any(batch.rollouts for batch in batches):
        batch = drawn.choice(batches)
        match drawn.choice(["join", "pause", "return", "move", "recompute", "decode", "decode"]):
            case "join" if waiting:
                rollout = waiting.pop(drawn.randrange(len(waiting)))
                batch.join(rollout, PROMPTS[rollout], (), CAPS[rollout])
            case "pause" if batch.rollouts:
                rollout = drawn.choice(batch.rollouts)
                paused.append((rollout, batch.leave(rollout, drawn.random() < 0.7), batch))
            case "return" if paused:
                rollout, is_kept, home = paused.pop(drawn.randrange(len(paused)))
                response = record.tokens.get(rollout, [])
                if is_kept and rollout in home.kept:
                    home.resume(rollout)
                else:
                    batch.join(rollout, PROMPTS[rollout], response, CAPS[rollout])
            case "move" if kept := [p for p in paused if p[1] and p[0] in p[2].kept]:
                rollout, _, home = moving = drawn.choice(kept)
                response = record.tokens.get(rollout, [])
                saved = home.save(rollout)
                home.drop(rollout)
                batch.load(rollout, PROMPTS[rollout], response, saved, CAPS[rollout])
                paused[paused.index(moving)] = (rollout, True, batch)
            case "recompute" if drawn.random() < 0.3:
                batch.recompute()
            case "decode" if batch.rollouts:
                batch.prefill()
                record.decode(batch)
    record.matches(_alone(name))


_MODELS: dict[str, Any] = {}
_ALONE: dict[str, Record] = {}


def _model(name: str) -> Any:
    return _MODELS.setdefault(name, MODELS[name]())


def _alone(name: str) -> Record:
    if name not in _ALONE:
        _ALONE[name] = alone(_model(name))
    return _ALONE[name]


@pytest.mark.parametrize(
    ("method", "by"), [("step", 1), ("step", -1), ("_mask", 1), ("_mask", -1), ("fresh", 1)]
)
def test_the_tolerance_notices_a_wrong_mask_or_position(
    monkeypatch: pytest.MonkeyPatch, method: str, by: int
) -> None:
    """Positions, or what a query may see, off by one: a hundred times the tolerance at least."""
    model = tiny.actor()
    right = getattr(caches.SlotCache, method)
    rotate = model.model.rotary_emb.forward
    if method == "_mask":
        monkeypatch.setattr(
            caches.SlotCache, "_mask", lambda self, places: right(self, (places + by).clamp(min=0))
        )
    else:
        steps = method == "step"
        monkeypatch.setattr(
            model.model.rotary_emb,
            "forward",
            lambda x, ids: rotate(x, ids + by * ((ids.shape[1] == 1) == steps)),
        )
    record = together(model)
    monkeypatch.undo()
    worst = 0.0
    for rollout, response in record.tokens.items():
        exact = full_logprobs(model, PROMPTS[rollout], response, 1.0)
        pairs = zip(record.logprobs[rollout], exact, strict=True)
        worst = max(worst, *[abs(a - b) for a, b in pairs])
    assert worst > 100 * 1e-5


def test_new_weights_and_recompute_are_as_if_decoded_by_them_from_here_on() -> None:
    """Kept caches are stale after an update; recomputed ones are the new weights' own."""
    old, new, model = tiny.actor(0), tiny.actor(1), tiny.actor(0)
    batch, record = batch_of(model, stop_ids=()), Record()
    batch.join(4, PROMPTS[4])
    batch.prefill()
    for _ in range(6):
        record.decode(batch)
    model.load_state_dict(new.state_dict())
    batch.recompute()
    assert batch.prefill() == len(PROMPTS[4]) + 6 - 1
    while batch.rollouts:
        record.decode(batch)
    response = record.tokens[4]
    assert record.logprobs[4][:6] == pytest.approx(
        full_logprobs(old, PROMPTS[4], response, 1.0)[:6], abs=1e-5
    )
    assert record.logprobs[4][6:] == pytest.approx(
        full_logprobs(new, PROMPTS[4], response, 1.0)[6:], abs=1e-5
    )


def test_no_tensor_of_batch_by_time_by_vocabulary_exists() -> None:
    seen: list[int] = []
    model = tiny.actor()
    model.lm_head.register_forward_hook(lambda _, __, logits: seen.append(logits.numel()))
    together(model)
    assert max(seen) <= len(PROMPTS) * tiny.VOCAB


def test_bfloat16_weights_decode_like_a_full_bfloat16_forward() -> None:
    """Log-probabilities are float32; what differs is bfloat16's rounding (8 bits) in the layers."""
    model = tiny.actor(dtype=torch.bfloat16)
    record = together(model)
    for rollout, response in record.tokens.items():
        exact = full_logprobs(model, PROMPTS[rollout], response, 1.0)
        assert record.logprobs[rollout] == pytest.approx(exact, abs=0.25)


def test_other_seeds_other_tokens() -> None:
    model = tiny.actor()
    tokens = [str(together(model, seed=seed).tokens) for seed in range(3)]
    assert len(set(tokens)) == 3


def test_memory_is_that_of_the_fullest_moment() -> None:
    batch = batch_of(tiny.actor(), stop_ids=())
    sizes = []
    for round_ in range(3):
        for rollout in range(5):
            batch.join(10 * round_ + rollout, PROMPTS[rollout])
        batch.prefill()
        while batch.rollouts:
            batch.decode()
        sizes.append((batch._cache.slots, batch._cache.tokens))
    assert len(set(sizes)) == 1
    assert not batch.kept


def test_a_rule_sees_each_rows_rollout_and_index() -> None:
    """A rule that asks for token (3 + rollout + index) gets it."""

    def rule(logits: Any, rollouts: Any, index: Any) -> Any:
        return logits.index_put((torch.arange(len(index)), 3 + rollouts + index), torch.tensor(1e4))

    record, batch = Record(), batch_of(tiny.actor(), stop_ids=(), rule=rule)
    for rollout in range(3):
        batch.join(rollout, PROMPTS[rollout], (), 4 + rollout)
    batch.prefill()
    while batch.rollouts:
        record.decode(batch)
    assert record.tokens == {r: [3 + r + i for i in range(4 + r)] for r in range(3)}


@pytest.mark.parametrize(
    ("prompt", "response", "error", "words"),
    [
        ([], [], ModelError, "rollout 5: its prompt is empty"),
        ([3] * 250, [], ModelError, "rollout 5: a prompt of 250 tokens .* context of 256"),
        ([3], [4] * CAP, ValueError, "its cap is 24"),
    ],
)
def test_what_cannot_be_decoded_is_refused_by_name(
    prompt: list[int], response: list[int], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        batch_of(tiny.actor()).join(5, prompt, response)


def test_weights_that_diverged_are_an_error_that_names_the_rollout() -> None:
    model = tiny.actor()
    batch = batch_of(model, stop_ids=())
    batch.join(8, PROMPTS[0])
    batch.prefill()
    batch.decode()
    model.lm_head.weight.data.fill_(torch.nan)
    with pytest.raises(ModelError, match="rollout 8: the actor's logits are not finite at token 1"):
        batch.decode()


class _Older(torch.nn.Module):
    def forward(self, input_ids: Any, past_key_values: Any = None) -> None: ...


def test_the_cache_is_handed_over_by_the_name_that_the_model_knows() -> None:
    """transformers 5.23 has another than 5.24, where the old one warns at every call."""
    names = [caches._cache_name(model) for model in (tiny.actor().model, llama().model, _Older())]
    assert names == ["cache", "cache", "past_key_values"]


def test_misuse_is_refused() -> None:
    batch = batch_of(tiny.actor())
    with pytest.raises(ValueError, match="no rollout"):
        batch.decode()
    batch.join(1, PROMPTS[0])
    with pytest.raises(ValueError, match="have not been prefilled"):
        batch.decode()
    with pytest.raises(ValueError, match="in the batch already"):
        batch.join(1, PROMPTS[0])
    assert not batch.leave(1, keep=True), "there was nothing to keep"
    batch.join(1, PROMPTS[0])
    batch.prefill()
    assert batch.leave(1, keep=True)
    with pytest.raises(ValueError, match="always pending"):
        batch.load(2, PROMPTS[0], [3], batch.save(1))


def test_groups_pad_at_most_as_much_as_they_hold() -> None:
    for lengths in itertools.product([0, 1, 2, 3, 7, 100], repeat=3):
        found = forwards.groups(lengths)
        assert sorted(itertools.chain(*found)) == [0, 1, 2]
        for group in found:
            longest = max(lengths[row] for row in group)
            assert all(2 * lengths[row] >= longest for row in group)
    sizes = [len(group) for group in forwards.groups([forwards.PADDED_TOKENS // 2] * 5)]
    assert sizes == [2, 2, 1]

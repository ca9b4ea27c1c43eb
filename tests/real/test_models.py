"""Models from folders and configs, and one clear line for all that can be wrong with them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from oppo_real.errors import ModelError
from oppo_real.networks import models, rules, vocabulary
from oppo_real.networks.cache import SlotCache
from tests.real import tiny


def config_file(folder: Path, **changes: Any) -> Path:
    raw = tiny.config(**changes).to_diff_dict()
    raw |= {"model_type": "qwen2"} | {key: value for key, value in changes.items() if value}
    file = folder / "config.json"
    file.write_text(json.dumps(raw))
    return file


def saved(folder: Path, model: Any, tokenizer: Any = None) -> Path:
    model.save_pretrained(folder)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    return folder


def test_a_folder_gives_back_its_weights(tmp_path: Path) -> None:
    for kind, model in (
        ("actor", tiny.actor()),
        ("reward", tiny.reward()),
        ("critic", tiny.critic()),
    ):
        loaded = models.load(saved(tmp_path / kind, model), kind)  # type: ignore[arg-type]
        assert type(loaded) is type(model)
        assert not loaded.training
        assert loaded.config._attn_implementation == "sdpa"
        for name, weight in model.state_dict().items():
            assert torch.equal(loaded.state_dict()[name], weight)


def test_a_config_gives_random_weights_by_the_seed(tmp_path: Path) -> None:
    file = config_file(tmp_path, attention_dropout=0.5)
    state = torch.random.get_rng_state()
    first, again, other = (models.load(file, "actor", seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), state), "nobody else's draws are moved"
    weight = first.lm_head.weight
    assert torch.equal(weight, again.lm_head.weight)
    assert not torch.equal(weight, other.lm_head.weight)
    assert weight.std().item() == pytest.approx(0.15, rel=0.1)
    wide = models.load(file, "actor", seed=1, initializer_range=0.5)
    assert wide.lm_head.weight.std().item() == pytest.approx(0.5, rel=0.1)
    assert first.config.attention_dropout == 0, "PPO wants the same network twice"


def test_random_weights_do_not_depend_on_the_precision(tmp_path: Path) -> None:
    file = config_file(tmp_path)
    single, double, half = (
        models.load(file, "reward", dtype=dtype).score.weight
        for dtype in ("float32", "float64", "bfloat16")
    )
    assert torch.equal(double, single.double())
    assert torch.equal(half, single.bfloat16())


def test_scorers_have_one_number_per_token(tmp_path: Path) -> None:
    critic = models.load(config_file(tmp_path), "critic")
    assert critic.score.out_features == 1
    backbone = saved(tmp_path / "causal", tiny.actor())
    headed = models.load(backbone, "critic", seed=3)
    assert torch.equal(headed.model.norm.weight, tiny.actor().model.norm.weight)
    assert headed.score.weight.shape == (1, 32)


def test_a_critic_begins_as_the_model_it_is_made_of() -> None:
    actor, reward = tiny.actor(), tiny.reward()
    for model in (actor, reward):
        critic = models.critic_of(model, seed=1)
        assert not critic.training
        for name, weight in model.model.state_dict().items():
            assert torch.equal(critic.model.state_dict()[name], weight)
            assert critic.model.get_parameter(name) is not model.model.get_parameter(name)
    assert torch.equal(models.critic_of(reward, 1).score.weight, reward.score.weight)
    assert torch.equal(
        models.critic_of(actor, 1).score.weight, models.critic_of(actor, 1).score.weight
    )
    assert models.critic_of(actor.bfloat16(), 1).score.weight.dtype == torch.bfloat16


def test_what_cannot_be_loaded_says_why_and_what_to_do(tmp_path: Path) -> None:
    two = saved(tmp_path / "two", tiny.reward(num_labels=2))
    causal = saved(tmp_path / "causal", tiny.actor())
    empty = tmp_path / "empty"
    empty.mkdir()
    text = tmp_path / "text.json"
    text.write_text("{")
    untyped = tmp_path / "untyped.json"
    untyped.write_text("{}")
    listed = tmp_path / "listed.json"
    listed.write_text("[]")
    unknown = tmp_path / "unknown.json"
    unknown.write_text('{"model_type": "qwen99"}')
    for source, kind, words in (
        (two, "reward", "real.reward = .*num_labels = 2, must be 1"),
        (two, "critic", "num_labels = 2"),
        (causal, "reward", "no score head; give a model that was saved as a reward"),
        (tmp_path / "nowhere", "actor", "real.actor = .*nowhere'?: no such folder; give a folder"),
        ("./nowhere", "actor", "no such folder"),
        ("nobody/has-this", "actor", "cannot load it .* has been downloaded"),
        (empty, "actor", "cannot load it"),
        (tmp_path / "gone.json", "actor", "cannot read it"),
        (text, "actor", "not JSON"),
        (listed, "actor", "must be an object"),
        (untyped, "actor", "model_type is missing"),
        (unknown, "actor", "qwen99"),
        (config_file(tmp_path, num_labels=3), "reward", "num_labels = 3"),
    ):
        with pytest.raises(ModelError, match=words) as caught:
            models.load(source, kind)  # type: ignore[arg-type]
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"is_encoder_decoder": True}, "encoder-decoder"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "linear_attention"),
    ],
)
def test_networks_that_do_not_see_all_tokens_are_refused(
    changes: dict[str, Any], words: str
) -> None:
    config = tiny.config()
    for name, value in changes.items():
        setattr(config, name, value)
    with pytest.raises(ModelError, match=words):
        models.refuse_unsupported(config, "real.actor")


SLIDING: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": 24},
    "qwen2": {"use_sliding_window": True, "sliding_window": 24, "max_window_layers": 1},
}


@pytest.mark.parametrize("kind", SLIDING)
def test_a_window_is_refused_where_it_would_hide_a_token(kind: str) -> None:
    """transformers' own forward says where that begins: one token beyond the window."""
    shape = {**tiny.config().to_diff_dict(), "head_dim": 8, **SLIDING[kind]}
    for key in ("model_type", "layer_types"):
        shape.pop(key, None)
    config = AutoConfig.for_model(kind, **shape)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").double().eval()
    ids = torch.randint(3, tiny.VOCAB, (2, 25))
    cache = SlotCache(model.base_model)
    cache.reserve(2, 32)
    slots, starts = torch.arange(2), torch.tensor([8, 8])
    with torch.inference_mode():
        whole = model.base_model(ids, use_cache=False).last_hidden_state
        parts = [cache.fresh(ids[:, :8], slots), cache.extend(ids[:, 8:], slots, starts, 8)]
    distances = (torch.cat(parts, 1) - whole).abs().amax((0, 2))
    assert distances[:24].max() < 1e-12
    assert distances[24] > 1e-3
    models.refuse_narrow(config, "real.actor", 24)
    with pytest.raises(ModelError, match=r"24 tokens back .* may have 25: shorten"):
        models.refuse_narrow(config, "real.actor", 25)
    models.refuse_narrow(tiny.config(sliding_window=24), "real.actor", 25)  # not used


def test_a_context_is_what_the_config_says() -> None:
    assert models.context_tokens(tiny.actor()) == 256


# rules


def test_a_rule_is_a_function_of_two_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some_rules.py").write_text(
        "def brief(prompt, response): return -len(response)\n"
        "def lonely(prompt): return 0\n"
        "number = 3\n"
    )
    (tmp_path / "broken_rules.py").write_text("raise RuntimeError('no')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert rules.is_rule("some_rules:brief")
    assert not rules.is_rule("models/reward")
    assert rules.load_rule("some_rules:brief")("a", "bcd") == -3
    for source, words in (
        ("some_rules", "must be package.module:function"),
        ("no_such_rules:brief", "cannot import no_such_rules .*ModuleNotFoundError"),
        ("broken_rules:brief", "cannot import broken_rules .RuntimeError: no"),
        ("some_rules:long", "some_rules has no long"),
        ("some_rules:lonely", "cannot be called as lonely"),
        ("some_rules:number", "cannot be called as number"),
    ):
        with pytest.raises(ModelError, match=words):
            rules.load_rule(source)


def scaled(prompt: str, response: str, *, answer: str, scale: float = 1.0) -> float:
    return scale * response.count(answer)


def third(prompt: str, response: str, answer: str) -> float:
    return float(response == answer)


def everything(prompts: str, response: str, **columns: Any) -> float:
    assert columns == {"answer": "b", "level": 3}
    return float(columns["level"])


@pytest.mark.parametrize(
    ("function", "needed", "worth"),
    [(scaled, ("answer",), 2.0), (third, ("answer",), 0.0), (everything, (), 3.0)],
)
def test_a_rule_takes_columns_by_name(function: Any, needed: tuple[str, ...], worth: float) -> None:
    """Those it names; with ** all but what it already has."""
    columns = {"answer": "b", "level": 3, "response": "another's"}
    rule = rules.RuleReward(function, lambda ids: "abb", lambda rollout: ("here", columns))
    assert rule.columns.needed == needed
    assert rule(0, [1], [2]) == worth


# tokens


def test_the_same_tokenizer_passes_and_another_is_refused(tmp_path: Path) -> None:
    actor, reward = tiny.actor(), tiny.reward()
    ours = vocabulary.load_tokenizer(saved(tmp_path / "ours", actor, tiny.tokenizer()))
    same = vocabulary.load_tokenizer(saved(tmp_path / "same", reward, tiny.tokenizer()))
    vocabulary.check_same_tokens((actor, ours), (reward, same))
    vocabulary.check_same_tokens((actor, ours), (reward, None))
    swapped = tiny.tokenizer(tiny.VOCAB - 1)
    with pytest.raises(ModelError, match=r"1 tokens differ, such as 'w63', which is 63 .* none"):
        vocabulary.check_same_tokens((actor, ours), (reward, swapped))
    small = tiny.reward(vocab_size=40)
    with pytest.raises(ModelError, match="vocabulary has 40 ids, the actor's 64"):
        vocabulary.check_same_tokens((actor, ours), (small, None))
    vocabulary.check_same_tokens((actor, ours), (tiny.reward(vocab_size=80), same))


def test_tokenizers_come_with_folders_only(tmp_path: Path) -> None:
    assert vocabulary.load_tokenizer(config_file(tmp_path)) is None
    assert vocabulary.load_tokenizer(saved(tmp_path / "bare", tiny.actor())) is None
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "tokenizer.json").write_text("{")
    for source in (broken, "nobody/has-this"):
        with pytest.raises(ModelError, match=r"real.tokenizer = .*no tokenizer could be loaded"):
            vocabulary.load_tokenizer(source)


def test_stop_ids_are_the_users_the_models_or_the_tokenizers() -> None:
    model, tokenizer = tiny.actor(eos_token_id=[5, 6]), tiny.tokenizer()
    assert vocabulary.stop_ids(model, tokenizer, (9, 8, 9)) == (9, 8)
    assert vocabulary.stop_ids(model, tokenizer, None) == (5, 6)
    assert vocabulary.stop_ids(model, tokenizer, (tiny.PAD,)) == (tiny.PAD,)
    bare = tiny.actor(eos_token_id=None, pad_token_id=None)
    assert vocabulary.stop_ids(bare, tokenizer, None) == (tiny.EOS,)
    with pytest.raises(ModelError, match=r"real.stop_token_ids: .*set it"):
        vocabulary.stop_ids(bare, None, None)
    with pytest.raises(ModelError, match=r"real.stop_token_ids = 64: .*below 64"):
        vocabulary.stop_ids(model, tokenizer, (64,))


def test_heads_that_are_not_plain_are_refused(tmp_path: Path) -> None:
    file = config_file(tmp_path)
    raw = json.loads(file.read_text()) | {"final_logit_softcapping": 30.0}
    file.write_text(json.dumps(raw))
    with pytest.raises(ModelError, match=r"real.actor = .*final_logit_softcapping"):
        models.load(file, "actor")

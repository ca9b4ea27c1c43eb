"""Shapes from config.json as they are on the Hugging Face hub, and a user's own files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oppo_sim.costs import card, card_at, model, model_at
from oppo_sim.costs.huggingface import shape_of

Config = dict[str, Any]


def qwen(layers: int, hidden: int, heads: int, kv: int, mlp: int, vocab: int, tied: bool) -> Config:
    """The keys of Qwen2.5's config.json that matter, and some that do not."""
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "attention_dropout": 0.0,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": mlp,
        "model_type": "qwen2",
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "num_key_value_heads": kv,
        "rope_theta": 1000000.0,
        "tie_word_embeddings": tied,
        "vocab_size": vocab,
    }


QWEN = {
    "Qwen2.5-0.5B": qwen(24, 896, 14, 2, 4864, 151936, True),
    "Qwen2.5-1.5B": qwen(28, 1536, 12, 2, 8960, 151936, True),
    "Qwen2.5-3B": qwen(36, 2048, 16, 2, 11008, 151936, True),
    "Qwen2.5-7B": qwen(28, 3584, 28, 4, 18944, 152064, False),
}
LLAMA = {
    "model_type": "llama",
    "attention_bias": False,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "vocab_size": 128256,
}


@pytest.mark.parametrize("name", QWEN)
def test_the_shipped_shapes_are_those_of_their_configs(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(QWEN[name]))
    shipped = model(name)
    for path in (name, f"{name}/config.json"):
        if "/" not in path:
            path = f"{path}/"
        found = model_at(path, tmp_path)
        assert found == shipped
        assert found.params() == pytest.approx(shipped.params(), rel=0.005)


def test_parameters_that_their_makers_state() -> None:
    """Llama-3.1-8B: 8,030,261,248; Mistral-7B-v0.1: 7,241,732,096; Llama-2-7B, which has as many
    key heads as heads and no word of them: 6,738,415,616 (safetensors of the hub)."""
    assert shape_of("llama3", LLAMA).params() == 8_030_261_248
    mistral = LLAMA | {"model_type": "mistral", "vocab_size": 32000, "head_dim": None}
    assert shape_of("mistral", mistral).params() == 7_241_732_096
    llama2 = LLAMA | {"vocab_size": 32000, "intermediate_size": 11008}
    del llama2["num_key_value_heads"]
    assert shape_of("llama2", llama2).params() == 6_738_415_616
    assert shape_of("llama2", llama2).kv_heads == 32


def test_a_head_may_be_wider_than_its_share() -> None:
    """Qwen3-0.6B: 596,049,920 parameters, of which 28 x 2 x 128 are the norms left out here."""
    config = qwen(28, 1024, 16, 8, 3072, 151936, True)
    config |= {"model_type": "qwen3", "head_dim": 128, "attention_bias": False}
    assert shape_of("qwen3", config).params() == 596_049_920 - 28 * 2 * 128


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_local_experts": 8}, r"num_local_experts = 8: a mixture of experts.*dense model"),
        ({"quantization_config": {"bits": 4}}, r"quantization_config is .*; take it out"),
        ({"num_experts": 60}, r"num_experts = 60: a mixture of experts"),
        ({"model_type": "mamba"}, r"model_type 'mamba' is not known.*llama, mistral, qwen2"),
        ({"model_type": None}, r"no model_type; add it"),
        ({"model_type": ["llama"]}, r"model_type \['llama'\] is not known"),
        ({"hidden_size": "4096"}, r"hidden_size is '4096'; it must be a whole number, at least 1"),
        ({"vocab_size": 0}, r"vocab_size is 0; it must be"),
        ({"num_key_value_heads": 5}, r"kv_heads is 5; it must divide heads \(32\)"),
        ({"num_attention_heads": 30}, r"no multiple of num_attention_heads 30; add head_dim"),
        ({"tie_word_embeddings": "no"}, r"tie_word_embeddings is 'no'; it must be true or false"),
        ({"num_hidden_layers": 10**30}, r"layers is too large"),
    ],
)
def test_what_is_wrong_or_missing_is_named(change: Config, message: str) -> None:
    with pytest.raises(ValueError, match=f"^model mine.*{message}"):
        shape_of("mine", LLAMA | change)


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "vocab_size"])
def test_a_missing_size_is_named(key: str) -> None:
    with pytest.raises(ValueError, match=f"config.json has no {key}; add it"):
        shape_of("mine", {k: v for k, v in LLAMA.items() if k != key})


def test_a_card_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "my_card.toml"
    numbers = "peak_flop_per_s = 200e12\nhbm_bytes = 64_000_000_000\nhbm_bytes_per_s = 1e12\n"
    links = "nvlink_bytes_per_s = 200e9\nnetwork_bytes_per_s = 20e9\ndevices_per_node = 4\n"
    file.write_text(numbers + links)
    mine = card_at("my_card.toml", tmp_path)
    assert (mine.name, mine.hbm_bytes, mine.devices_per_node) == ("my_card", 64 * 10**9, 4)
    file.write_text(numbers)
    with pytest.raises(
        ValueError, match=r"my_card\.toml: card my_card: nvlink_bytes_per_s is miss"
    ):
        card_at("my_card.toml", tmp_path)
    file.write_text(numbers + links + "sources = 3\n")
    with pytest.raises(ValueError, match="sources must be a table of texts"):
        card_at("my_card.toml", tmp_path)
    assert card_at("H200") == card("H200")


def test_files_that_are_something_else(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[1, 2]")
    with pytest.raises(ValueError, match=r"config\.json: is not a JSON object"):
        model_at("config.json", tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config\.json: is not valid JSON"):
        model_at("config.json", tmp_path)
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"bad\.toml: is not UTF-8"):
        card_at("bad.toml", tmp_path)
    with pytest.raises(ValueError, match=r"none\.json: cannot be read: No such file"):
        model_at("none.json", tmp_path)
    with pytest.raises(ValueError, match=r"did you mean 'H200'.*or give the path of a TOML file"):
        card_at("H-200")
    with pytest.raises(ValueError, match=r"unknown model.*or give the path of a config\.json"):
        model_at("Qwen")

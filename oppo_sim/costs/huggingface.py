"""A model's shape from its Hugging Face config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oppo_sim.config.errors import short
from oppo_sim.costs.models import ModelShape

# model_type, and whether queries, keys and values have a bias where the file does not say
# (transformers: Qwen2Attention always has one, LlamaConfig.attention_bias is False, Mistral's and
# Qwen3's are without; the norms of Qwen3's queries and keys are left out: 0.001 % of its weights).
BIASED = {"qwen2": True, "llama": False, "mistral": False, "qwen3": False}
SIZES = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "intermediate": "intermediate_size",
    "vocab": "vocab_size",
}
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_intermediate_size")


def shape_of(name: str, config: Mapping[str, Any]) -> ModelShape:
    """The shape that a config.json describes.

    Dense decoders with grouped-query attention and a gated MLP: Qwen2, Llama, Mistral, Qwen3.
    ValueError names what is missing, wrong, or not modelled.
    """
    owner = f"model {name}"
    kind = _architecture(owner, config)
    for key in SIZES.values():
        if key not in config:
            raise ValueError(f"{owner}: config.json has no {key}; add it")
        _count(owner, config, key)
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads")
    head_dim = config.get("head_dim")
    if head_dim is None and hidden % heads:
        raise ValueError(
            f"{owner}: hidden_size {hidden} is no multiple of num_attention_heads {heads}; "
            "add head_dim"
        )
    return ModelShape(
        name=name,
        **{own: config[key] for own, key in SIZES.items()},
        kv_heads=heads if kv_heads is None else _count(owner, config, "num_key_value_heads"),
        head_dim=hidden // heads if head_dim is None else _count(owner, config, "head_dim"),
        tied_embeddings=_truth(owner, config, "tie_word_embeddings", False),
        qkv_bias=_truth(owner, config, "attention_bias", BIASED[kind]),
        sources={"shape": "the user's config.json"},
    )


def _architecture(owner: str, config: Mapping[str, Any]) -> str:
    for key in EXPERTS:
        if config.get(key):
            raise ValueError(
                f"{owner}: {key} = {short(config[key])}: a mixture of experts, which no cost "
                "model knows; missing are the experts read per batch and their routing. Name a "
                "dense model"
            )
    if config.get("quantization_config"):
        raise ValueError(
            f"{owner}: quantization_config is {short(config['quantization_config'])}: every cost "
            "here is that of bf16 weights; take it out of the config.json to have it counted so"
        )
    kind = config.get("model_type")
    if kind is None:
        raise ValueError(f"{owner}: config.json has no model_type; add it: one of {_known()}")
    if not isinstance(kind, str) or kind not in BIASED:
        raise ValueError(
            f"{owner}: model_type {short(kind)} is not known: its layers are missing here. Known "
            f"are {_known()}; if its layers are as theirs, write one of those as model_type"
        )
    return kind


def _known() -> str:
    return ", ".join(sorted(BIASED))


def _count(owner: str, config: Mapping[str, Any], key: str) -> int:
    value = config[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{owner}: {key} is {short(value)}; it must be a whole number, at least 1")
    return value


def _truth(owner: str, config: Mapping[str, Any], key: str, default: bool) -> bool:
    value = config.get(key, default)
    if not isinstance(value, bool):
        raise ValueError(f"{owner}: {key} is {short(value)}; it must be true or false")
    return value

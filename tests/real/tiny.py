"""Tiny random Qwen2 models and a tokenizer made on the spot.

Weights are drawn with a deviation of 0.15: at transformers' default of 0.02 attention is so
flat that wrong masks and positions would pass.
"""

from __future__ import annotations

import copy

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2ForSequenceClassification,
)

VOCAB = 64
PAD, EOS, UNK = 0, 1, 2


def config(**changes: object) -> Qwen2Config:
    """Two layers, four heads over two of keys and values, 64 tokens, 256 positions."""
    settings: dict[str, object] = {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "initializer_range": 0.15,
        "tie_word_embeddings": False,
        "pad_token_id": PAD,
        "eos_token_id": EOS,
        "bos_token_id": None,
        "use_cache": True,
    }
    return Qwen2Config(**(settings | changes))


def actor(seed: int = 0, dtype: torch.dtype = torch.float32, **changes: object) -> Qwen2ForCausalLM:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen2ForCausalLM(config(**changes)).to(dtype).eval()


def reward(
    seed: int = 1, dtype: torch.dtype = torch.float32, **changes: object
) -> Qwen2ForSequenceClassification:
    """A model with one score per token: a reward model, or a critic of another seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        settings = {"num_labels": 1} | changes
        return Qwen2ForSequenceClassification(config(**settings)).to(dtype).eval()


def critic(
    seed: int = 2, dtype: torch.dtype = torch.float32, **changes: object
) -> Qwen2ForSequenceClassification:
    return reward(seed, dtype, **changes)


def tokenizer(vocab: int = VOCAB) -> PreTrainedTokenizerFast:
    """Words `w3 w4 ...` split at spaces; the id of a word is its number."""
    words = {"<pad>": PAD, "<eos>": EOS, "<unk>": UNK}
    words |= {f"w{number}": number for number in range(len(words), vocab)}
    backend = Tokenizer(WordLevel(words, unk_token="<unk>"))
    backend.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )


def nudged(model: torch.nn.Module, by: float = 0.01, seed: int = 9) -> torch.nn.Module:
    """A copy with noise on every weight, as after some updates."""
    generator = torch.Generator().manual_seed(seed)
    other = copy.deepcopy(model)
    with torch.no_grad():
        for weight in other.parameters():
            weight += by * torch.randn(weight.shape, generator=generator).to(weight.dtype)
    return other

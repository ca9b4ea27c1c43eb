"""The shape of a dense decoder-only model: its parameters, FLOPs and bytes, in bf16."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from oppo_sim.costs import checks

BF16_BYTES = 2

Head = Literal["vocab", "scalar"]
"""On the last layer: logits (actor, reference) or one number per token (reward, critic)."""


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """Grouped-query attention and a gated MLP, as in Qwen2 and Llama. Sizes are counts."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied_embeddings: bool  # the output head is the embedding table
    qkv_bias: bool
    sources: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        sizes = ("layers", "hidden", "heads", "kv_heads", "head_dim", "intermediate", "vocab")
        owner = f"model {self.name}"
        checks.count(owner, 1, **{name: getattr(self, name) for name in sizes})
        checks.truth(owner, tied_embeddings=self.tied_embeddings, qkv_bias=self.qkv_bias)
        if self.heads % self.kv_heads:
            raise ValueError(
                f"{owner}.kv_heads is {self.kv_heads}; it must divide heads ({self.heads})"
            )

    @property
    def non_embedding_params(self) -> int:
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        attention = self.hidden * (2 * queries + 2 * keys)
        biases = queries + 2 * keys if self.qkv_bias else 0
        mlp = 3 * self.hidden * self.intermediate
        norms = 2 * self.hidden
        return self.layers * (attention + biases + mlp + norms) + self.hidden

    @property
    def embedding_params(self) -> int:
        """One table of vocab x hidden."""
        return self.vocab * self.hidden

    def params(self, head: Head = "vocab") -> int:
        """All that is held in memory, trained and shipped."""
        tables = 2 if head == "vocab" and not self.tied_embeddings else 1
        return self.non_embedding_params + tables * self.embedding_params

    def weights_bytes(self, head: Head = "vocab") -> int:
        return BF16_BYTES * self.params(head)

    def read_bytes(self, head: Head = "vocab") -> int:
        """What a forward pass reads of the weights: the layers and the head, no input table."""
        table = self.embedding_params if head == "vocab" else 0
        return BF16_BYTES * (self.non_embedding_params + table)

    def forward_flop(self, head: Head = "vocab") -> float:
        """FLOPs per token, without attention scores: two per weight. A scalar head is free."""
        logits = 2 * self.embedding_params if head == "vocab" else 0
        return float(2 * self.non_embedding_params + logits)

    @property
    def pair_flop(self) -> float:
        """FLOPs per query-key pair, all layers: a product with the key, one with the value."""
        return float(4 * self.layers * self.heads * self.head_dim)

    @property
    def kv_bytes(self) -> int:
        """KV cache per token."""
        return BF16_BYTES * 2 * self.layers * self.kv_heads * self.head_dim

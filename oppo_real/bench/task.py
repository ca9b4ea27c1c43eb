"""What `oppo bench --suite real` trains: random models of a stated size, given lengths."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from oppo_sim.config import Scenario, parse_scenario

PAD, EOS = 0, 1
SIGMA = 0.8  # of the lognormal lengths


@dataclass(frozen=True)
class Shape:
    """A Qwen2 of random weights; as many heads of keys and values as of queries."""

    hidden: int
    between: int  # inside its MLPs
    layers: int
    heads: int

    def config(self, vocabulary: int, context: int) -> dict[str, Any]:
        return {
            "model_type": "qwen2",
            "vocab_size": vocabulary,
            "hidden_size": self.hidden,
            "intermediate_size": self.between,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.heads,
            "max_position_embeddings": context,
            "tie_word_embeddings": True,
            "pad_token_id": PAD,
            "eos_token_id": EOS,
            "bos_token_id": None,
        }


@dataclass(frozen=True)
class Task:
    """Prompts are equally long and all different: TRL looks lengths up by them."""

    actor: Shape
    reward: Shape  # the critic is one more of these
    vocabulary: int
    prompt_tokens: int
    mean_tokens: float
    cap_tokens: int
    batch: int
    overcommit: int
    chunk_tokens: int
    micro_batch: int
    threads: int  # torch threads of what has the machine to itself

    def write(self, folder: Path, prompts: int, seed: int) -> None:
        """The models' configurations and that many prompts."""
        context = self.prompt_tokens + self.cap_tokens
        for name, shape in (("actor", self.actor), ("reward", self.reward)):
            text = json.dumps(shape.config(self.vocabulary, context))
            (folder / f"{name}.json").write_text(text, encoding="utf-8")
        size = (2 * prompts, self.prompt_tokens)  # twice as many, should some be the same
        drawn = np.random.default_rng(seed).integers(EOS + 1, self.vocabulary, size).tolist()
        rows = [*dict.fromkeys(map(tuple, drawn))][:prompts]
        lines = [json.dumps({"prompt_ids": row}) for row in rows]
        (folder / "prompts.jsonl").write_text("\n".join(lines), encoding="utf-8")

    def scenario(self, folder: Path, real: Mapping[str, Any]) -> Scenario:
        """`real`: where lanes run, and on how many threads."""
        mu = math.log(self.mean_tokens) - SIGMA**2 / 2
        document = {
            "name": "bench-real",
            "workload": {
                "lengths": {"lognormal": {"mu": mu, "sigma": SIGMA}},
                "max_response_tokens": self.cap_tokens,
                "prompt_tokens": self.prompt_tokens,
                "reward": {"start": 0.0, "plateau": 1.0, "tau_steps": 1.0, "noise": 0.0},
            },
            "cluster": {"devices": 2, "actors": 1, "scorers": 1},
            "costs": {"model": "linear", "decode_token_s": 0.01},
            "schedule": {
                "name": "oppo",
                "batch": self.batch,
                "overcommit": self.overcommit,
                "chunk": self.chunk_tokens,
            },
            "real": {
                "actor": "actor.json",
                "reward": "reward.json",
                "prompts": "prompts.jsonl",
                "tokenizer": "none",
                "lengths": "workload",
                # a pad never comes before the end: TRL would take it for one
                "stop_token_ids": [EOS, PAD],
                "initializer_range": 0.1,
                "ppo": {"num_ppo_epochs": 1, "micro_batch": self.micro_batch},
                **real,
            },
        }
        return parse_scenario(document, "bench-real", folder)


FULL = Task(
    actor=Shape(hidden=384, between=1280, layers=6, heads=6),  # 14.0 M parameters
    reward=Shape(hidden=512, between=1856, layers=9, heads=8),  # 37.2 M
    vocabulary=4096,
    prompt_tokens=32,
    mean_tokens=100,
    cap_tokens=512,
    batch=16,
    overcommit=8,
    chunk_tokens=32,
    micro_batch=4,
    threads=2,
)
TINY = Task(
    actor=Shape(hidden=32, between=64, layers=2, heads=2),
    reward=Shape(hidden=32, between=64, layers=2, heads=2),
    vocabulary=64,
    prompt_tokens=4,
    mean_tokens=8,
    cap_tokens=24,
    batch=4,
    overcommit=2,
    chunk_tokens=4,
    micro_batch=2,
    threads=1,
)

"""Runs of `oppo train` on tiny models, and what is compared of them."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file

from oppo_sim.cli import main
from tests.real import tiny

CONFIG = """
name = "tiny-real"
steps = 4
[workload]
lengths = { exponential = 12.0 }
max_response_tokens = 24
prompt_tokens = 4
reward = { start = 0.0, plateau = 1.0, tau_steps = 10.0, noise = 0.1 }
[cluster]
devices = 2
actors = 1
scorers = 1
[costs]
model = "linear"
decode_token_s = 0.001
[schedule]
name = "oppo"
batch = 6
overcommit = 3
chunk = 8
[real]
actor = "actor.json"
reward = "reward.json"
prompts = "prompts.jsonl"
tokenizer = "none"
initializer_range = 0.15
lengths = "workload"
save_steps = 1
[real.ppo]
learning_rate = 1e-3
num_ppo_epochs = 1
"""


def scenario(folder: Path) -> Path:
    """A scenario's file, with models and prompts beside it."""
    for name, labels in (("actor", {}), ("reward", {"num_labels": 1})):
        shape = {**tiny.config(**labels).to_diff_dict(), "model_type": "qwen2"}
        (folder / f"{name}.json").write_text(json.dumps(shape, default=str))
    lines = [json.dumps({"prompt_ids": [2 + i, 3 + i, 4 + i]}) for i in range(10)]
    (folder / "prompts.jsonl").write_text("\n".join(lines))
    file = folder / "scenario.toml"
    file.write_text(CONFIG)
    return file


GRPO = ("--set", "real.objective=grpo", "--set", "schedule.group=3")
REPEATABLE = ("--set", "real.workers=inline", "--set", "real.coalesce=false")


def train(config: Path, out: Path, *more: str) -> int:
    return main(["train", str(config), "--out", str(out), *more])


def weights(out: Path) -> dict[str, torch.Tensor]:
    last = sorted((out / "checkpoints").glob("step-*"))[-1]
    kept = load_file(last / "weights.safetensors")  # maps the file, which may be damaged later
    return {name: tensor.clone() for name, tensor in kept.items()}


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name

"""What a table was measured of: the machine, the versions, the threads, the models' shapes."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from oppo_real.build import real_of
from oppo_real.machine.memory import keep_freed
from oppo_real.machine.sharing import cores
from oppo_real.networks.loading import Models
from oppo_sim.config import Scenario

HALT_POLL = Path("/sys/module/haltpoll/parameters/guest_halt_poll_ns")
_SHAPE = (
    "model_type",
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
)


def identity(scenario: Scenario, models: Models) -> dict[str, str]:
    """By `costs.identity.KEYS`, each a text of its own."""
    real, cluster = real_of(scenario), scenario.cluster
    ppo = real.ppo
    waits = os.environ.get("OMP_WAIT_POLICY", "default")
    return {
        "machine": machine(real.device),
        "versions": ", ".join(
            [f"Python {platform.python_version()}"]
            + [f"{name} {version(name)}" for name in ("torch", "transformers", "oppo-testbed")]
        ),
        "threads": f"{real.workers}: actor {real.actor_threads}, scorer {real.scorer_threads}, "
        f"trainer {real.trainer_threads}"
        f"{', shared' if real.share_threads else ''}; OpenMP waits {waits}{_polls()}"
        f"{', freed memory kept' if keep_freed() else ''}",
        "dtype": real.dtype,
        "models": _shapes(models),
        "training": f"epochs {ppo.num_ppo_epochs}, ratio {ppo.ratio}, KL {bool(ppo.kl_coef)}, "
        f"autocast {ppo.autocast}, checkpointing {ppo.gradient_checkpointing}",
        "scoring": f"{' and '.join(real.on_scorer)}{'' if real.coalesce else ', each chunk alone'}",
        "lanes": f"{cluster.placement}, trainer devices {cluster.trainer_devices}",
    }


def machine(device: str) -> str:
    if device == "cuda":
        return f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"
    return f"{_cpu()}, {cores()} cores"


def _polls() -> str:
    """Of a virtual machine: how long its cores look for work before they halt, and are slow to
    wake."""
    try:
        polled_ns = int(HALT_POLL.read_text())
    except (OSError, ValueError):
        return ""
    return f", cores poll {polled_ns / 1000:g} us" if polled_ns else ""


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    fields = dict(
        [part.strip() for part in line.split(":", 1)] for line in lines[:30] if ":" in line
    )
    name = fields.get("model name") or platform.machine()
    return f"{name} (family {fields.get('cpu family', '?')}, model {fields.get('model', '?')})"


def _shapes(models: Models) -> str:
    parts: dict[str, Any] = {
        "actor": models.actor,
        "reward": models.reward,
        "critic": models.critic,
        "reference": models.reference,
    }
    return "; ".join([f"{name} {_shape(model)}" for name, model in parts.items()])


def _shape(model: Any) -> str:
    if model is None:
        return "none"
    config = getattr(model, "config", None)
    if config is None:
        return "a rule"
    kind, *numbers = [getattr(config, name, None) for name in _SHAPE]
    return f"{kind} {'x'.join(map(str, numbers))}"

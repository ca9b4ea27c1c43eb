"""Device memory: how many tokens of KV cache fit on an actor lane."""

from __future__ import annotations

from oppo_sim.costs import checks
from oppo_sim.costs.cards import Card
from oppo_sim.costs.models import ModelShape
from oppo_sim.costs.parts import Trainer

# Mixed-precision Adam, bytes held per parameter: bf16 weight and gradient (4), fp32 master weight
# and two moments (12).
TRAINING_BYTES = 16


def training_bytes(trainer: Trainer) -> float:
    """What a gang holds on each of its devices for training, sharded evenly over them (ZeRO-3).

    A trainer on the actor's devices makes this the `resident_bytes` (per device) of `kv_tokens`.
    """
    params = sum(hosted.model.params(hosted.head) for hosted in trainer.trained)
    return TRAINING_BYTES * params / trainer.devices


def kv_tokens(
    card: Card,
    model: ModelShape,
    *,
    devices: int = 1,
    reserve_fraction: float = 0.10,
    resident_bytes: float = 0.0,
) -> int:
    """Tokens of KV cache that fit on one lane of `devices`.

    Beside the model's weights and `resident_bytes` per device (training state, other models), a
    share of each device stays free for activations, CUDA and fragmentation: 0.10, as vLLM's
    gpu_memory_utilization of 0.9. ValueError if nothing is left.
    """
    checks.count("kv_tokens", 1, devices=devices)
    checks.not_negative("kv_tokens", resident_bytes=resident_bytes)
    checks.not_negative("kv_tokens", reserve_fraction=reserve_fraction)
    if reserve_fraction >= 1:
        raise ValueError(f"kv_tokens.reserve_fraction is {reserve_fraction!r}; it must be below 1")
    usable_bytes = devices * ((1 - reserve_fraction) * card.hbm_bytes - resident_bytes)
    tokens = int((usable_bytes - model.weights_bytes()) / model.kv_bytes)
    if tokens < 1:
        raise ValueError(
            f"{model.name} leaves no room for a KV cache on {devices} x {card.name}: "
            f"weights {model.weights_bytes() / 1e9:.1f} GB, "
            f"free for them and the cache {usable_bytes / 1e9:.1f} GB; "
            f"use more devices per lane, a larger card, or keep less resident there"
        )
    return tokens

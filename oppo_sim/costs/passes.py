"""The seconds of a model's own work on a card: its decode law, and its forward pass."""

from __future__ import annotations

from typing import NamedTuple

from oppo_sim.costs.cards import Card
from oppo_sim.costs.interface import DecodeLaw
from oppo_sim.costs.models import Head, ModelShape
from oppo_sim.costs.parts import Efficiency, Engine


class Pass(NamedTuple):
    """A forward pass over new tokens: added_s + max(floor_s, compute).

    Reads of the KV cache are left out: a 7B spends a hundred times longer on the FLOPs of a chunk
    of 256 tokens than on reading a context of 4096.
    """

    added_s: float
    floor_s: float  # memory: the weights are read once; launches too, if they hide (Engine.terms)
    token_s: float
    pair_s: float  # per query-key pair

    def seconds(self, tokens: int, attention: float) -> float:
        compute = self.token_s * tokens + self.pair_s * attention
        return self.added_s + (compute if compute > self.floor_s else self.floor_s)

    def scaled(self, factor: float) -> Pass:
        return Pass(*(x * factor for x in self))


def decode_law(
    card: Card, model: ModelShape, engine: Engine, devices: int = 1, tensor_parallel: float = 1.0
) -> DecodeLaw:
    """Launch, memory and compute, joined as the engine joins them."""
    gang = devices * (tensor_parallel if devices > 1 else 1.0)
    bytes_per_s = engine.hbm * card.hbm_bytes_per_s * gang
    flop_per_s = engine.mfu * card.peak_flop_per_s * gang
    launch_s = engine.launch_per_layer_s * card.launch_scale * model.layers
    memory = (model.read_bytes() / bytes_per_s, 0.0, model.kv_bytes / bytes_per_s)
    compute = (0.0, model.forward_flop() / flop_per_s, model.pair_flop / flop_per_s)
    if engine.terms == "sum":
        return DecodeLaw.of(
            memory,
            compute,
            per_rollout_s=engine.per_rollout_s,
            fixed_s=engine.fixed_s + launch_s,
        )
    return DecodeLaw.of(
        (launch_s, 0.0, 0.0),
        memory,
        compute,
        per_rollout_s=engine.per_rollout_s,
        fixed_s=engine.fixed_s,
    )


def forward_pass(
    card: Card,
    model: ModelShape,
    head: Head,
    engine: Engine,
    efficiency: Efficiency,
    devices: int = 1,
) -> Pass:
    """Prefill of a model: its launches, its weights, its FLOPs."""
    gang = devices * (efficiency.tensor_parallel if devices > 1 else 1.0)
    flop_per_s = efficiency.prefill_mfu * card.peak_flop_per_s * gang
    launch_s = engine.launch_per_layer_s * card.launch_scale * model.layers
    memory_s = model.read_bytes(head) / (efficiency.hbm * card.hbm_bytes_per_s * gang)
    hides = engine.terms == "max"
    return Pass(
        added_s=0.0 if hides else launch_s,
        floor_s=max(launch_s, memory_s) if hides else memory_s,
        token_s=model.forward_flop(head) / flop_per_s,
        pair_s=model.pair_flop / flop_per_s,
    )

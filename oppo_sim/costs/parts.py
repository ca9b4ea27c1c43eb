"""What the roofline model is built from: engines, the models on each lane, and efficiencies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from oppo_sim.config.errors import nearest
from oppo_sim.costs import checks
from oppo_sim.costs.models import Head, ModelShape

Link = Literal["same", "nvlink", "network"]
"""How two lanes are joined: on the same devices, in one node, across nodes."""
LINKS: tuple[str, ...] = ("same", "nvlink", "network")


@dataclass(frozen=True, kw_only=True)
class Engine:
    """How an inference engine turns a roofline into time; all of it fitted on decode.

    `terms` "max": eager kernels, whose launches hide behind slower memory or compute;
    "sum": captured graphs, whose launch and roofline add up.
    """

    name: str
    launch_per_layer_s: float  # on the host of the A100-80 card
    terms: Literal["max", "sum"]
    hbm: float = 0.8  # share of peak bandwidth; AIConfigurator, 0.75-0.83 measured on GH200
    mfu: float = (
        0.5  # of decode, assumed; binds for a 7B from some 100 rollouts a lane on (vLLM, A100)
    )
    per_rollout_s: float = 0.0  # a of the law: HF decode is nearly flat in batch size
    fixed_s: float = 0.0  # t0 of the law; a weight gather per token would go here

    def __post_init__(self) -> None:
        owner = f"engine {self.name}"
        checks.not_negative(
            owner,
            launch_per_layer_s=self.launch_per_layer_s,
            per_rollout_s=self.per_rollout_s,
            fixed_s=self.fixed_s,
        )
        checks.share(owner, hbm=self.hbm, mfu=self.mfu)
        checks.one_of(owner, ("max", "sum"), terms=self.terms)


# Fitted on the speeds that Qwen measured on A100-80 at batch 1, four of HF generate, four of vLLM
# 0.6.3 (Qwen2.5 documentation, speed benchmark); no point is held out. HF is off by 1.7 % at most.
# vLLM is 0.113 ms per layer + 1.35 x the roofline at peak bandwidth, which makes the largest
# relative error least, 5.4 %: the fit by least squares (0.112 ms, 1.29) leaves 7.5 % at the 1.5B.
HF = Engine(name="hf", launch_per_layer_s=0.894e-3, terms="max")
VLLM = Engine(name="vllm", launch_per_layer_s=0.113e-3, terms="sum", hbm=1 / 1.35)
ENGINES = {engine.name: engine for engine in (HF, VLLM)}


def engine(name: str) -> Engine:
    if name not in ENGINES:
        raise ValueError(f"unknown engine {name!r}; {nearest(name, list(ENGINES))}")
    return ENGINES[name]


@dataclass(frozen=True, kw_only=True)
class Efficiency:
    """Shares of the peaks, outside decode."""

    hbm: float = 0.8  # AIConfigurator
    prefill_mfu: float = 0.5  # assumed, between training and the best matmul (0.80-0.87 of peak)
    train_mfu: float = 0.30  # PPO prior; seen 0.17 (verl, two nodes) to 0.64 (FSDP 7B on A100)
    nvlink: float = 0.8  # 80-88 % of spec measured (stas00/ml-engineering)
    network: float = 0.8  # assumed, as NVLink
    tensor_parallel: float = 0.85  # assumed: of the ideal speed-up, with more than one device

    def __post_init__(self) -> None:
        checks.share("efficiency", **vars(self))


@dataclass(frozen=True)
class Hosted:
    """A model on a lane. A judge (generative reward) decodes `answer_tokens` per response."""

    model: ModelShape
    head: Head = "scalar"
    answer_tokens: int = 0

    def __post_init__(self) -> None:
        owner = f"hosted {self.model.name}"
        checks.one_of(owner, ("vocab", "scalar"), head=self.head)
        checks.count(owner, 0, answer_tokens=self.answer_tokens)


@dataclass(frozen=True, kw_only=True)
class Actor:
    """One actor lane: `devices` of it are tensor parallel."""

    model: ModelShape
    devices: int = 1
    engine: Engine = HF

    def __post_init__(self) -> None:
        checks.count("actor", 1, devices=self.devices)


@dataclass(frozen=True, kw_only=True)
class Scorer:
    """One scorer lane: it runs its models in turn (reward; reference and critic if streamed).

    No model but `rule_s` per response is a rule reward.
    """

    models: tuple[Hosted, ...] = ()
    devices: int = 1
    engine: Engine = HF  # its launches, and the decode of a judge
    rule_s: float = 0.0
    call_s: float = 1e-3  # batching and bookkeeping of a call, assumed

    def __post_init__(self) -> None:
        checks.count("scorer", 1, devices=self.devices)
        checks.not_negative("scorer", rule_s=self.rule_s, call_s=self.call_s)


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """The gang that updates `trained` (actor, critic) data parallel over `devices` on `nodes`.

    `forwards` are the models that read the batch once before the update: reference, critic, or the
    actor's own log-probabilities, where they are not streamed to a scorer.
    """

    trained: tuple[Hosted, ...]
    forwards: tuple[Hosted, ...] = ()
    devices: int = 1
    nodes: int = 1
    fewest_per_node: int | None = None  # where the gang is uneven; None: equally many on each node
    epochs: int = 4  # TRL's PPOConfig.num_ppo_epochs
    minibatches: int = 1  # optimiser steps per epoch; TRL's num_mini_batches
    recomputes: bool = False  # activations: one more forward
    padded: bool = True  # every sequence costs as much as the longest, as in TRL
    gathers: int = 0  # of all weights, per optimiser step; ZeRO-3: two per micro-batch

    def __post_init__(self) -> None:
        checks.at_least_one("trainer", trained=self.trained)
        checks.count("trainer", 0, gathers=self.gathers)
        checks.count("trainer", 1, devices=self.devices, nodes=self.nodes)
        checks.count("trainer", 1, epochs=self.epochs, minibatches=self.minibatches)
        checks.truth("trainer", recomputes=self.recomputes, padded=self.padded)
        if self.fewest_per_node is None:
            if self.devices % self.nodes:
                raise ValueError(
                    f"trainer.devices is {self.devices}; it must be a multiple of nodes "
                    f"({self.nodes}), or fewest_per_node must say how uneven the gang is"
                )
            return
        checks.count("trainer", 1, fewest_per_node=self.fewest_per_node)
        if self.fewest_per_node * self.nodes > self.devices:
            raise ValueError(
                f"trainer.fewest_per_node is {self.fewest_per_node}; "
                f"it must be at most devices / nodes ({self.devices} / {self.nodes})"
            )

"""What may happen to rollouts where KV memory is scarce: the cases of the scarce-memory figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from experiments.runs import Runs, Variant

RESERVE = 2560  # tokens of a rollout of stackexchange-7b at most: prompt 512, response 2048


@dataclass(frozen=True)
class Regime:
    """A scenario, what its lanes do when memory is short, and the memories and D to look at."""

    name: str
    scenario: str
    batch: int
    prompt_tokens: int
    overcommits: tuple[int, ...]
    memories: tuple[int, ...]  # KV tokens of an actor lane
    quick: tuple[int, ...]
    axes: Mapping[str, Any]
    keys: Mapping[str, object]
    steps: int = 80
    warmup: int = 0  # steps that do not count
    seeds: int = 1

    def variant(self, kv_tokens: int, overcommit: int) -> Variant:
        axes = {**self.axes, "batch": self.batch, "overcommit": overcommit}
        return Variant(self.scenario, "inter", axes, {**self.keys, "cluster.kv_tokens": kv_tokens})


def _chat(
    name: str, memories: tuple[int, ...], quick: tuple[int, ...], axes: Mapping[str, Any]
) -> Regime:
    """The paper's set-up: 16 rollouts a lane, decoded by Hugging Face's generate."""
    return Regime(
        name=name,
        scenario="stackexchange-7b",
        batch=112,
        prompt_tokens=200,
        overcommits=(4, 8, 16, 32),
        memories=memories,
        quick=quick,
        axes=axes,
        keys={"cluster.slots": 64},
    )


def _many(
    name: str,
    prompt_tokens: int,
    memories: tuple[int, ...],
    quick: tuple[int, ...],
    axes: Mapping[str, Any],
) -> Regime:
    """As verifiable rewards are trained with: 73 rollouts a lane at vLLM's speed, a cap that binds.

    A decoded token costs little there, beside which prefilling one again is dear.
    """
    return Regime(
        name=name,
        scenario="gsm8k-7b",
        batch=512,
        prompt_tokens=prompt_tokens,
        overcommits=(128, 512),
        memories=memories,
        quick=quick,
        axes={"kv_reserve_tokens": 1, **axes},
        keys={
            "workload.lengths": "servegen_deepseek-r1",
            "workload.max_response_tokens": 2048,
            "workload.prompt_tokens": prompt_tokens,
            "workload.max_prompt_tokens": prompt_tokens,
            "cluster.card": "A100-80",
            "cluster.slots": 1024,
            "models.critic": "none",
            "models.reference": "none",
            "costs.engine": "vllm",
            "costs.round_s": 0.0,
            "costs.efficiency.prefill_mfu": 0.4,
            "costs.training.epochs": 1,
            "costs.training.padded": False,
        },
        steps=9,
        warmup=3,
    )


_SHORT = (500, (48_000, 60_000, 90_000, 120_000, 240_000), (60_000, 240_000))
_LONG = (4000, (256_000, 384_000, 480_000, 640_000, 800_000), (384_000, 800_000))
_EACH = {"flush": "round", "refill": "event"}
REGIMES = (
    _chat(
        "whole reserve or queue, caches kept",
        tuple([RESERVE * rollouts for rollouts in (1, 2, 4, 8, 16, 24)]),
        (RESERVE, 61_440),
        _EACH,
    ),
    _chat(
        "admitted at once, youngest preempted, caches kept",
        (2600, 3200, 4000, 5000, 8000, 16_000, 61_440),
        (3200, 61_440),
        {**_EACH, "kv_reserve_tokens": 1},
    ),
    _chat(
        "static batches, left-overs thrown away",
        tuple([RESERVE * rollouts for rollouts in (1, 2, 3, 4, 8, 12, 18, 24)]),
        (RESERVE, 61_440),
        {"refill": "batch", "surplus": "drop", "partial": "nothing"},
    ),
    _many("many per lane, preempted, caches kept", *_SHORT, {"refill": "event"}),
    _many(
        "many per lane, preempted, prefixes redone",
        *_SHORT,
        {"refill": "event", "partial": "tokens"},
    ),
    _many("many per lane, refilled when empty, caches kept", *_LONG, {"refill": "idle"}),
)
REDONE = range(3, 5)  # of REGIMES: where what is prefilled again decides
WAITS = 5  # where training waits for actors that prefill
Key = tuple[int, int, int]  # place in REGIMES, KV tokens of a lane, D


class Case(NamedTuple):
    """The runs of a key, and per step: preemptions, and what a lane prefills again."""

    runs: Runs
    preemptions: float
    again_tokens: float  # of all lanes, prompts included
    again_s: float  # of one lane

    @property
    def again_share(self) -> float:
        """Tokens prefilled again per token decoded."""
        return self.again_tokens / self.runs.metrics[0].decoded_tokens

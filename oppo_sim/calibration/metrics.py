"""Which stage a framework's metric is the time of: verl and DeepSpeed-Chat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MEAN, LONGEST, TOKENS = "mean response token", "longest response token", "mean token"
Kind = Literal["stage", "part", "total"]


@dataclass(frozen=True)
class Stage:
    """Metrics whose sum is a stage's time, and what it may depend on besides a constant.

    A `part` is contained in another stage, the `total` has them all in it.
    """

    name: str
    metrics: tuple[str, ...]
    terms: tuple[str, ...] = (TOKENS,)
    kind: Kind = "stage"


@dataclass(frozen=True)
class Framework:
    """What it calls stages, lengths, and what makes a step unlike the others."""

    name: str
    stages: tuple[Stage, ...]
    mean: str | None = None
    longest: str | None = None
    prompt: str | None = None
    unlike: tuple[tuple[str, str], ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        lengths = [name for name in (self.mean, self.longest, self.prompt) if name is not None]
        times = [metric for stage in self.stages for metric in stage.metrics]
        return (*lengths, *times, *(metric for metric, _ in self.unlike))


GENERATION, TRAINING, REWARD, SYNC = "generation", "training", "reward", "weight sync"
RESHARD = "resharding, in generation"
STEP = "whole step"

VERL = Framework(
    "verl",
    (
        Stage(GENERATION, ("timing_s/gen",), (MEAN, LONGEST)),
        Stage(RESHARD, ("timing_s/reshard",), (), "part"),
        Stage(REWARD, ("timing_s/reward",)),
        Stage("old log-probabilities", ("timing_s/old_log_prob",)),
        Stage("reference", ("timing_s/ref",)),
        Stage("values", ("timing_s/values",)),
        Stage("advantages", ("timing_s/adv",)),
        Stage(TRAINING, ("timing_s/update_critic", "timing_s/update_actor")),
        Stage(SYNC, ("timing_s/update_weights",), ()),
        Stage(STEP, ("timing_s/step",), (), "total"),
    ),
    mean="response_length/mean",
    longest="response_length/max",
    prompt="prompt_length/mean",
    unlike=(("timing_s/testing", "validation"), ("timing_s/save_checkpoint", "a checkpoint")),
)
DEEPSPEED = Framework(
    "DeepSpeed-Chat",
    (
        Stage(GENERATION, ("generate",), ()),
        Stage("gathering weights", ("gather",), (), "part"),
        Stage(TRAINING, ("training",), ()),
        Stage("forwards and the rest", ("others",), ()),
        Stage(STEP, ("e2e",), (), "total"),
    ),
)
FRAMEWORKS = (VERL, DEEPSPEED)

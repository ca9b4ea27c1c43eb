"""The `[costs]` table: a cost model and its numbers; what is left out keeps its default."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field

from oppo_sim.config.bounds import LEAST_SHARE
from oppo_sim.config.fields import Count, Natural, Seconds, Table

Efficient = Annotated[float, Field(ge=LEAST_SHARE, le=1, allow_inf_nan=False)]


class Constant(Table):
    """Each task takes the same time at any batch and context."""

    model: Literal["constant"]
    round_s: Seconds = 0.0  # an actor lane stalls that long at the end of each round
    decode_token_s: Seconds = 0.0
    prefill_token_s: Seconds = 0.0
    score_call_s: Seconds = 0.0
    score_token_s: Seconds = 0.0
    train_call_s: Seconds = 0.0
    sync_call_s: Seconds = 0.0
    handoff_call_s: Seconds = 0.0


class Linear(Table):
    """Each task: seconds per call, per token, per rollout."""

    model: Literal["linear"]
    round_s: Seconds = 0.0
    decode_token_s: Seconds = 0.0
    decode_rollout_s: Seconds = 0.0
    decode_context_s: Seconds = 0.0
    prefill_call_s: Seconds = 0.0
    prefill_token_s: Seconds = 0.0
    score_call_s: Seconds = 0.0
    score_token_s: Seconds = 0.0
    score_response_s: Seconds = 0.0
    train_call_s: Seconds = 0.0
    train_token_s: Seconds = 0.0
    train_sequence_s: Seconds = 0.0
    sync_call_s: Seconds = 0.0
    handoff_call_s: Seconds = 0.0
    handoff_token_s: Seconds = 0.0


def _named(value: Any) -> Any:
    return {"base": value} if isinstance(value, str) else value


class Engine(Table):
    """An inference engine by name, and what differs from it. In TOML a text is the `base`."""

    base: str = "hf"
    launch_per_layer_s: Seconds | None = None
    terms: Literal["max", "sum"] | None = None
    hbm: Efficient | None = None
    mfu: Efficient | None = None
    per_rollout_s: Seconds | None = None
    fixed_s: Seconds | None = None  # a weight gather per token would go here


class Efficiency(Table):
    """Shares of the card's peaks, outside decode."""

    hbm: Efficient | None = None
    prefill_mfu: Efficient | None = None
    train_mfu: Efficient | None = None
    nvlink: Efficient | None = None
    network: Efficient | None = None
    tensor_parallel: Efficient | None = None


class Training(Table):
    epochs: Count | None = None
    minibatches: Count | None = None
    recomputes: bool | None = None
    padded: bool | None = None  # every sequence costs as much as the longest, as in TRL
    gathers: Natural | None = None


class Roofline(Table):
    """Launches, bytes and FLOPs on the cluster's card."""

    model: Literal["roofline"]
    round_s: Seconds = 0.0
    engine: Annotated[Engine, BeforeValidator(_named)] = Engine()
    scorer_engine: Annotated[Engine, BeforeValidator(_named)] = Engine()
    efficiency: Efficiency = Efficiency()
    training: Training = Training()
    rule_s: Seconds | None = None  # of a rule reward, per response
    score_call_s: Seconds | None = None
    handoff_call_s: Seconds | None = None


class Measured(Table):
    """Measured times; the numbers are for tasks that the file has no row of (see `Linear`)."""

    model: Literal["table"]
    file: str  # a CSV, relative to the scenario, or a shipped table by name
    padded: bool = False  # every sequence trains as long as the longest
    round_s: Seconds = 0.0
    prefill_call_s: Seconds | None = None
    prefill_token_s: Seconds | None = None
    score_call_s: Seconds | None = None
    score_token_s: Seconds | None = None
    score_response_s: Seconds | None = None
    train_call_s: Seconds | None = None
    train_token_s: Seconds | None = None
    train_sequence_s: Seconds | None = None
    sync_call_s: Seconds | None = None
    handoff_call_s: Seconds | None = None
    handoff_token_s: Seconds | None = None


Costs = Annotated[Constant | Linear | Roofline | Measured, Discriminator("model")]

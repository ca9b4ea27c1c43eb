"""One cost model of each kind, and the usual seven-plus-one pipeline of Qwen2.5-7B."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from oppo_sim.costs import (
    HF,
    VLLM,
    Actor,
    Constant,
    Costs,
    Hosted,
    Linear,
    Measured,
    Measurements,
    Roofline,
    Row,
    Scorer,
    Trainer,
    card,
    model,
)


def seven_plus_one(**changes: Any) -> Roofline:
    qwen = model("Qwen2.5-7B")
    usual = Roofline(
        card=card("H200"),
        actor=Actor(model=qwen),
        scorer=Scorer(models=(Hosted(qwen),)),
        trainer=Trainer(trained=(Hosted(qwen, "vocab"), Hosted(qwen)), devices=7),
    )
    return replace(usual, **changes)


@pytest.fixture
def pipeline() -> Callable[..., Roofline]:
    return seven_plus_one


def _judged() -> Roofline:
    qwen = model("Qwen2.5-3B")
    return seven_plus_one(
        card=card("A100-80"),
        actor=Actor(model=qwen, devices=2, engine=VLLM),
        scorer=Scorer(
            models=(Hosted(qwen, "scalar", answer_tokens=64), Hosted(qwen, "vocab")),
            engine=replace(HF, per_rollout_s=1e-4, fixed_s=2e-3),
            rule_s=0.01,
        ),
        trainer=Trainer(trained=(Hosted(qwen, "vocab"),), devices=4, nodes=2, padded=False),
        sync_over="network",
        handoff_over="network",
    )


def _measured() -> Measured:
    rows = [
        *(
            Row("decode", b, b * x, b, 0.02 + 1e-4 * b + 1e-8 * b * x)
            for b in (1, 300)
            for x in (0, 10**5)
        ),
        *(Row("prefill", 1, 0, n, 0.01 + 1e-5 * n) for n in (1, 100_000)),
        *(Row("score", 1, 0, n, 0.02 + 3e-5 * n) for n in (1, 100_000)),
        *(Row("train", 1, 0, n, 3 + 1e-4 * n) for n in (1, 1000, 100_000)),
        Row("sync", 1, 0, 0, 0.5),
        *(Row("handoff", 1, 0, n, 1e-3 + 1e-9 * n) for n in (1, 100_000)),
    ]
    return Measured(measurements=Measurements("made up", tuple(rows)))


KINDS: dict[str, Callable[[], Costs]] = {
    "constant": lambda: Constant(
        decode_token_s=0.03,
        prefill_token_s=1e-5,
        score_call_s=0.1,
        score_token_s=1e-5,
        train_call_s=7.0,
        sync_call_s=0.3,
        handoff_call_s=1e-3,
    ),
    "linear": lambda: Linear(
        decode_token_s=0.02,
        decode_rollout_s=1e-4,
        decode_context_s=1e-8,
        prefill_call_s=0.01,
        prefill_token_s=1e-5,
        score_call_s=0.01,
        score_token_s=3e-5,
        score_response_s=0.2,
        train_call_s=3.0,
        train_token_s=1e-4,
        train_sequence_s=0.01,
        sync_call_s=0.5,
        handoff_call_s=1e-3,
        handoff_token_s=1e-9,
    ),
    "measured": _measured,
    "roofline": seven_plus_one,
    "roofline with a judge": _judged,
}


@pytest.fixture(params=KINDS)
def costs(request: pytest.FixtureRequest) -> Costs:
    return KINDS[request.param]()

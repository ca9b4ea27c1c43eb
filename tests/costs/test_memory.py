"""How many tokens of KV cache fit on an actor lane."""

from __future__ import annotations

import math

import pytest

from oppo_sim.costs import Hosted, Trainer, card, kv_tokens, model, training_bytes

QWEN = model("Qwen2.5-7B")
WEIGHTS = 2 * 7_615_616_512
KV = 56 * 1024


def test_what_the_weights_and_the_reserve_leave_is_for_the_cache() -> None:
    by_hand = (0.9 * 80 * 2**30 - WEIGHTS) / KV
    assert kv_tokens(card("A100-80"), QWEN) == math.floor(by_hand) == 1_082_557
    assert kv_tokens(card("A100-80"), QWEN, devices=2) == math.floor(
        (2 * 0.9 * 80 * 2**30 - WEIGHTS) / KV
    )
    assert kv_tokens(card("A100-80"), QWEN, reserve_fraction=0.0) > math.floor(by_hand)


def test_training_on_the_same_devices_leaves_less() -> None:
    gang = Trainer(trained=(Hosted(QWEN, "vocab"), Hosted(QWEN)), devices=7)
    params = 7_615_616_512 + 7_615_616_512 - 152_064 * 3584
    assert training_bytes(gang) == pytest.approx(16 * params / 7)
    resident = training_bytes(gang)
    left = kv_tokens(card("H200"), QWEN, resident_bytes=resident)
    assert left == math.floor((0.9 * 141 * 2**30 - resident - WEIGHTS) / KV)


def test_a_model_that_does_not_fit_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"no room for a KV cache on 1 x A100-40: weights 15.2 GB"):
        kv_tokens(card("A100-40"), QWEN, resident_bytes=30e9)


@pytest.mark.parametrize("bad", [math.nan, -0.1, 1.0, math.inf])
def test_the_reserve_is_a_share(bad: float) -> None:
    with pytest.raises(ValueError, match=f"reserve_fraction is {bad!r}; it must be"):
        kv_tokens(card("H200"), QWEN, reserve_fraction=bad)


def test_other_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match=r"devices is 0; .* at least 1"):
        kv_tokens(card("H200"), QWEN, devices=0)
    with pytest.raises(ValueError, match="resident_bytes is -1; it must be"):
        kv_tokens(card("H200"), QWEN, resident_bytes=-1)

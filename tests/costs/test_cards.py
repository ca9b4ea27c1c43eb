"""Data files of hardware and models: what they hold, where it is from, what is refused."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import pytest

from oppo_sim.costs import card, card_names, model, model_names
from oppo_sim.costs.cards import parse_card, parse_model

NUMBERS = {
    "peak_flop_per_s": 1e15,
    "hbm_bytes": 10**11,
    "hbm_bytes_per_s": 4e12,
    "nvlink_bytes_per_s": 4e11,
    "network_bytes_per_s": 5e10,
    "devices_per_node": 8,
}


def test_what_is_shipped() -> None:
    assert card_names() == ["A100-40", "A100-80", "GH200-144", "GH200-96", "H100", "H200"]
    assert model_names() == ["Qwen2.5-0.5B", "Qwen2.5-1.5B", "Qwen2.5-3B", "Qwen2.5-7B"]
    assert {name: card(name).hbm_bytes_per_s / 1e12 for name in card_names()} == {
        "A100-40": 1.555,
        "A100-80": 2.039,
        "GH200-144": 4.8,
        "GH200-96": 4.0,
        "H100": 3.35,
        "H200": 4.8,
    }


def test_every_number_of_a_card_has_a_source() -> None:
    for name in card_names():
        one = card(name)
        stated = {f.name for f in fields(one) if f.name not in ("name", "sources")}
        if one.best_matmul_flop_per_s is None:
            stated.remove("best_matmul_flop_per_s")
        assert stated == set(one.sources)
    for name in model_names():
        assert "config.json" in model(name).sources["shape"]


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"unknown hardware card 'h-200'; did you mean 'H200'\?"):
        card("h-200")
    with pytest.raises(ValueError, match=r"unknown model 'qwen2.5-7b'; did you mean 'Qwen2.5-7B'"):
        model("qwen2.5-7b")
    with pytest.raises(ValueError, match=r"unknown hardware card 'TPU'; .*known: A100-40, A100-80"):
        card("TPU")


def test_a_table_with_wrong_keys_is_refused() -> None:
    with pytest.raises(ValueError, match="card mine: unknown key 'hbm_byte'; did you mean 'hbm_b"):
        parse_card("mine", {**NUMBERS, "hbm_byte": 1})
    with pytest.raises(ValueError, match="card mine: hbm_bytes is missing"):
        parse_card("mine", {key: n for key, n in NUMBERS.items() if key != "hbm_bytes"})
    with pytest.raises(ValueError, match="model mine: layers is missing"):
        parse_model("mine", {})


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, 0.0, "fast", True])
@pytest.mark.parametrize("key", [*NUMBERS, "launch_scale", "best_matmul_flop_per_s"])
def test_a_card_refuses_impossible_numbers(key: str, bad: object) -> None:
    if key == "devices_per_node" and bad is True:
        bad = 1.5
    with pytest.raises(ValueError, match=f"card mine.{key} is {bad!r}; it must be"):
        parse_card("mine", {**NUMBERS, key: bad})


def test_nobody_multiplies_faster_than_the_peak() -> None:
    with pytest.raises(ValueError, match=r"best_matmul_flop_per_s is .*at most peak_flop_per_s"):
        replace(card("H100"), best_matmul_flop_per_s=1e15)

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


SLIPS = [
    ("peak_flop_per_s", 200, "FLOP/s, such as 9.9e14"),  # TFLOP/s
    ("peak_flop_per_s", 989_000, "FLOP/s"),  # GFLOP/s
    ("peak_flop_per_s", 989e18, "FLOP/s"),
    ("hbm_bytes", 80, "bytes, such as"),  # GB
    ("hbm_bytes_per_s", 3.35, "bytes/s, such as 4.8e12"),  # TB/s
    ("hbm_bytes_per_s", 3350.0, "bytes/s"),  # GB/s
    ("nvlink_bytes_per_s", 450, "bytes/s"),  # GB/s
    ("network_bytes_per_s", 400, "bytes/s"),  # Gb/s
    ("launch_scale", 1e5, "multiples of"),
]


@pytest.mark.parametrize(("key", "value", "unit"), SLIPS)
def test_a_number_in_another_unit_is_refused(key: str, value: float, unit: str) -> None:
    with pytest.raises(ValueError, match=f"card mine.{key} is .*; it must be from .*, in {unit}"):
        parse_card("mine", {**NUMBERS, key: value})


def test_old_and_coming_devices_are_no_slips() -> None:
    """A laptop's GPU (GTX 1650), and a rack-scale part of the next years."""
    laptop = (3e12, 4 * 10**9, 128e9, 16e9, 125e6)
    coming = (5e16, 10**12, 3e13, 3.6e12, 2e11)
    keys = [key for key in NUMBERS if key != "devices_per_node"]
    for numbers in (laptop, coming):
        parse_card("mine", {**NUMBERS, **dict(zip(keys, numbers, strict=True))})


def test_nobody_multiplies_faster_than_the_peak() -> None:
    with pytest.raises(ValueError, match=r"best_matmul_flop_per_s is .*at most peak_flop_per_s"):
        replace(card("H100"), best_matmul_flop_per_s=1e15)

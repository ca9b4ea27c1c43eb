"""Hardware cards and model shapes by name, from the data files that hold their sources."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from oppo_sim.config.errors import nearest
from oppo_sim.costs import checks
from oppo_sim.costs.models import ModelShape

# The least and the most of any device, and the unit with a number as of an H200.
PLAUSIBLE = {
    "peak_flop_per_s": (1e10, 1e18, "FLOP/s, such as 9.9e14"),
    "best_matmul_flop_per_s": (1e10, 1e18, "FLOP/s, such as 7.9e14"),
    "hbm_bytes": (1e9, 1e14, "bytes, such as 151_000_000_000"),
    "hbm_bytes_per_s": (1e9, 1e16, "bytes/s, such as 4.8e12"),
    "nvlink_bytes_per_s": (1e7, 1e15, "bytes/s, such as 4.5e11"),
    "network_bytes_per_s": (1e6, 1e14, "bytes/s, such as 5e10"),
    "launch_scale": (0.01, 100, "multiples of the A100-80 host's, such as 1.0"),
}


@dataclass(frozen=True, kw_only=True)
class Card:
    """One accelerator in its host. Rates are peaks: efficiencies belong to the cost model.

    `launch_scale` is the host's CPU against the one on which kernel launches were measured (x86
    with A100-80): launches take that many times as long. To try another host, `replace` it.
    """

    name: str
    peak_flop_per_s: float  # bf16, dense
    best_matmul_flop_per_s: float | None = None  # the best anyone saw: no MFU can be above
    hbm_bytes: int
    hbm_bytes_per_s: float
    nvlink_bytes_per_s: float  # one way, per device
    network_bytes_per_s: float  # one way, per device, to another node
    devices_per_node: int
    launch_scale: float = 1.0
    sources: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        owner = f"card {self.name}"
        rates = (
            "peak_flop_per_s",
            "hbm_bytes_per_s",
            "nvlink_bytes_per_s",
            "network_bytes_per_s",
            "launch_scale",
        )
        checks.positive(owner, **{name: getattr(self, name) for name in rates})
        checks.count(owner, 1, hbm_bytes=self.hbm_bytes, devices_per_node=self.devices_per_node)
        best = self.best_matmul_flop_per_s
        if best is not None:
            checks.positive(owner, best_matmul_flop_per_s=best)
            if best > self.peak_flop_per_s:
                raise ValueError(
                    f"{owner}.best_matmul_flop_per_s is {best!r}; "
                    f"it must be at most peak_flop_per_s ({self.peak_flop_per_s!r})"
                )
        for name, (least, most, unit) in PLAUSIBLE.items():
            value = getattr(self, name)
            if value is not None:
                checks.within(owner, name, value, least, most, unit)


@cache  # a scenario asks for it a dozen times
def card(name: str) -> Card:
    """A shipped card: A100-40, A100-80, H100, H200, GH200-96, GH200-144."""
    return parse_card(name, _read("hardware", name))


@cache
def model(name: str) -> ModelShape:
    """A shipped model shape: Qwen2.5-0.5B, -1.5B, -3B, -7B."""
    return parse_model(name, _read("models", name))


def parse_card(name: str, table: Mapping[str, Any]) -> Card:
    """A card from the keys of its file; ValueError names an unknown, missing or wrong one."""
    _check_keys(Card, f"card {name}", table)
    return Card(name=name, **table)


def parse_model(name: str, table: Mapping[str, Any]) -> ModelShape:
    """As `parse_card`."""
    _check_keys(ModelShape, f"model {name}", table)
    return ModelShape(name=name, **table)


def card_names() -> list[str]:
    return sorted(_shelf("hardware"))


def model_names() -> list[str]:
    return sorted(_shelf("models"))


def _shelf(kind: str) -> dict[str, Traversable]:
    folder = files("oppo_sim") / "data" / kind
    return {
        entry.name.removesuffix(".toml"): entry
        for entry in folder.iterdir()
        if entry.name.endswith(".toml")
    }


def _read(kind: str, name: str) -> dict[str, Any]:
    shelf = _shelf(kind)
    if name not in shelf:
        word = {"hardware": "hardware card", "models": "model"}[kind]
        raise ValueError(f"unknown {word} {name!r}; {nearest(name, sorted(shelf))}")
    return tomllib.loads(shelf[name].read_text(encoding="utf-8"))


def _check_keys(kind: type[Card] | type[ModelShape], owner: str, table: Mapping[str, Any]) -> None:
    known = {f.name: f for f in fields(kind) if f.name != "name"}
    for key in table:
        if key not in known:
            raise ValueError(f"{owner}: unknown key {key!r}; {nearest(key, list(known))}")
    for key, f in known.items():
        if key not in table and f.default is MISSING and f.default_factory is MISSING:
            raise ValueError(f"{owner}: {key} is missing; add it")
    sources = table.get("sources", {})
    if not (isinstance(sources, Mapping) and all(isinstance(s, str) for s in sources.values())):
        raise ValueError(f"{owner}: sources must be a table of texts, one for each number")

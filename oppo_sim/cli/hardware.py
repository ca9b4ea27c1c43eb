"""`oppo hardware`: cards and model shapes, and where each of their numbers is from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oppo_sim.cli import console

if TYPE_CHECKING:
    from oppo_sim.costs import Card, ModelShape

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Hardware cards and model shapes: what there is, each number with its source.",
)

UNITS = {
    "peak_flop_per_s": (1e12, "TFLOP/s, bf16 dense"),
    "best_matmul_flop_per_s": (1e12, "TFLOP/s, best matrix product seen"),
    "hbm_bytes": (1024**3, "GiB of memory"),
    "hbm_bytes_per_s": (1e12, "TB/s of memory"),
    "nvlink_bytes_per_s": (1e9, "GB/s one way to a device of the node"),
    "network_bytes_per_s": (1e9, "GB/s one way to another node"),
    "devices_per_node": (1, "devices in a node"),
    "launch_scale": (1, "times the launches of an A100-80 host"),
    "layers": (1, "layers"),
    "hidden": (1, "hidden size"),
    "heads": (1, "query heads"),
    "kv_heads": (1, "key and value heads"),
    "head_dim": (1, "numbers a head"),
    "intermediate": (1, "intermediate size of the MLP"),
    "vocab": (1, "tokens of the vocabulary"),
    "tied_embeddings": (None, "the head is the embedding table"),
    "qkv_bias": (None, "queries, keys and values have a bias"),
    "params": (1e9, "billion parameters"),
    "kv_bytes": (1024, "KiB of KV cache a token, bf16"),
}
COMPUTED = "computed from the shape"


@app.command("list")
def show_all(as_json: console.AsJson = False) -> None:
    """List the shipped cards and model shapes.

    A scenario takes them by name, or the path of one's own: cluster.card = "my_card.toml" with the
    keys that `show` prints, models.actor = "path/config.json" of a dense Hugging Face model.
    """
    from oppo_sim.costs import card, card_names, model, model_names

    cards = [card(name) for name in card_names()]
    models = [model(name) for name in model_names()]
    if as_json:
        console.emit(
            {
                "cards": {one.name: _numbers(one) for one in cards},
                "models": {one.name: _numbers(one) for one in models},
            }
        )
        return
    _print(
        ("card", "bf16 TFLOP/s", "GiB", "TB/s", "NVLink GB/s", "network GB/s"),
        [
            (
                one.name,
                f"{one.peak_flop_per_s / 1e12:g}",
                f"{one.hbm_bytes / 1024**3:g}",
                f"{one.hbm_bytes_per_s / 1e12:g}",
                f"{one.nvlink_bytes_per_s / 1e9:g}",
                f"{one.network_bytes_per_s / 1e9:g}",
            )
            for one in cards
        ],
    )
    _print(
        ("model", "B parameters", "layers", "hidden", "KiB of KV a token"),
        [
            (
                one.name,
                f"{one.params() / 1e9:.3f}",
                f"{one.layers}",
                f"{one.hidden}",
                f"{one.kv_bytes / 1024:g}",
            )
            for one in models
        ],
    )


@app.command("show")
def show_one(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE", help="A card or model; or one's own: my_card.toml, config.json."
        ),
    ],
    as_json: console.AsJson = False,
) -> None:
    """Show a card or a model: each number, its unit, its source."""
    from oppo_sim.costs import ModelShape

    found = _find(name)
    numbers = _numbers(found)
    if as_json:
        console.emit({"name": found.name, **numbers, "sources": dict(found.sources)})
        return
    is_model = isinstance(found, ModelShape)
    console.show(f"{'model' if is_model else 'card'} {found.name}")
    rows = []
    for key, value in numbers.items():
        if value is not None:
            source = COMPUTED if key in ("params", "kv_bytes") else found.sources.get(key, "")
            rows.append((key, _in_unit(key, value), UNITS[key][1], source))
    _print(("key", "value", "unit", "source"), rows)
    rest = [f"{key}: {text}" for key, text in found.sources.items() if key not in numbers]
    console.show(*(rest if found.sources else ["No sources are given."]))


def _find(name: str) -> Card | ModelShape:
    from oppo_sim.config.errors import nearest
    from oppo_sim.costs import card_at, card_names, model_at, model_names
    from oppo_sim.costs.own import is_path, kind_of

    if is_path(name):
        return card_at(name) if kind_of(name) == "card" else model_at(name)
    if name in card_names():
        return card_at(name)
    if name in model_names():
        return model_at(name)
    known = [*card_names(), *model_names()]
    raise ValueError(
        f"no card or model is called {name!r}; {nearest(name, known)}; or give the path of a card "
        "(TOML) or a config.json"
    )


def _numbers(one: Card | ModelShape) -> dict[str, Any]:
    from oppo_sim.costs import ModelShape

    own = {f.name: getattr(one, f.name) for f in fields(one) if f.name not in ("name", "sources")}
    if isinstance(one, ModelShape):
        own |= {"params": one.params(), "kv_bytes": one.kv_bytes}
    return own


def _in_unit(key: str, value: Any) -> str:
    scale = UNITS[key][0]
    if scale is None:
        return "yes" if value else "no"
    return f"{value}" if isinstance(value, int) and scale == 1 else f"{value / scale:.4g}"


def _print(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    from rich.box import SIMPLE
    from rich.table import Table

    table = Table(box=SIMPLE, pad_edge=False)
    for n, word in enumerate(header):
        is_number = n > 0 and word not in ("unit", "source")
        table.add_column(word, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.show(table)

"""A table of some models, scaled to others by the products that a token takes with their weights.

A first guess at models that nobody has measured: what a call takes besides is scaled alike.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from oppo_sim.calibration.refined import scaled
from oppo_sim.costs import Measurements, ModelShape, measurements
from oppo_sim.costs.identity import digest

_SHAPE = re.compile(r"(actor|reward|critic|reference) [^;]*?((?:\d+x){5}\d+)(?:;|$)")


def rescaled(table: Path, models: str, scoring: str) -> tuple[Measurements, dict[str, float]]:
    """The table as if of other models, and the factor of each kind of task.

    `models` and `scoring` as a table's header and a run's machine.json say them. ValueError where
    one of them says no shapes.
    """
    found = measurements(str(table.resolve()))
    before, after = (
        _flop(file, said, scoring)
        for file, said in ((table, found.provenance.get("models", "")), ("the run", models))
    )
    by = {kind: after[kind] / flop if flop else 1.0 for kind, flop in before.items()}
    words = ", ".join(f"{kind} x {factor:.3f}" for kind, factor in by.items())
    said = {"models": models, "rescaled": words}
    said["digest"] = digest({**found.provenance, **said})
    return scaled(found, by, said), by


def _flop(owner: object, models: str, scoring: str) -> dict[str, float]:
    """Of a token, by kind of task."""
    shapes = {name: _shape(name, sizes) for name, sizes in _SHAPE.findall(models)}
    if "actor" not in shapes:
        raise ValueError(
            f"{owner}: says no shapes of models ({models!r}), so that nothing can be scaled by "
            "them: measure a table with `oppo profile`, or leave out --rescale"
        )
    on_scorer = "reference" in scoring
    actor = shapes["actor"].forward_flop("vocab")
    reward, critic = (_scalar(shapes, name) for name in ("reward", "critic"))
    reference = shapes["reference"].forward_flop("vocab") if "reference" in shapes else 0.0
    return {
        "decode": actor,
        "score": reward + on_scorer * reference,
        "train": 3 * (actor + critic) + (not on_scorer) * reference,
    }


def _scalar(shapes: Mapping[str, ModelShape], name: str) -> float:
    return shapes[name].forward_flop("scalar") if name in shapes else 0.0


def _shape(name: str, sizes: str) -> ModelShape:
    vocab, hidden, intermediate, layers, heads, kv_heads = map(int, sizes.split("x"))
    return ModelShape(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=hidden // heads,
        intermediate=intermediate,
        vocab=vocab,
        tied_embeddings=True,
        qkv_bias=True,
    )

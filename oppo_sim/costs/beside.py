"""How much work is slowed by other work beside it, from a table that measured both."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from oppo_sim.costs.measurements import BESIDE, Row
from oppo_sim.costs.table import Measured


def stretches(costs: Measured) -> dict[str, float]:
    """The stretches of `cluster.contention` that were measured: a median over their points.

    Nothing is taken to be faster beside something else.
    """
    names = {"decode+score": "decode_stretch", "score+decode": "score_stretch"}
    found = {}
    for task in BESIDE:
        ratios = [ratio for _, ratio in ratios_of(costs, task)]
        if ratios:
            name = names.get(task, f"{task.replace('+', '_')}_stretch")
            found[name] = max(1.0, median(ratios))
    return found


def ratios_of(costs: Measured, task: str) -> Iterator[tuple[Row, float]]:
    """Of each point, its time beside the other work over what it takes alone."""
    for row in costs.measurements.of(task):
        yield row, row.seconds / _alone_s(costs, task.partition("+")[0], row)


def _alone_s(costs: Measured, kind: str, row: Row) -> float:
    """At the table's own scale; a table with work side by side is one of single forwards."""
    law = costs.by_row
    if kind == "decode":
        return costs.decode.token_s(row.batch, row.context_tokens) / costs.scale
    if law is None:
        raise ValueError(f"{costs.measurements.name}: has {kind} beside other work, and no rows")
    held, tokens = row.context_tokens // row.batch, row.tokens // row.batch
    if kind == "score":
        return law.score_s([(held, held + tokens)] * row.batch) / costs.scale
    return (law.train_s([tokens] * row.batch)) / costs.scale

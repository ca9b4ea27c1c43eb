"""Costs from a table of measured times, met where they rise, and interpolated in between."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Self

from oppo_sim.costs import checks
from oppo_sim.costs.calls import Calls, calls
from oppo_sim.costs.forwards import Forwards
from oppo_sim.costs.interface import DecodeLaw
from oppo_sim.costs.knots import fitted
from oppo_sim.costs.linear import Linear
from oppo_sim.costs.measurements import Measurements
from oppo_sim.costs.padded import Padded, padded
from oppo_sim.costs.profiled import Profiled, sharing
from oppo_sim.costs.ranges import Range
from oppo_sim.costs.surface import DecodeSurface


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A pipeline's costs from measurements; `rest` has those of the tasks that they leave out.

    Outside of what was measured it extrapolates, with one ExtrapolationWarning per task.
    """

    measurements: Measurements
    rest: Linear = field(default_factory=Linear)
    padded: bool = False  # every sequence trains as long as the longest
    scale: float = 1.0
    decode: DecodeLaw = field(init=False, repr=False, compare=False)
    _rest: Linear = field(init=False, repr=False, compare=False)
    _curves: dict[str, Calls | Padded] = field(init=False, repr=False, compare=False)
    _sync_s: float = field(init=False, repr=False, compare=False)
    by_row: Profiled | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checks.truth("Measured", padded=self.padded)
        checks.positive("Measured", scale=self.scale)
        table, scale = self.measurements, self.scale
        is_padded = "grouped" in table.provenance
        curves = {
            task: (padded if is_padded and task == "prefill" else calls)(
                table.name, task, table.of(task)
            ).scaled(scale)
            for task in ("prefill", "score", "train", "handoff")
            if table.of(task)
        }
        sync = [row.seconds for row in table.of("sync")]
        rest = self.rest.scaled(scale)
        decode = _surface(table).scaled(scale)
        derived = {
            "decode": decode,
            "_rest": rest,
            "_curves": curves,
            "_sync_s": fmean(sync) * scale if sync else rest.sync_s(),
            "by_row": _by_row(table, decode, scale),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def prefill_s(self, tokens: int, attention: float) -> float:
        curve = self._curves.get("prefill")
        if curve is None:
            return self._rest.prefill_s(tokens, attention)
        return curve.seconds(tokens, attention) if tokens else 0.0

    def score_s(self, sequences: int, tokens: int, attention: float, lasts: int) -> float:
        curve = self._curves.get("score")
        if curve is None:
            return self._rest.score_s(sequences, tokens, attention, lasts)
        return curve.seconds(tokens, attention) if tokens else 0.0

    def train_s(self, sequences: int, tokens: int, longest: int) -> float:
        if self.padded:
            tokens = sequences * longest
        curve = self._curves.get("train")
        if curve is None:
            return self._rest.train_s(sequences, tokens, longest)
        return curve.seconds(tokens, 0.0) if tokens else 0.0

    def sync_s(self) -> float:
        return self._sync_s

    def handoff_s(self, tokens: int) -> float:
        curve = self._curves.get("handoff")
        if curve is None:
            return self._rest.handoff_s(tokens)
        return curve.seconds(tokens, 0.0) if tokens else 0.0

    def scaled(self, factor: float) -> Self:
        checks.positive("Measured.scaled", factor=factor)
        return replace(self, scale=self.scale * factor)


def _by_row(table: Measurements, decode: DecodeSurface, scale: float) -> Profiled | None:
    """Where the table is of single forwards; ranges that were left are its own matter."""
    forwards, own = Forwards.of(table), Forwards.of(table)
    if forwards is None or own is None:
        return None
    return Profiled(forwards.scaled(scale), decode, sharing(table, _surface(table), own))


def _surface(table: Measurements) -> DecodeSurface:
    seconds: dict[int, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in table.of("decode"):
        seconds[row.batch][row.context_tokens / row.batch].append(row.seconds)
    points = {
        batch: {context: fmean(times) for context, times in curve.items()}
        for batch, curve in seconds.items()
    }
    knots = fitted(points)
    contexts = [context for curve in points.values() for context in curve]
    return DecodeSurface.through(
        knots,
        Range(
            "decode: batch", knots[0].batch, knots[-1].batch, "its last rise goes on", table.name
        ),
        Range(
            "decode: context of a rollout (not all at every batch)",
            min(contexts),
            max(contexts),
            "its slope goes on",
            table.name,
        ),
    )

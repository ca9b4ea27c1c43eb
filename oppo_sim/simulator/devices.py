"""Devices that several lanes share, and what sharing costs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import isfinite

from oppo_sim.engine.contract import Lane


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """Decoding and scoring that run on one device stretch each other; a change of work takes time.

    The stretches multiply what takes time on an actor lane (tokens and stalls) and on a scorer,
    while both run. `switch_s` is paid by work of one kind (decode, score, train) that finds a
    device last used by another.
    """

    decode_stretch: float = 1.0
    score_stretch: float = 1.0
    switch_s: float = 0.0

    def __post_init__(self) -> None:
        for field, least in (("decode_stretch", 1.0), ("score_stretch", 1.0), ("switch_s", 0.0)):
            value = getattr(self, field)
            if not isfinite(value) or value < least:
                raise ValueError(
                    f"contention.{field} = {value}: must be finite and at least {least:g}"
                )

    def scaled(self, factor: float) -> Contention:
        """The same stretches; every time times `factor`."""
        return Contention(
            decode_stretch=self.decode_stretch,
            score_stretch=self.score_stretch,
            switch_s=self.switch_s * factor,
        )


class Devices:
    """Which lanes share a device, and which kind of work used it last."""

    def __init__(self, lanes: Sequence[Lane], contention: Contention) -> None:
        kinds: dict[str, set[str]] = {}
        for lane in lanes:
            for device in lane.devices:
                kinds.setdefault(device, set()).add(lane.kind)
        self._shared = {device for device, on_it in kinds.items() if len(on_it) > 1}
        self._last: dict[str, str] = {}
        self._switch_s = contention.switch_s
        scored = {device for device, on_it in kinds.items() if {"actor", "scorer"} <= on_it}
        self.rivals = frozenset(
            lane.name
            for lane in lanes
            if lane.kind == "actor" and not scored.isdisjoint(lane.devices)
        )  # actor lanes that share a device with a scorer

    def switch_s(self, devices: Collection[str], kind: str) -> float:
        """Give devices to a kind of work; the seconds that it takes."""
        if not self._switch_s:
            return 0.0
        shared = self._shared.intersection(devices)
        changes = any(self._last.get(device, kind) != kind for device in shared)
        self._last.update(dict.fromkeys(shared, kind))
        return self._switch_s if changes else 0.0

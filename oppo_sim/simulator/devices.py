"""Devices that several lanes share, and what sharing costs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import isfinite

from oppo_sim.engine.contract import Lane


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """Work of different kinds that runs side by side is stretched; a change of work takes time.

    `decode_stretch` multiplies what takes time on an actor lane (tokens and stalls) while a scorer
    works on its device, `score_stretch` a score while its device decodes, the others alike: of the
    first kind, beside the second; `decode_decode_stretch` while another actor lane decodes, however
    many do. With `shared_host` all devices are one machine's, and it does not matter on which the
    work is. What is stretched by two others waits for both: the excesses add up. `switch_s` is paid
    by work of one kind (decode, score, train) that finds a device last used by another.
    """

    decode_stretch: float = 1.0
    score_stretch: float = 1.0
    decode_decode_stretch: float = 1.0
    decode_train_stretch: float = 1.0
    train_decode_stretch: float = 1.0
    score_train_stretch: float = 1.0
    train_score_stretch: float = 1.0
    switch_s: float = 0.0
    shared_host: bool = False

    def __post_init__(self) -> None:
        for field in (*_STRETCHES.values(), "switch_s"):
            value, least = getattr(self, field), 0.0 if field == "switch_s" else 1.0
            if not isfinite(value) or value < least:
                raise ValueError(
                    f"contention.{field} = {value}: must be finite and at least {least:g}"
                )

    def stretch(self, kind: str, beside: Collection[str]) -> float:
        """Wall seconds per second of one kind of work beside others."""
        excess = 0.0
        for other in beside:
            field = _STRETCHES.get((kind, other))
            if field is not None:
                excess += getattr(self, field) - 1.0
        return 1.0 + excess

    def scaled(self, factor: float) -> Contention:
        """The same stretches; every time times `factor`."""
        return replace(self, switch_s=self.switch_s * factor)


_STRETCHES = {
    ("decode", "score"): "decode_stretch",
    ("score", "decode"): "score_stretch",
    ("decode", "decode"): "decode_decode_stretch",
    ("decode", "train"): "decode_train_stretch",
    ("train", "decode"): "train_decode_stretch",
    ("score", "train"): "score_train_stretch",
    ("train", "score"): "train_score_stretch",
}


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
            if lane.kind == "actor"
            and (contention.shared_host or not scored.isdisjoint(lane.devices))
        )  # actor lanes that work beside others: on a device that scores, or on one host with all

    def switch_s(self, devices: Collection[str], kind: str) -> float:
        """Give devices to a kind of work; the seconds that it takes."""
        if not self._switch_s:
            return 0.0
        shared = self._shared.intersection(devices)
        changes = any(self._last.get(device, kind) != kind for device in shared)
        self._last.update(dict.fromkeys(shared, kind))
        return self._switch_s if changes else 0.0

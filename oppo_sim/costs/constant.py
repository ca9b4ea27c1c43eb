"""Constant costs: the machine of the oracles whose answer is known exactly."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Self

from oppo_sim.costs import checks
from oppo_sim.costs.interface import DecodeLaw


@dataclass(frozen=True, kw_only=True)
class Constant:
    """Each task takes the same time at any batch and context.

    Prefill costs by the token, scoring by the call and the token.
    """

    decode_token_s: float = 0.0  # one iteration
    prefill_token_s: float = 0.0
    score_call_s: float = 0.0
    score_token_s: float = 0.0
    train_call_s: float = 0.0
    sync_call_s: float = 0.0
    handoff_call_s: float = 0.0
    decode: DecodeLaw = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checks.not_negative("Constant", **self._times())
        object.__setattr__(self, "decode", DecodeLaw.of((self.decode_token_s, 0.0, 0.0)))

    @property
    def by_row(self) -> None:
        """Sums are enough."""

    def prefill_s(self, tokens: int, attention: float) -> float:
        return self.prefill_token_s * tokens

    def score_s(self, sequences: int, tokens: int, attention: float, lasts: int) -> float:
        return self.score_call_s + self.score_token_s * tokens

    def train_s(self, sequences: int, tokens: int, longest: int) -> float:
        return self.train_call_s

    def sync_s(self) -> float:
        return self.sync_call_s

    def handoff_s(self, tokens: int) -> float:
        return self.handoff_call_s

    def scaled(self, factor: float) -> Self:
        checks.positive("Constant.scaled", factor=factor)
        return type(self)(**{name: value * factor for name, value in self._times().items()})

    def _times(self) -> dict[str, float]:
        return {f.name: getattr(self, f.name) for f in fields(self) if f.init}

"""Costs linear in tokens, rollouts and context: what a regression on stage times gives."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Self

from oppo_sim.costs import checks
from oppo_sim.costs.interface import DecodeLaw


@dataclass(frozen=True, kw_only=True)
class Linear:
    """Each task: seconds per call + per token + per rollout; what is not given costs nothing.

    Prefill, hand-off and training of nothing cost nothing at all. Training by the token is
    unpadded; padded training costs the same whatever the lengths: `train_call_s` alone.
    """

    decode_token_s: float = 0.0  # one iteration, plus the next two times batch and KV context
    decode_rollout_s: float = 0.0
    decode_context_s: float = 0.0
    prefill_call_s: float = 0.0
    prefill_token_s: float = 0.0
    score_call_s: float = 0.0
    score_token_s: float = 0.0
    score_response_s: float = 0.0  # per response that ends in the call: a rule, a judge's answer
    train_call_s: float = 0.0
    train_token_s: float = 0.0
    train_sequence_s: float = 0.0
    sync_call_s: float = 0.0
    handoff_call_s: float = 0.0
    handoff_token_s: float = 0.0
    decode: DecodeLaw = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checks.not_negative("Linear", **self._times())
        line = (self.decode_token_s, self.decode_rollout_s, self.decode_context_s)
        object.__setattr__(self, "decode", DecodeLaw.of(line))

    @property
    def by_row(self) -> None:
        """Sums are enough."""

    def prefill_s(self, tokens: int, attention: float) -> float:
        return self.prefill_call_s + self.prefill_token_s * tokens if tokens else 0.0

    def score_s(self, sequences: int, tokens: int, attention: float, lasts: int) -> float:
        return self.score_call_s + self.score_token_s * tokens + self.score_response_s * lasts

    def train_s(self, sequences: int, tokens: int, longest: int) -> float:
        if not sequences:
            return 0.0
        per_call = self.train_call_s + self.train_sequence_s * sequences
        return per_call + self.train_token_s * tokens

    def sync_s(self) -> float:
        return self.sync_call_s

    def handoff_s(self, tokens: int) -> float:
        return self.handoff_call_s + self.handoff_token_s * tokens if tokens else 0.0

    def scaled(self, factor: float) -> Self:
        checks.positive("Linear.scaled", factor=factor)
        return type(self)(**{name: value * factor for name, value in self._times().items()})

    def _times(self) -> dict[str, float]:
        return {f.name: getattr(self, f.name) for f in fields(self) if f.init}

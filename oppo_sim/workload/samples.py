"""A sample of lengths as counts: gigabytes of rows come down to one number per distinct length."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from oppo_sim.workload.checks import whole
from oppo_sim.workload.lengths import ENDLESS

LOOKS_CUT = 0.002  # of the responses end at the longest length


@dataclass(frozen=True, eq=False)
class Sample:
    """`counts[i]` responses have `tokens[i]` tokens; from `cap_tokens` on they were cut."""

    tokens: NDArray[np.int64]  # distinct, rising
    counts: NDArray[np.int64]
    cap_tokens: int | None = None

    def __post_init__(self) -> None:
        if not len(self.tokens) or self.tokens[0] < 1 or np.any(np.diff(self.tokens) <= 0):
            raise ValueError("tokens must be whole numbers >= 1, rising, and at least one of them")
        if self.counts.shape != self.tokens.shape or np.any(self.counts < 1):
            raise ValueError("counts must be whole numbers >= 1, one for each of the tokens")
        if self.cap_tokens is not None:
            whole("cap_tokens", self.cap_tokens, least=2)
            if self.tokens[0] >= self.cap_tokens:
                raise ValueError(
                    f"cap_tokens = {self.cap_tokens}: every response is as long, the shortest has "
                    f"{self.tokens[0]} tokens; give the cap at which they were cut"
                )

    @classmethod
    def of(
        cls, lengths: Iterable[int] | NDArray[np.int64], cap_tokens: int | None = None
    ) -> Sample:
        """The sample of a list of lengths."""
        tokens, counts = np.unique(np.asarray(lengths, dtype=np.int64), return_counts=True)
        return cls(tokens, counts.astype(np.int64), cap_tokens)

    @property
    def n(self) -> int:
        return int(self.counts.sum())

    @property
    def cut(self) -> int:
        """How many responses reached the cap."""
        cap = self.cap_tokens
        return 0 if cap is None else int(self.counts[self.tokens >= cap].sum())

    @property
    def looks_cut_at(self) -> int | None:
        """The longest length, where so many have it that it looks like a cap nobody stated."""
        if self.cap_tokens is not None or len(self.tokens) < 2:
            return None
        longest = int(self.tokens[-1])
        at_end = int(self.counts[self.tokens >= longest - 1].sum())  # a cap of c shows as c + 1
        below = int(self.counts[(self.tokens >= 0.9 * longest) & (self.tokens < longest - 1)].sum())
        looks = at_end >= max(3, LOOKS_CUT * self.n) and at_end > below
        return int(self.tokens[self.tokens >= longest - 1][0]) if looks else None

    @property
    def body(self) -> Sample:
        """The responses that ended by themselves."""
        keep = self.tokens < (ENDLESS if self.cap_tokens is None else self.cap_tokens)
        return Sample(self.tokens[keep], self.counts[keep])

    @property
    def under_cap(self) -> NDArray[np.int64]:
        """The tokens as decoded: none beyond the cap."""
        return self.tokens if self.cap_tokens is None else np.minimum(self.tokens, self.cap_tokens)

    @property
    def mean(self) -> float:
        return float(np.average(self.under_cap, weights=self.counts))

    @cached_property
    def _cumulative(self) -> NDArray[np.float64]:
        return np.cumsum(self.counts) / self.n

    def cdf(self) -> NDArray[np.float64]:
        """The share of responses with at most `tokens[i]` tokens."""
        return self._cumulative

    def ppf(self, u: NDArray[np.float64]) -> NDArray[np.int64]:
        """The lengths, under the cap, at probabilities u in [0, 1)."""
        place = np.searchsorted(self._cumulative, u, side="right")
        return self.under_cap[np.minimum(place, len(self.tokens) - 1)]

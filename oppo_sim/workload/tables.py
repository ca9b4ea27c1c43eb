"""Lengths read off a quantile table, with what its source cut kept as a point mass."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from oppo_sim.workload.checks import finite, whole

Knots = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True)
class QuantileTable:
    """A piecewise linear quantile function, with a point mass at the source's cap if it has one.

    Counts include the end token. A response that its source cut at `cap_tokens` = c new tokens has
    none, and shows as c + 1 after tokenising its text again (as c where that saves a token, or a
    little more with another tokenizer). So the rule: **a value >= c was cut**, and all that is
    known of its length is that it is above c; `ppf` gives c + 1 for it. The mass is never
    interpolated across: below it the curve ends at `max_below_cap`, or stays level from the last
    value below c. `cap_share` is the share that was cut; None reads it off the table, from the
    first quantile >= c.
    """

    name: str
    q: tuple[float, ...] = field(repr=False)
    response_tokens: tuple[float, ...] = field(repr=False)
    prompt_tokens: tuple[float, ...] | None = field(default=None, repr=False)
    cap_tokens: int | None = None
    cap_share: float | None = None
    max_below_cap: float | None = None

    def __post_init__(self) -> None:
        _check_quantiles(f"{self.name}: q", self.q)
        _check_values(f"{self.name}: response_tokens", self.response_tokens, len(self.q))
        if self.prompt_tokens is not None:
            _check_values(f"{self.name}: prompt_tokens", self.prompt_tokens, len(self.q))
        self._check_cap()

    @classmethod
    def from_samples(
        cls,
        name: str,
        response_tokens: Sequence[int],
        prompt_tokens: Sequence[int] | None = None,
        cap_tokens: int | None = None,
    ) -> "QuantileTable":
        """The table of a sample: its 201 quantiles, and what was cut at the source's cap.

        This is how the shipped tables were made, of the samples that provenance.csv names.
        """
        q = tuple(i / 200 for i in range(201))
        responses = _quantiles(f"{name}: response_tokens", response_tokens, q)
        prompts = None
        if prompt_tokens is not None:
            prompts = _quantiles(f"{name}: prompt_tokens", prompt_tokens, q)
        table = cls(name, q, responses, prompts)
        body = [t for t in response_tokens if cap_tokens is None or t < cap_tokens]
        if len(body) == len(response_tokens):
            return table
        share = 1 - len(body) / len(response_tokens)
        below = max(body, default=None)
        return replace(table, cap_tokens=cap_tokens, cap_share=share, max_below_cap=below)

    @property
    def share_cut(self) -> float:
        """The share of responses that the source cut at its cap."""
        if self.cap_tokens is None:
            return 0.0
        if self.cap_share is not None:
            return self.cap_share
        first = int(np.searchsorted(self.response_tokens, self.cap_tokens))
        return 1 - self.q[first] if first < len(self.q) else 0.0

    @property
    def known_tokens(self) -> int | None:
        return self.cap_tokens if self.share_cut > 0 else None

    @property
    def prompts(self) -> "QuantileTable | None":
        """The table of the prompts, if the source had them."""
        if self.prompt_tokens is None:
            return None
        return QuantileTable(f"{self.name} (prompts)", self.q, self.prompt_tokens)

    def ppf(self, u: NDArray[np.float64]) -> NDArray[np.int64]:
        lengths = np.rint(np.interp(u, *self._body)).astype(np.int64)
        if self.cap_tokens is not None:
            lengths[u >= 1 - self.share_cut] = self.cap_tokens + 1
        return lengths

    @cached_property
    def _body(self) -> Knots:
        """The knots of the curve without the mass."""
        q, tokens = np.asarray(self.q), np.asarray(self.response_tokens)
        if self.cap_tokens is None or self.known_tokens is None:
            return q, tokens
        edge = 1 - self.share_cut
        body = (q < edge) & (tokens < self.cap_tokens)
        q, tokens = q[body], tokens[body]
        last = tokens[-1] if self.max_below_cap is None else self.max_below_cap
        return np.append(q, edge), np.append(np.minimum(tokens, last), last)

    def _check_cap(self) -> None:
        name, cap = self.name, self.cap_tokens
        if cap is None:
            if self.cap_share is not None or self.max_below_cap is not None:
                raise ValueError(f"{name}: cap_share and max_below_cap need cap_tokens, not None")
            return
        whole(f"{name}: cap_tokens", cap)
        if self.max_below_cap is not None:
            finite(f"{name}: max_below_cap", self.max_below_cap, least=1)
        lowest = max(self.response_tokens[0], self.max_below_cap or 0)
        if lowest >= cap:
            raise ValueError(
                f"{name}: cap_tokens = {cap} must be above the lengths that were not cut, one is"
                f" {lowest:g}; a table needs some lengths below its cap"
            )
        if self.cap_share is not None and not 0 <= self.cap_share < 1:
            raise ValueError(f"{name}: cap_share must be >= 0 and < 1, not {self.cap_share!r}")


def _quantiles(field: str, sample: Sequence[int], q: Sequence[float]) -> tuple[float, ...]:
    checked = [whole(f"{field}[{i}]", tokens) for i, tokens in enumerate(sample)]
    if len(checked) < 2:
        raise ValueError(f"{field}: a table needs >= 2 lengths, not {len(checked)}")
    return tuple(np.quantile(checked, q).tolist())


def _check_quantiles(field: str, q: Sequence[float]) -> None:
    increasing = len(q) >= 2 and all(a < b for a, b in pairwise(q))
    if not increasing or q[0] != 0 or q[-1] != 1:
        raise ValueError(f"{field} must rise from 0 to 1 without a repeat, in >= 2 rows")


def _check_values(field: str, tokens: Sequence[float], count: int) -> None:
    if len(tokens) != count:
        raise ValueError(f"{field} has {len(tokens)} rows, q has {count}; they must be equal")
    for i, value in enumerate(tokens):
        finite(f"{field}[{i}]", value, least=1)
        if i and value < tokens[i - 1]:
            raise ValueError(f"{field}[{i}] = {value:g} is below the row before; it must not fall")

"""What the longest responses of a batch cost, and what rollouts beyond the batch would gain.

Generation is measured in decode iterations here: all rollouts advance together, and a step's
generation ends with its B-th finish. Slots and memory do not bind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from oppo_sim.workload.checks import whole
from oppo_sim.workload.lengths import ENDLESS

OVERCOMMITS = (4 / 112, 8 / 112, 16 / 112)  # of the batch
STEPS, LEAST_STEPS, BURN_IN, SEED = 4000, 250, 50, 20_250_925
LENGTHS = 4_000_000  # drawn at most: large batches average over themselves, and need fewer steps
BINDING = 0.005  # a smaller share at the cap is an exception; of 112 rollouts, one in two batches
POINTS = 1 << 17
_POINTS = (np.arange(POINTS) + 0.5) / POINTS


class Drawn(Protocol):
    """A law, a table or a sample."""

    def ppf(self, u: NDArray[np.float64]) -> NDArray[np.int64]: ...


@dataclass(frozen=True)
class Tail:
    """`gains[d]` is how many times faster generation is with d rollouts beyond the batch."""

    batch: int
    mean_tokens: float
    longest_tokens: float  # E[max of batch]
    share_at_cap: float
    gains: dict[int, float]

    @property
    def idle_share(self) -> float:
        """Of the decode capacity of a batch: what waits for the longest response."""
        return 1 - self.mean_tokens / self.longest_tokens

    @property
    def ceiling(self) -> float:
        """As if none of the rollouts in flight ever idled: no gain is above it."""
        most = max(self.gains, default=0)
        return (1 + most / self.batch) * self.longest_tokens / self.mean_tokens


def tail(
    lengths: Drawn,
    batch: int = 112,
    cap_tokens: int | None = None,
    overcommits: tuple[int, ...] | None = None,
) -> Tail:
    """What batches of `lengths` under a cap wait for; `overcommits` None: some shares of B.

    ValueError for a batch that is none.
    """
    whole("batch", batch)
    if overcommits is None:
        overcommits = tuple(dict.fromkeys(max(1, round(share * batch)) for share in OVERCOMMITS))
    cap = ENDLESS if cap_tokens is None else whole("cap_tokens", cap_tokens)
    mean, longest = mean_and_longest(lengths, batch, cap)
    gains = {}
    for d in overcommits:
        least = mean * batch / (batch + d)  # what a sample has below it is chance
        gains[d] = longest / max(least, generation_tokens(lengths, batch, d, cap))
    return Tail(batch, mean, longest, float((lengths.ppf(_POINTS) >= cap).mean()), gains)


def mean_and_longest(lengths: Drawn, batch: int, cap_tokens: int) -> tuple[float, float]:
    """The mean of a response, and of the longest of a batch, both cut at the cap."""
    mean = float(np.minimum(lengths.ppf(_POINTS), cap_tokens).mean())
    return mean, float(np.minimum(lengths.ppf(_POINTS ** (1 / batch)), cap_tokens).mean())


def generation_tokens(
    lengths: Drawn, batch: int, overcommit: int, cap_tokens: int, steps: int | None = None
) -> float:
    """Mean iterations per step in the steady state, with `overcommit` rollouts beyond the batch.

    A renewal: B new lengths join the D that were carried over, the B-th smallest ends the step and
    is taken off all. Carried rollouts are the long ones, so this is not the B-th smallest of B + D
    fresh ones. Lengths are drawn from POINTS equally likely ones.
    """
    if steps is None:
        steps = min(STEPS, max(LEAST_STEPS, LENGTHS // batch))
    rng = np.random.Generator(np.random.Philox(SEED))
    likely = np.minimum(lengths.ppf(_POINTS), cap_tokens)
    total, carried = 0, likely[rng.integers(POINTS, size=overcommit)]  # the first admits B + D
    for step in range(BURN_IN + steps):
        drawn = likely[rng.integers(POINTS, size=batch)]
        left = np.partition(np.concatenate((carried, drawn)), batch - 1)
        lasted = int(left[batch - 1])
        carried = left[batch:] - lasted
        if step >= BURN_IN:
            total += lasted
    return total / steps


def verdict(found: Tail) -> str:
    """In plain sentences: what idles, whether the cap binds, what overcommitment brings."""
    b, gains = found.batch, found.gains
    idle = (
        f"At B = {b}, {found.idle_share:.0%} of the decode capacity idles: a response has "
        f"{found.mean_tokens:,.0f} tokens on average, the longest of a batch "
        f"{found.longest_tokens:,.0f}."
    )
    share = found.share_at_cap
    if share >= BINDING:
        cap = (
            f"The cap binds: {share:.1%} of the responses reach it, {share * b:.1f} of a batch on "
            "average."
        )
    elif share > 0:
        cap = f"The cap hardly binds: {share:.2%} of the responses reach it."
    else:
        cap = "No response reaches a cap."
    if not gains:
        return f"{idle} {cap}"
    in_flight = b + max(gains)
    listed = ", ".join(f"{gain:.2f} x with D = {d}" for d, gain in gains.items())
    most = max(gains.values())
    if most < 1.05:
        helps = "Overcommitment will hardly help"
    elif most < 1.2:
        helps = "Overcommitment will help a little"
    else:
        helps = "Overcommitment will help"
    return (
        f"{idle} {cap} {helps}: generation {listed} (as long as memory and slots suffice; "
        f"{found.ceiling:.2f} x if none of {in_flight} ever idled). A step gains less: it trains, "
        "too."
    )

"""Response lengths as values: the protocol, the simple laws, and the replay of a recorded list."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from oppo_sim.workload.checks import finite, whole

ENDLESS = 2**53  # what a response that never ends counts as: above every cap, and a whole float


class Lengths(Protocol):
    """A distribution of token counts, before any cap of the scenario."""

    @property
    def prompts(self) -> "Lengths | None":
        """The prompts that came with these responses, if the source has them."""

    @property
    def known_tokens(self) -> int | None:
        """Beyond this length the source is silent (it was cut there); None if it never was."""

    def ppf(self, u: NDArray[np.float64]) -> NDArray[np.int64]:
        """The lengths (>= 1, raw) at probabilities u in [0, 1); known_tokens + 1 means 'longer'."""


class Uncut:
    """What has no prompts of its own, and no source that cut it."""

    @property
    def prompts(self) -> None:
        return None

    @property
    def known_tokens(self) -> None:
        return None


@dataclass(frozen=True)
class Constant(Uncut):
    """Every length is `tokens`."""

    tokens: int

    def __post_init__(self) -> None:
        whole("tokens", self.tokens)

    def ppf(self, u: NDArray[np.float64]) -> NDArray[np.int64]:
        return np.full(u.shape, self.tokens, dtype=np.int64)


@dataclass(frozen=True)
class Exponential(Uncut):
    """The exponential law on whole tokens: X = ceil(E), E exponential with `rate_per_token`.

    Rounding up makes X geometric on 1, 2, ..., the one discrete law without memory: what is left of
    a rollout that was carried over has the law of a fresh one, as the harmonic oracle needs. The
    rate is -log(1 - 1/mean), so that the mean of X (not of E) is `mean_tokens`; an order statistic
    of X exceeds that of E, which is exact, by half a token on average.
    """

    mean_tokens: float

    def __post_init__(self) -> None:
        finite("mean_tokens", self.mean_tokens, least=1)

    @property
    def rate_per_token(self) -> float:
        return math.inf if self.mean_tokens == 1 else -math.log1p(-1 / self.mean_tokens)

    def ppf(self, u: NDArray[np.float64]) -> NDArray[np.int64]:
        exact = -np.log1p(-u) / self.rate_per_token
        return np.clip(np.ceil(exact), 1, ENDLESS).astype(np.int64)


@dataclass(frozen=True)
class Replay:
    """A recorded list: rollout i gets entry i, exactly, and nothing is drawn.

    A length above a scenario's cap contradicts the record and is refused, never clipped.
    """

    response_tokens: tuple[int, ...] = field(repr=False)
    prompt_tokens: tuple[int, ...] | None = field(default=None, repr=False)
    name: str = "replay"

    def __post_init__(self) -> None:
        if not self.response_tokens:
            raise ValueError(f"{self.name}: response_tokens is empty, a replay needs at least one")
        _set(self, "response_tokens", self.response_tokens)
        if self.prompt_tokens is None:
            return
        _set(self, "prompt_tokens", self.prompt_tokens)
        if len(self.prompt_tokens) != len(self.response_tokens):
            raise ValueError(
                f"{self.name}: prompt_tokens has {len(self.prompt_tokens)} entries,"
                f" response_tokens {len(self.response_tokens)}; they must be equally many"
            )

    @property
    def prompts(self) -> "Replay | None":
        """The recorded prompts, to be replayed beside the responses."""
        if self.prompt_tokens is None:
            return None
        return Replay(self.prompt_tokens, name=f"{self.name} (prompts)")

    def too_short(self, rollout: int) -> ValueError:
        """The error for a rollout past the end of the list."""
        return ValueError(
            f"{self.name} holds {len(self.response_tokens)} lengths (rollouts 0 to"
            f" {len(self.response_tokens) - 1}), but rollout {rollout} was asked for:"
            f" at least {rollout + 1} are needed; record more, or run fewer steps"
        )

    def refuse_above(self, cap_tokens: int) -> None:
        """ValueError if a recorded response is longer than `cap_tokens`."""
        for i, tokens in enumerate(self.response_tokens):
            if tokens > cap_tokens:
                raise ValueError(
                    f"{self.name}: response_tokens[{i}] is {tokens}, above cap_tokens ="
                    f" {cap_tokens}; a record is never clipped: raise cap_tokens to"
                    f" {max(self.response_tokens)} or replay another list"
                )


def _set(replay: Replay, name: str, values: Sequence[int]) -> None:
    """Replace a field by a tuple of checked, plain ints."""
    checked = tuple(whole(f"{replay.name}: {name}[{i}]", v) for i, v in enumerate(values))
    object.__setattr__(replay, name, checked)

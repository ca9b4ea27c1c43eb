"""What makes lengths depend on each other: the prompt they answer, and the step they belong to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from oppo_sim.workload.checks import finite, whole
from oppo_sim.workload.lengths import ENDLESS
from oppo_sim.workload.streams import BLOCK_BITS, WITHIN, Purpose, normals

ALMOST_ONE = 1 - 2.0**-53
LEAST = 2.0**-54  # what a uniform of exactly 0 becomes, so that its normal score is finite

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Drift:
    """How log lengths move from step to step: a trend, and a first-order autoregression.

    In step s the length of a rollout is multiplied by exp(per_step * s + a(s)), where a(0) = 0 and
    a(s) = ar * a(s - 1) + noise * e(s), e standard normal. Responses that the law gives as cut at
    a known cap, or as endless, stay so: nobody knows how long they are.
    """

    per_step: float = 0.0
    ar: float = 0.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        finite("drift.per_step", self.per_step)
        if not -1 <= finite("drift.ar", self.ar) <= 1:
            raise ValueError(f"drift.ar must be a number from -1 to 1, not {self.ar!r}")
        finite("drift.noise", self.noise, least=0)


@dataclass
class Course:
    """A drift as one seed draws it, by step; known as far as anybody asked."""

    drift: Drift
    seed: int
    _walk: list[float] = field(default_factory=lambda: [0.0])

    def log_factors(self, steps: Ints) -> Floats:
        """The logarithm of the factor on lengths in each of `steps`."""
        last = int(steps.max(initial=0))
        self._extend(last)
        course = self.drift.per_step * steps + np.asarray(self._walk)[steps]
        return np.asarray(course, dtype=np.float64)

    def _extend(self, last: int) -> None:
        """Step by step from the first, so that nobody's order of asking matters."""
        while len(self._walk) <= last:
            step = len(self._walk)
            shocks = normals(self.seed, Purpose.DRIFT, step >> BLOCK_BITS)[step & WITHIN :]
            for shock in shocks.tolist():
                self._walk.append(self.drift.ar * self._walk[-1] + self.drift.noise * shock)


@dataclass(frozen=True)
class Effects:
    """How rollouts depend on each other; the default is not at all.

    `group` responses in a row answer one prompt, and a set of `prompt_set` prompts starts over when
    it is through (None: every prompt is new). `prompt_effect` is the share of the variance of log
    length that lies between prompts. Step s of a drift is the s-th `batch` of rollouts.
    """

    prompt_effect: float = 0.0
    group: int = 1
    prompt_set: int | None = None
    drift: Drift | None = None
    batch: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= finite("prompt_effect", self.prompt_effect) <= 1:
            raise ValueError(
                f"prompt_effect must be a number from 0 to 1, not {self.prompt_effect!r}"
            )
        whole("group", self.group)
        if self.prompt_set is not None:
            whole("prompt_set", self.prompt_set)
        if self.drift is not None:
            whole("batch", self.batch)

    @property
    def share_prompts(self) -> bool:
        """Some rollouts answer the same prompt."""
        return self.group > 1 or self.prompt_set is not None

    def prompts(self, block: int) -> Ints:
        """The prompt of each rollout of a block of ids."""
        rollouts = _ids(block) // self.group
        return rollouts if self.prompt_set is None else rollouts % self.prompt_set

    def steps(self, block: int) -> Ints:
        """The step of each rollout of a block of ids."""
        return _ids(block) // (self.batch or 1)


def of_prompts(prompts: Ints, draw: Callable[[int], Floats]) -> Floats:
    """The numbers of a stream that belong to `prompts`, of which `draw` gives a block at a time."""
    found, blocks = np.empty(len(prompts)), prompts >> BLOCK_BITS
    for block in np.unique(blocks).tolist():
        here = blocks == block
        found[here] = draw(block)[prompts[here] & WITHIN]
    return found


def mixed(u: Floats, effects: Floats, share: float) -> Floats:
    """Uniforms that share a normal score by prompt: the law of each stays what it was.

    z = sqrt(share) * effect + sqrt(1 - share) * z(rollout). For a lognormal law `share` is the
    share of the variance of log length that lies between prompts, for others about that.
    """
    own = ndtri(np.maximum(u, LEAST))
    both = ndtr(np.sqrt(share) * effects + np.sqrt(1 - share) * own)
    return np.asarray(np.minimum(both, ALMOST_ONE))


def drifted(raw: Ints, log_factors: Floats, known_tokens: int | None) -> Ints:
    """Lengths times their factors, at least 1; those of unknown length stay above every cap."""
    unknown = raw > (ENDLESS - 1 if known_tokens is None else known_tokens)
    moved = np.clip(np.rint(raw * np.exp(log_factors)), 1, ENDLESS).astype(np.int64)
    return np.where(unknown, raw if known_tokens is None else known_tokens + 1, moved)


def _ids(block: int) -> Ints:
    return np.arange(block << BLOCK_BITS, (block + 1) << BLOCK_BITS, dtype=np.int64)

"""Random numbers that belong to a rollout: one stream per (seed, purpose), cut in blocks of ids.

A block is a function of (seed, purpose, block) alone, so what a rollout draws never depends on the
order of asking, and a new draw for one purpose shifts no other. Only Philox's raw bits are used:
numpy promises them for ever, while it may change the algorithms of `Generator`.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

BLOCK_BITS = 10
BLOCK = 1 << BLOCK_BITS
WITHIN = BLOCK - 1
MAX_SEED = 2**64 - 1

T = TypeVar("T")


class Purpose(IntEnum):
    """What a stream is for; a number, once used, keeps its meaning."""

    RESPONSE = 0
    PROMPT = 1
    REWARD = 2
    PROMPT_EFFECT = 3
    DRIFT = 4


def uniforms(seed: int, purpose: Purpose, block: int, count: int = BLOCK) -> NDArray[np.float64]:
    """`count` doubles in [0, 1) with 53 random bits each."""
    philox = np.random.Philox(key=purpose << 64 | seed, counter=block << 128)
    bits: NDArray[np.uint64] = philox.random_raw(count)
    return (bits >> np.uint64(11)) * np.float64(2.0**-53)


def normals(seed: int, purpose: Purpose, block: int) -> NDArray[np.float64]:
    """A block of standard normal deviates (Box-Muller)."""
    radius, angle = uniforms(seed, purpose, block, 2 * BLOCK).reshape(2, BLOCK)
    deviates: NDArray[np.float64] = np.sqrt(-2 * np.log1p(-radius)) * np.cos(2 * np.pi * angle)
    return deviates


class Blocks(dict[int, list[T]], Generic[T]):
    """The latest few blocks of one stream as lists; a missing one is drawn on first use.

    `blocks[i >> BLOCK_BITS][i & WITHIN]` is the value of rollout i. The block that was drawn first
    leaves first, so memory stays flat; asking for it again draws the same values again.
    """

    def __init__(self, draw: Callable[[int], list[T]], keep: int = 8) -> None:
        super().__init__()
        self.draw = draw
        self.keep = keep

    def __missing__(self, block: int) -> list[T]:
        if block < 0:
            raise ValueError("rollout ids start at 0, a negative one was asked for")
        while len(self) >= self.keep:
            del self[next(iter(self))]
        self[block] = values = self.draw(block)
        return values

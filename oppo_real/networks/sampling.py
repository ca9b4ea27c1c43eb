"""Sampling that depends on nothing but (seed, rollout, token index) and the logits.

No generator has a state: the uniform of a token is a hash of its place (splitmix64, as a counter),
computed with wrapping 64-bit integers and therefore the same on any device, in any order and in any
batch. A rollout that was paused, moved or decoded among others draws what it would have drawn
alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

GOLDEN = 0x9E3779B97F4A7C15
MIX_1, MIX_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
TEMPERATURE_FLOOR = 1e-7  # TRL divides logits by temperature + 1e-7
_BLOCK = 128
_BITS = 52  # one fewer than a float64 holds: u * total never rounds up to the total


def _signed(number: int) -> int:
    """The int64 with the same 64 bits."""
    number &= (1 << 64) - 1
    return number - (1 << 64) if number >> 63 else number


def _shifted(z: Tensor, bits: int) -> Tensor:
    """A logical right shift: int64's own one copies the sign."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def mix(z: Tensor) -> Tensor:
    """splitmix64's output function of int64s (Steele, Lea and Flood, OOPSLA 2014)."""
    z = (z ^ _shifted(z, 30)) * _signed(MIX_1)
    z = (z ^ _shifted(z, 27)) * _signed(MIX_2)
    return z ^ _shifted(z, 31)


def uniforms(seed: int, rollouts: Tensor, indices: Tensor) -> Tensor:
    """float64[n] in [0, 1): one for each (rollout, index) of the int64 tensors [n]."""
    keys = mix(rollouts * _signed(GOLDEN) + _signed(seed * GOLDEN ^ MIX_2))
    bits = mix(keys + (indices + 1) * _signed(GOLDEN))
    return _shifted(bits, 64 - _BITS).double() * 2.0**-_BITS


def scaled(logits: Tensor, temperature: float) -> Tensor:
    """Logits over the temperature, in float32 or, for float64 models, float64."""
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return wide / (temperature + TEMPERATURE_FLOOR)


def sample(logits: Tensor, u: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Tokens int64[n] and their log-probabilities [n]: `logits` [n, V] inverted at u [n].

    Not Gumbel's trick, which needs a random number for each entry of the vocabulary. Sums run in
    float64, so that a rounding of 1e-7 in the logits moves a token once in about 1e7; over blocks
    first and inside the chosen block then, since a long float64 cumsum is slow on CPUs.
    """
    logprobs = torch.log_softmax(scaled(logits, temperature), dim=-1)
    blocks = _in_blocks(logprobs.exp())
    sums = blocks.sum(-1, dtype=torch.float64)
    ends = sums.cumsum(-1)
    targets = u[:, None] * ends[:, -1:]
    chosen = torch.searchsorted(ends, targets, right=True)
    chosen.clamp_(max=ends.shape[1] - 1)  # logits that are not finite: the caller sees the nan
    before = ends.gather(1, chosen) - sums.gather(1, chosen)
    inside = blocks.take_along_dim(chosen[:, :, None], 1)[:, 0].cumsum(-1, dtype=torch.float64)
    # a block's two sums may differ in their last bits: stay below the one, inside it
    targets = torch.minimum(targets - before, inside[:, -1:] * (1 - 2.0**-_BITS))
    tokens = chosen * _BLOCK + torch.searchsorted(inside, targets, right=True)
    tokens.clamp_(max=logits.shape[-1] - 1)
    return tokens[:, 0], logprobs.gather(1, tokens)[:, 0]


def _in_blocks(probabilities: Tensor) -> Tensor:
    """[n, blocks, 128], with zeros behind the vocabulary's end."""
    lacking = -probabilities.shape[-1] % _BLOCK
    if lacking:
        probabilities = torch.nn.functional.pad(probabilities, (0, lacking))
    return probabilities.unflatten(-1, (-1, _BLOCK))

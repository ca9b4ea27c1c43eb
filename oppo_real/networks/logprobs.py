"""Log-probabilities and entropies of tokens from hidden states, a few logits at a time.

The logits of all tokens together are never held: 64 rows of 512 tokens over a vocabulary of 152,000
would take 20 GB. The head is applied to chunks of tokens, and applied again in the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from oppo_real.errors import ModelError

# logits at a time: 32 MiB of them in float32, which CPUs take faster than all at once
LOGITS, LOGITS_CUDA = 2**23, 2**26
# what some models do to logits after their head, which would be left out here
_SCALED = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier")


class LogitRule(Protocol):
    """Changes the logits `[N, V]` of rollouts' `[N]` tokens of these indices `[N]`, all int64.

    Decoding and training apply the same rule, before the temperature. A logit may become -inf.
    """

    def __call__(self, logits: Tensor, rollouts: Tensor, index: Tensor) -> Tensor: ...


class Targets(NamedTuple):
    """N tokens whose probability is asked for; int64 `[N]` each."""

    tokens: Tensor
    rollouts: Tensor
    indices: Tensor  # 0 is a response's first token


class TokenLogprobs(NamedTuple):
    logprobs: Tensor  # [N], float32 (float64 where logits are)
    entropies: Tensor  # [N], without a gradient


def head_of(model: torch.nn.Module) -> Callable[[Tensor], Tensor]:
    """The module that makes a causal language model's logits out of hidden states."""
    config: Any = model.config
    for name in _SCALED:
        value = getattr(config, name, None)
        if value not in (None, 1, 1.0):
            raise ModelError(
                f"{config.model_type}: {name} = {value} changes logits after the head, which is not"
                " supported; take a model without it"
            )
    head: Callable[[Tensor], Tensor] | None = model.get_output_embeddings()  # type: ignore[operator]
    if head is None:
        raise ModelError(f"{config.model_type}: not a causal language model, it has no head")
    return head


def token_logprobs(
    hidden: Tensor,
    head: Callable[[Tensor], Tensor],
    targets: Targets,
    temperature: float = 1.0,
    rule: LogitRule | None = None,
    at_a_time: int | None = None,
) -> TokenLogprobs:
    """log softmax(head(hidden) / (temperature + 1e-7)) of the targets; hidden states `[N, H]`.

    `hidden[n]` is the last layer's state at the token before target n. The tiny addition is TRL's.
    A chunk has at most `at_a_time` logits (or one token's), in the backward pass too.
    """

    def chunk(hidden: Tensor, targets: Targets) -> tuple[Tensor, Tensor]:
        logits = head(hidden)
        logits = logits if logits.dtype == torch.float64 else logits.float()
        if rule is not None:
            logits = rule(logits, targets.rollouts, targets.indices)
        logits = logits / (temperature + 1e-7)
        chosen = logits.gather(1, targets.tokens[:, None]).squeeze(1)
        logprobs = chosen - logits.logsumexp(1)
        with torch.no_grad():
            entropies = entropy(logits)  # last: the backward pass stops recomputing before this
        return logprobs, entropies

    with torch.no_grad():
        vocabulary = head(hidden[:1]).shape[1]
    rows = max(1, (at_a_time or (LOGITS_CUDA if hidden.is_cuda else LOGITS)) // vocabulary)
    parts = [
        checkpoint(
            chunk,
            hidden[start : start + rows],
            Targets(*[part[start : start + rows] for part in targets]),
            use_reentrant=False,
            preserve_rng_state=False,
        )
        for start in range(0, len(hidden), rows)
    ]
    logprobs, entropies = zip(*parts, strict=True)
    return TokenLogprobs(torch.cat(logprobs), torch.cat(entropies))


def entropy(logits: Tensor) -> Tensor:
    """Of the distributions that logits `[..., V]` stand for; a logit may be -inf. `-> [...]`"""
    return torch.special.entr(logits.softmax(-1)).sum(-1)

"""Lengths that are given instead of decoded: the end is forbidden before its time, then forced.

One rule in two forms. `ForcedLengths` is applied to the logits of rollouts, in decoding, scoring
and training alike. `force_lengths` applies it inside a transformers model, for code that knows no
rollouts (`generate`, TRL's trainers): lengths are looked up by the prompt's token ids.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from oppo_real.errors import ModelError

# A probability of exactly 0 in any precision but half, and, unlike -inf, no nan in p * log p.
FORBIDDEN = -1e9


def forced(logits: Tensor, left: Tensor, stop_id: int, ends: Sequence[int]) -> Tensor:
    """Logits [N, V] of tokens after which `left` [N] more are due; negative: as they are.

    0 makes it `stop_id` for certain; more rules out all of `ends`.
    """
    certain = torch.full_like(logits[:1], FORBIDDEN)
    certain[:, stop_id] = 0.0
    ruled = torch.where((left == 0)[:, None], certain, logits)
    ruled[:, ends] = torch.where((left > 0)[:, None], FORBIDDEN, ruled[:, ends])
    return ruled


class ForcedLengths:
    """A LogitRule: rollout r's response is `length_of(r)` tokens long, the end among them.

    The end is stop_ids[0]. `never`: further ids that may not appear before it, such as padding,
    which TRL takes for an end. A length beyond the cap is never reached.
    """

    def __init__(
        self, length_of: Callable[[int], int], stop_ids: Sequence[int], never: Collection[int] = ()
    ) -> None:
        self._length_of = length_of
        self._stop_id, self._ends = stop_ids[0], sorted({*stop_ids, *never})
        # looked up last; one value, since lanes on several threads may share a rule
        self._known = (torch.empty(0), torch.empty(0))

    def __call__(self, logits: Tensor, rollouts: Tensor, index: Tensor) -> Tensor:
        """Logits [N, V] of the response tokens `index` [N] of `rollouts` [N]."""
        known, lengths = self._known
        if known is not rollouts:
            lengths = self._look_up(rollouts)
            self._known = rollouts, lengths
        return forced(logits, lengths - 1 - index, self._stop_id, self._ends)

    def _look_up(self, rollouts: Tensor) -> Tensor:
        ids = rollouts.tolist()
        lengths = {rollout: self._length_of(rollout) for rollout in set(ids)}
        return torch.tensor([lengths[rollout] for rollout in ids], device=rollouts.device)


class _InModel:
    """The hook of `force_lengths`. Between the calls of one `generate` it remembers its rows."""

    def __init__(
        self, lengths: Mapping[tuple[int, ...], int], stop_id: int, ends: Sequence[int]
    ) -> None:
        self._lengths, self._stop_id, self._ends = dict(lengths), stop_id, ends
        self._sizes = sorted({len(prompt) for prompt in lengths})
        self._rows: Tensor | None = None

    def __call__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> Any:
        ids: Tensor = kwargs["input_ids"] if "input_ids" in kwargs else args[0]
        mask = kwargs.get("attention_mask")
        seen = _seen(ids, mask, kwargs.get("position_ids"))
        if seen == ids.shape[1]:
            self._rows = self._places(ids, mask)
        rows = self._rows
        if rows is None or len(rows) != len(ids):
            raise ModelError("forced lengths: a forward went on after prompts that were not seen")
        logits: Tensor = output.logits
        # the logits at one place are those of the token at the next
        places = torch.arange(seen - logits.shape[1] + 1, seen + 1, device=ids.device)
        first, last = rows[:, :1], rows[:, 1:]
        left = torch.where(places < first, -1, last - places).flatten()
        flat = forced(logits.flatten(0, 1), left, self._stop_id, self._ends)
        output.logits = flat.view_as(logits)
        return output

    def _places(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        """Of each row's first and last response token [B, 2], by what its prompt is."""
        pads = [0] * len(ids) if mask is None else (mask != 0).int().argmax(1).tolist()
        places = []
        for row, pad in zip(ids.tolist(), pads, strict=True):
            prompt = self._find(row[pad:])
            first = pad + len(prompt)
            places.append((first, first + self._lengths[prompt] - 1))
        return torch.tensor(places, device=ids.device)

    def _find(self, row: list[int]) -> tuple[int, ...]:
        for size in self._sizes:
            if (prompt := tuple(row[:size])) in self._lengths:
                return prompt
        raise ModelError(f"forced lengths: no length for a row that begins with {row[:8]}")


def _seen(ids: Tensor, mask: Tensor | None, positions: Tensor | None) -> int:
    """Places up to the last one fed. `generate` drops a mask that hides nothing."""
    if mask is not None:
        return mask.shape[1]
    return ids.shape[1] if positions is None else int(positions[0, -1]) + 1


def force_lengths(
    model: nn.Module,
    lengths: Mapping[tuple[int, ...], int],
    stop_ids: Sequence[int],
    never: Collection[int] = (),
) -> RemovableHandle:
    """Apply the rule to the logits of every forward of a causal model, until the handle is removed.

    Rows begin with one of the prompts, behind padding that the attention mask tells. No prompt may
    begin with another: in a forward over prompt and response they could not be told apart.
    """
    for prompt in lengths:
        for size in range(1, len(prompt)):
            if prompt[:size] in lengths:
                raise ModelError(
                    f"forced lengths: the prompt {list(prompt[:size])} is the beginning of another"
                    " one; make all prompts equally long, or end them alike"
                )
    hook = _InModel(lengths, stop_ids[0], sorted({*stop_ids, *never}))
    return model.register_forward_hook(hook, with_kwargs=True)

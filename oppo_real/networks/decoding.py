"""The actor's batch: rollouts join, decode one token an iteration, leave, pause and come back.

The last token of a rollout's context is always *pending*: not in the cache yet. An iteration feeds
it and samples the next one, so a rollout decodes alike after a prefill, a pause or a new update.
Which other rollouts are in the batch changes a token's log-probability by rounding only, and the
token by the chance that rounding crosses its uniform (see `sampling`).

Shapes are [rows, 1] and the cache keeps its address, so CUDA graphs or torch.compile could record
an iteration for each (rows, width); neither has been measured here, and neither is used.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from oppo_real.errors import ModelError
from oppo_real.networks.cache import SlotCache, padded
from oppo_real.networks.logprobs import LogitRule, head_of
from oppo_real.networks.sampling import sample, uniforms
from oppo_sim.costs.forwards import groups

AHEAD = 32  # iterations whose uniforms are drawn at once
Reason = Literal["stop", "cap"]


class Decoded(NamedTuple):
    """One iteration, a place for each row that was in the batch; rows that ended have left it."""

    rollouts: list[int]
    tokens: list[int]
    logprobs: list[float]
    ended: list[Reason | None]


@dataclass
class _Row:
    rollout: int
    context: list[int]  # prompt and response; all but the last are cached once it is prefilled
    prompt_tokens: int
    cap_tokens: int
    is_cached: bool = False


@dataclass
class _Inputs:
    """The next iteration's tensors. They advance on the device until the batch changes."""

    slots: Tensor  # [n]
    tokens: Tensor  # [n, 1]
    positions: Tensor  # [n, 1]
    rollouts: Tensor  # [n]
    index: Tensor  # [n], of the response token to be sampled
    longest: int  # context tokens of the longest row
    uniforms: list[Tensor]  # [n] for each of the next iterations, the last of them first


class ContinuousBatch:
    """Decodes with `model`, a causal LM in eval mode, whose weights may change between iterations.

    `cap_tokens` bounds the response; a rollout may come with a cap of its own. A `rule` may keep
    what it looked up for `rollouts` as long as it is given the same tensor object.
    """

    def __init__(
        self,
        model: Any,
        *,
        stop_ids: Collection[int],
        cap_tokens: int,
        seed: int = 0,
        temperature: float = 1.0,
        rule: LogitRule | None = None,
    ) -> None:
        self._backbone, self._head = model.base_model, head_of(model)
        self._device = next(model.parameters()).device
        self._context_tokens: int | None = getattr(model.config, "max_position_embeddings", None)
        self._stop_ids = frozenset(stop_ids)
        self._cap_tokens, self._seed, self._temperature = cap_tokens, seed, temperature
        self._rule = rule
        self._cache = SlotCache(self._backbone)
        self._rows: list[_Row] = []  # row r is slot r of the cache
        self._kept: dict[int, tuple[_Row, Tensor]] = {}
        self._inputs: _Inputs | None = None  # None: the batch has changed

    @property
    def rollouts(self) -> list[int]:
        """Those in the batch, in the order of their slots."""
        return [row.rollout for row in self._rows]

    @property
    def kept(self) -> list[int]:
        """Those whose cache waits for their return."""
        return list(self._kept)

    # rollouts come and go

    def join(
        self,
        rollout: int,
        prompt: Sequence[int],
        response: Sequence[int] = (),
        cap_tokens: int | None = None,
    ) -> None:
        """Into the batch, to be prefilled."""
        cap = self._cap_tokens if cap_tokens is None else cap_tokens
        self._check(rollout, prompt, response, cap)
        self._kept.pop(rollout, None)  # a cache that is not asked for any more
        self._rows.append(_Row(rollout, [*prompt, *response], len(prompt), cap))
        self._inputs = None

    @torch.inference_mode()
    def resume(self, rollout: int, cap_tokens: int | None = None) -> None:
        """Into the batch, with the cache that was kept and, unless there is a new one, the cap."""
        row, cached = self._kept.pop(rollout)
        row.cap_tokens = row.cap_tokens if cap_tokens is None else cap_tokens
        self._cache.write(len(self._rows), cached)
        self._rows.append(row)
        self._inputs = None

    @torch.inference_mode()
    def leave(self, rollout: int, keep: bool) -> bool:
        """Out of the batch. Whether its cache is kept: one that was never prefilled has none."""
        place = self.rollouts.index(rollout)
        row = self._rows[place]
        is_kept = keep and row.is_cached
        if is_kept:
            self._kept[rollout] = row, self._cache.read(place, len(row.context) - 1)
        self._remove(place)
        return is_kept

    @torch.inference_mode()
    def drop(self, rollout: int) -> None:
        """Forget a rollout wherever it is."""
        self._kept.pop(rollout, None)
        if rollout in self.rollouts:
            self._remove(self.rollouts.index(rollout))

    def forget(self) -> None:
        """Throw all kept caches away."""
        self._kept.clear()

    def _remove(self, place: int) -> None:
        """The last row moves into the gap: running rows stay the first slots."""
        last = self._rows.pop()
        if place < len(self._rows):
            if last.is_cached:
                self._cache.move(len(self._rows), place, len(last.context) - 1)
            self._rows[place] = last
        self._inputs = None

    def _check(
        self, rollout: int, prompt: Sequence[int], response: Sequence[int], cap: int
    ) -> None:
        if rollout in self.rollouts:
            raise ValueError(f"rollout {rollout} is in the batch already")
        if not prompt:
            raise ModelError(f"rollout {rollout}: its prompt is empty; give at least one token")
        if len(response) >= cap:
            raise ValueError(f"rollout {rollout} has {len(response)} tokens, its cap is {cap}")
        most = self._context_tokens
        if most is not None and len(prompt) + cap > most:
            raise ModelError(
                f"rollout {rollout}: a prompt of {len(prompt)} tokens and a response of up to "
                f"{cap} exceed the actor's context of {most}: shorten the prompt or lower the cap"
            )

    # work

    @torch.inference_mode()
    def prefill(self) -> int:
        """Cache the context of all that joined without one; the tokens that took."""
        places = [place for place, row in enumerate(self._rows) if not row.is_cached]
        if not places:
            return 0
        contexts = [self._rows[place].context[:-1] for place in places]
        self._cache.reserve(len(self._rows), max(len(self._rows[p].context) for p in places))
        for group in groups([len(context) for context in contexts]):
            if contexts[group[0]]:  # a single token has nothing before it
                rows = [contexts[i] for i in group if contexts[i]]
                slots = torch.tensor([places[i] for i in group if contexts[i]], device=self._device)
                self._cache.fresh(padded(rows, self._device), slots)
        for place in places:
            self._rows[place].is_cached = True
        return sum(map(len, contexts))

    def recompute(self) -> None:
        """After new weights: forget all caches; the next `prefill` makes those of running rows."""
        self.forget()
        self._inputs = None
        for row in self._rows:
            row.is_cached = False

    @torch.inference_mode()
    def decode(self) -> Decoded:
        """One token for each rollout of the batch."""
        at = self._inputs = self._inputs or self._gather()
        self._cache.reserve(len(self._rows), at.longest)
        hidden = self._cache.step(at.tokens, at.slots, at.positions, at.longest)
        logits = self._head(hidden[:, -1])
        if self._rule is not None:
            logits = self._rule(logits, at.rollouts, at.index)
        if not at.uniforms:
            ahead = at.index[:, None] + torch.arange(AHEAD, device=self._device)
            drawn = uniforms(self._seed, at.rollouts[:, None], ahead)
            at.uniforms = list(drawn.T.flip(0))
        tokens, logprobs = sample(logits, at.uniforms.pop(), self._temperature)
        at.tokens = tokens[:, None]
        at.positions += 1
        at.index += 1
        at.longest += 1
        # the one wait for the device; float64 holds every token id
        both = torch.stack((tokens.double(), logprobs.double())).tolist()
        return self._take([int(token) for token in both[0]], both[1])

    def _gather(self) -> _Inputs:
        if not self._rows:
            raise ValueError("there is no rollout in the batch")
        if missing := [row.rollout for row in self._rows if not row.is_cached]:
            raise ValueError(f"rollouts {missing} have not been prefilled")

        def column(numbers: list[int]) -> Tensor:
            return torch.tensor(numbers, dtype=torch.long, device=self._device)

        rows = self._rows
        lengths = [len(row.context) for row in rows]
        return _Inputs(
            slots=torch.arange(len(rows), device=self._device),
            tokens=column([row.context[-1] for row in rows])[:, None],
            positions=column(lengths)[:, None] - 1,
            rollouts=column([row.rollout for row in rows]),
            index=column([len(row.context) - row.prompt_tokens for row in rows]),
            longest=max(lengths),
            uniforms=[],
        )

    def _take(self, tokens: list[int], logprobs: list[float]) -> Decoded:
        decoded = Decoded(self.rollouts, tokens, logprobs, [])
        for row, token, logprob in zip(self._rows, tokens, logprobs, strict=True):
            if not math.isfinite(logprob):
                raise ModelError(
                    f"rollout {row.rollout}: the actor's logits are not finite at token "
                    f"{len(row.context) - row.prompt_tokens}: the weights have diverged; go back "
                    "to a checkpoint and lower the learning rate"
                )
            row.context.append(token)
            if token in self._stop_ids:
                decoded.ended.append("stop")
            elif len(row.context) - row.prompt_tokens >= row.cap_tokens:
                decoded.ended.append("cap")
            else:
                decoded.ended.append(None)
        for place in reversed([p for p, reason in enumerate(decoded.ended) if reason]):
            self._remove(place)
        return decoded

    # checkpoints

    def save(self, rollout: int) -> dict[str, Tensor]:
        """A kept cache, as tensors."""
        return {"kv": self._kept[rollout][1]}

    def load(
        self,
        rollout: int,
        prompt: Sequence[int],
        response: Sequence[int],
        saved: dict[str, Tensor],
        cap_tokens: int | None = None,
    ) -> None:
        """A kept cache of a rollout that goes on after `response`."""
        cap = self._cap_tokens if cap_tokens is None else cap_tokens
        self._check(rollout, prompt, response, cap)
        row = _Row(rollout, [*prompt, *response], len(prompt), cap, is_cached=True)
        cached = saved["kv"]
        if cached.shape[3] != len(row.context) - 1:
            raise ValueError(
                f"rollout {rollout}: a cache of {cached.shape[3]} tokens for a context of "
                f"{len(row.context)}; one token is always pending"
            )
        self._kept[rollout] = row, cached.to(self._device)

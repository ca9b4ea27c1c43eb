"""Frozen models read responses chunk by chunk, on caches of their own: reward, reference, critic.

A response that is scored in pieces gets what a forward over the whole would give it: every token is
fed once, at its place, to each model. The reward is read at the response's last token and nowhere
else. The reference and the critic speak of a token from the state before it, so they are always fed
all but the last token that is known.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from oppo_real.errors import ModelError
from oppo_real.networks.cache import SlotCache, padded
from oppo_real.networks.logprobs import LogitRule, Targets, head_of, token_logprobs
from oppo_real.networks.rules import RuleReward
from oppo_sim.costs.forwards import groups


class ScoreChunk(NamedTuple):
    """The response's next tokens from `start` on, behind a prompt; 0 opens the row anew."""

    rollout: int
    prompt: Sequence[int]
    tokens: Sequence[int]
    start: int
    last: bool


class Scored(NamedTuple):
    """`reference` and `values`: [end - start] on the CPU, float32 (float64 of such models).

    Where they go on to another lane they are plain numbers.
    """

    rollout: int
    reward: float | None  # of a last chunk
    reference: Tensor | Sequence[float] | None = None  # log-probabilities of the tokens
    values: Tensor | Sequence[float] | None = None  # of the states before the tokens


@dataclass
class _Row:
    slot: int
    prompt_tokens: int
    context: list[int]
    fed: dict[str, int] = field(default_factory=dict)  # context tokens in each network's cache


class _Network:
    """One backbone and its cache."""

    def __init__(self, name: str, model: Any) -> None:
        self.name, self._backbone = name, model.base_model
        self._device = next(model.parameters()).device
        self._cache = SlotCache(self._backbone)

    def feed(self, rows: Sequence[_Row], ends: Sequence[int]) -> list[Tensor]:
        """Read rows up to their context token `end`; hidden states [tokens, H] of what was new."""
        starts = [row.fed.get(self.name, 0) for row in rows]
        news = [row.context[a:b] for row, a, b in zip(rows, starts, ends, strict=True)]
        hidden = [torch.empty(0)] * len(rows)
        for is_fresh in (True, False):
            some = [i for i, start in enumerate(starts) if news[i] and (start == 0) == is_fresh]
            for group in groups([len(news[i]) for i in some]):
                chosen = [some[i] for i in group]
                states = self._forward(
                    [news[i] for i in chosen],
                    [rows[i].slot for i in chosen],
                    [starts[i] for i in chosen],
                )
                for i, state in zip(chosen, states, strict=True):
                    hidden[i] = state[: len(news[i])]
        for row, end in zip(rows, ends, strict=True):
            row.fed[self.name] = end
        return hidden

    def _forward(self, news: list[list[int]], slots: list[int], starts: list[int]) -> Tensor:
        """[n, longest, H] of rows that are all fresh or all not."""
        self._cache.reserve(max(slots) + 1, max(starts) + max(map(len, news)))
        ids = padded(news, self._device)
        places = torch.tensor(slots, device=self._device)
        if starts[0] == 0:
            return self._cache.fresh(ids, places)
        return self._cache.extend(
            ids, places, torch.tensor(starts, device=self._device), max(starts)
        )


class Scorer:
    """Rows of rollouts that are being scored.

    `coalesce`: chunks that are scored together share forwards; else each has its own, and what it
    gives does not depend on its company, to the last bit. `rule` is applied to the reference's
    logits, as to the actor's.
    """

    def __init__(
        self,
        reward: nn.Module | RuleReward | None,
        reference: nn.Module | None = None,
        critic: nn.Module | None = None,
        *,
        coalesce: bool = True,
        temperature: float = 1.0,
        rule: LogitRule | None = None,
    ) -> None:
        self._by_rule = reward if isinstance(reward, RuleReward) else None
        model = None if isinstance(reward, RuleReward) else reward
        self._reward = None if model is None else _Network("reward", model)
        self._reference = None if reference is None else _Network("reference", reference)
        self._critic = None if critic is None else _Network("critic", critic)
        self._reward_head = None if model is None else score_head(model)
        self._critic_head = None if critic is None else score_head(critic)
        self._head = None if reference is None else head_of(reference)
        self._coalesce, self._temperature, self._rule = coalesce, temperature, rule
        self._rows: dict[int, _Row] = {}
        self._free: list[int] = []

    def score(self, chunks: Sequence[ScoreChunk]) -> list[Scored]:
        """What the chunks' tokens are worth, in the chunks' order. A `last` chunk ends its row."""
        together = [chunks] if self._coalesce else [[chunk] for chunk in chunks]
        scored = [one for some in together if some for one in self._score(some)]
        self.drop([chunk.rollout for chunk in chunks if chunk.last])
        return scored

    def drop(self, rollouts: Collection[int]) -> None:
        """Forget rows; those that are not there are no mistake."""
        for rollout in rollouts:
            if (row := self._rows.pop(rollout, None)) is not None:
                self._free.append(row.slot)

    @torch.inference_mode()
    def _score(self, chunks: Sequence[ScoreChunk]) -> list[Scored]:
        rows = [self._open(chunk) for chunk in chunks]
        counts = [len(chunk.tokens) for chunk in chunks]
        before = [len(row.context) - 1 for row in rows]
        rewards = self._rewards(chunks, rows)
        reference: Sequence[Tensor | None] = [None] * len(chunks)
        values: Sequence[Tensor | None] = [None] * len(chunks)
        if self._reference is not None:
            states = self._reference.feed(rows, before)
            reference = self._logprobs(chunks, _last(states, counts)).cpu().split(counts)
        if self._critic is not None and self._critic_head is not None:
            states = self._critic.feed(rows, before)
            values = _scores(self._critic_head, _last(states, counts)).cpu().split(counts)
        return [
            Scored(chunk.rollout, reward, logprobs, value)
            for chunk, reward, logprobs, value in zip(
                chunks, rewards, reference, values, strict=True
            )
        ]

    def _open(self, chunk: ScoreChunk) -> _Row:
        """The chunk's row, with the chunk's tokens behind what it had."""
        if not chunk.prompt or not chunk.tokens:
            empty = "chunk" if chunk.prompt else "prompt"
            raise ModelError(f"rollout {chunk.rollout}: its {empty} is empty; give tokens to score")
        if chunk.start == 0:
            self.drop([chunk.rollout])
            slot = self._free.pop() if self._free else len(self._rows)
            self._rows[chunk.rollout] = _Row(slot, len(chunk.prompt), list(chunk.prompt))
        row = self._rows.get(chunk.rollout)
        known = None if row is None else len(row.context) - row.prompt_tokens
        if row is None or known != chunk.start:
            raise ValueError(
                f"rollout {chunk.rollout}: a chunk from token {chunk.start} on, "
                f"but {'nothing' if known is None else known} has been scored"
            )
        row.context += chunk.tokens
        return row

    def _rewards(self, chunks: Sequence[ScoreChunk], rows: Sequence[_Row]) -> list[float | None]:
        """Read at the last real token of a last chunk; never by pooling over a padded chunk."""
        rewards: list[float | None] = [None] * len(chunks)
        lasts = [place for place, chunk in enumerate(chunks) if chunk.last]
        if self._by_rule is not None:
            for place in lasts:
                context, prompt = rows[place].context, rows[place].prompt_tokens
                rewards[place] = self._by_rule(
                    chunks[place].rollout, context[:prompt], context[prompt:]
                )
        elif self._reward is not None and self._reward_head is not None:
            states = self._reward.feed(rows, [len(row.context) for row in rows])
            if lasts:
                ends = torch.stack([states[place][-1] for place in lasts])
                for place, reward in zip(
                    lasts, _scores(self._reward_head, ends).tolist(), strict=True
                ):
                    rewards[place] = reward
        for chunk, reward in zip(chunks, rewards, strict=True):
            if reward is not None and not math.isfinite(reward):
                raise ModelError(
                    f"rollout {chunk.rollout}: its reward is {reward}; nothing is trained on it: "
                    "mend the reward model or function"
                )
        return rewards

    def _logprobs(self, chunks: Sequence[ScoreChunk], hidden: Tensor) -> Tensor:
        assert self._head is not None
        rows = [
            (token, chunk.rollout, index)
            for chunk in chunks
            for index, token in enumerate(chunk.tokens, chunk.start)
        ]
        targets = Targets(*torch.tensor(rows, device=hidden.device).T.contiguous())
        return token_logprobs(hidden, self._head, targets, self._temperature, self._rule).logprobs


def score_head(model: nn.Module) -> nn.Module:
    """What makes one number of a hidden state, in reward models and critics."""
    head = getattr(model, "score", None)
    if not isinstance(head, nn.Module):
        raise ModelError(
            f"{type(model).__name__} has no score head: give a model for sequence classification"
        )
    labels = getattr(head, "out_features", 1)
    if labels != 1:
        raise ModelError(f"num_labels = {labels}: must be 1, a reward is one number")
    return head


def _last(states: Sequence[Tensor], counts: Sequence[int]) -> Tensor:
    """The last `count` states of each row, one behind the other."""
    return torch.cat([state[-count:] for state, count in zip(states, counts, strict=True)])


def _scores(head: nn.Module, hidden: Tensor) -> Tensor:
    scores: Tensor = head(hidden)[:, 0]
    return scores if scores.dtype == torch.float64 else scores.float()

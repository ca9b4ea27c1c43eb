"""The rollouts on an actor lane and the KV memory that they hold, by the lane's position."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from oppo_sim.engine.contract import Counts, EngineError

Stop = Literal["stop", "cap"]


class Row:
    """A rollout that decodes on a lane."""

    __slots__ = ("end", "id", "offset", "prompt", "reason")

    def __init__(self, rollout: int, prompt: int, offset: int, end: int, reason: Stop) -> None:
        self.id = rollout
        self.prompt = prompt
        self.offset = offset  # lane position minus tokens
        self.end = end  # the position of its last token
        self.reason: Stop = reason


class Left(NamedTuple):
    """A rollout that was taken out."""

    rollout: int
    tokens: int
    context: int  # prompt and tokens


class Batch:
    """All as of position `at`. KV memory is counted in tokens, those of prompts included."""

    def __init__(self, lane: str, kv_tokens: int | None) -> None:
        self.rows: dict[int, Row] = {}
        self.kept: dict[int, int] = {}  # paused rollouts whose cache is here, and its tokens
        self.at = 0
        self.context = 0  # KV tokens of the rows
        self._lane = lane
        self._limit = sys.maxsize if kv_tokens is None else kv_tokens
        self._kept_tokens = 0
        self._peak_tokens = 0
        self._order: list[tuple[int, int, Row]] = []  # (-end, -rollout, row); sorted in `by_end`

    def advance(self, position: int) -> None:
        """Every row gets a token for each position on the way."""
        self.context += (position - self.at) * len(self.rows)
        self.at = position
        held = self.context + self._kept_tokens
        if held > self._peak_tokens:
            self._peak_tokens = held

    def add(self, rollout: int, tokens: int, final: int, prompt: int, reason: Stop) -> None:
        offset = self.at - tokens
        row = Row(rollout, prompt, offset, offset + final, reason)
        self.rows[rollout] = row
        self.context += prompt + tokens
        self._order.append((-row.end, -rollout, row))

    def by_end(self) -> Iterator[Row]:
        """The rows in the order in which they end."""
        self._order.sort()
        return (row for _, _, row in reversed(self._order))

    def last_end(self) -> int:
        """The position at which the last row ends; `by_end` has been asked since rows joined."""
        return self._order[0][2].end

    def pop_next(self) -> Row:
        """The row that ends first leaves; `by_end` has been asked since rows joined."""
        row = self._order.pop()[2]
        self.advance(row.end)
        del self.rows[row.id]
        self.context -= row.end - row.offset + row.prompt
        return row

    def take_out(self, rollouts: Iterable[int]) -> list[Left]:
        """Those of the rollouts that are still here leave."""
        left = []
        for rollout in rollouts:
            row = self.rows.pop(rollout, None)
            if row is not None:
                tokens = self.at - row.offset
                left.append(Left(rollout, tokens, tokens + row.prompt))
        self.context -= sum([gone.context for gone in left])
        self._order = [entry for entry in self._order if entry[2].id in self.rows]
        return left

    def counts(self) -> Counts:
        """The tokens of each row."""
        at = self.at
        return tuple(sorted([(row.id, at - row.offset) for row in self.rows.values()]))

    def contexts(self) -> dict[int, int]:
        """The KV tokens of each row."""
        return {row.id: self.at - row.offset + row.prompt for row in self.rows.values()}

    # memory

    def keep(self, rollout: int, context: int) -> None:
        """Keep the cache of a rollout that was taken out."""
        self.kept[rollout] = context
        self._kept_tokens += context

    def forget(self, rollout: int) -> bool:
        """Free the cache of a paused rollout; whether there was one."""
        context = self.kept.pop(rollout, None)
        if context is None:
            return False
        self._kept_tokens -= context
        return True

    def iterations_left(self, rows: int, context: int) -> int:
        """How many more tokens of each of so many rows fit, if they hold that much now."""
        return (self._limit - self._kept_tokens - context) // rows

    def preempt(self) -> list[Left]:
        """The youngest leave until one more token of each fits."""
        gone: list[Left] = []
        while self.rows and self.iterations_left(len(self.rows), self.context) < 1:
            gone += self.take_out([max(self.rows)])
            if gone[-1].context >= self._limit:
                raise EngineError(
                    f"rollout {gone[-1].rollout} alone, with {gone[-1].context} tokens, overflows "
                    f"the KV memory of lane {self._lane}, {self._limit} tokens"
                )
        return gone

    def take_peak(self) -> int:
        """The most KV tokens held since the last call."""
        peak, self._peak_tokens = self._peak_tokens, self.context + self._kept_tokens
        return peak

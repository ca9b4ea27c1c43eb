"""An actor lane in closed form: a batch that decodes in lockstep, without an event per token.

The lane counts iterations (its position). A rollout that joined at position p with t tokens has
`position - (p - t)` tokens, so that joins, finishes, rounds and pauses are all positions, and the
decode law turns positions into time. Time is measured from an anchor: a boundary, the stall that is
due there, and what decodes from then on. While the token time is the same whatever the batch
(launch-bound decode), finishes do not move the anchor, and lanes that started together stay in step
to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Literal

from oppo_sim.costs.interface import Costs, DecodeLaw
from oppo_sim.engine.contract import Counts, Emitted, Lane
from oppo_sim.simulator.clock import Clock

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


class ActorLane:
    def __init__(
        self,
        lane: Lane,
        index: int,
        costs: Costs,
        round_s: float,
        clock: Clock,
        emit: Callable[[Emitted], None],
        ran_dry: Callable[[float], None] | None,
    ) -> None:
        self.name = lane.name
        self.devices = lane.devices
        self.index = index
        self._clock = clock
        self._emit = emit
        self._ran_dry = ran_dry  # asked for where a device's other work depends on it
        self._prefill_s = costs.prefill_s
        self._round_s = round_s
        # the batch
        self.rows: dict[int, Row] = {}
        self.kept: dict[int, int] = {}  # paused rollouts whose cache is here: KV tokens
        self._kept_tokens = 0
        self._context = 0  # KV tokens of the rows at position `_at`
        self._at = 0
        self._peak_tokens = 0
        self._chunk_tokens: int | None = None
        self._round_end: int | None = None
        # the anchor
        self._anchor = 0
        self._reached_s = 0.0
        self._due_s = 0.0  # stall at the anchor: the end of a round, a change of task
        self._missing: list[dict[int, int]] = []  # and prefills, each of rollouts and their context
        self._anchor_s = 0.0  # when decoding goes on, after the stalls
        self._held = False  # by a weight swap
        # the law, stretched where a scorer shares the device
        self._laws: dict[float, DecodeLaw] = {1.0: costs.decode}
        self._speed = 1.0
        self._law = costs.decode
        self._least_s = costs.decode.token_s(1, 0.0)
        # what is ahead, as long as nothing changes
        self.plan: list[tuple[float, Row]] = []  # finishes in this round, latest first
        self._order: list[tuple[int, int, Row]] = []  # (-end, -rollout, row), sorted by replan
        self._flat_s: float | None = None  # the token time, where it depends on nothing
        self._requests: list[Callable[[float], None]] = []
        self._epoch = 0  # what an older plan has put on the clock is ignored

    # the batch

    def pop_finish(self) -> Row:
        """The row whose end is next; it leaves the lane."""
        at_s, row = self.plan.pop()
        self._order.pop()
        self._advance(row.end)
        del self.rows[row.id]
        self._context -= row.end - row.offset + row.prompt
        if self._flat_s is None:
            self._set_anchor(row.end, at_s)
            self._anchor_s = at_s
        return row

    def open(self, chunk_tokens: int | None) -> None:
        """Rollouts are about to join; where there are none yet, a round opens."""
        self._chunk_tokens = chunk_tokens
        self._missing.append({})
        if not self.rows:
            self._round_end = None if chunk_tokens is None else self._anchor + chunk_tokens

    def add(self, rollout: int, tokens: int, final: int, prompt: int, reason: Stop) -> None:
        """Join a rollout; without its cache, its context will be prefilled."""
        offset = self._anchor - tokens
        row = Row(rollout, prompt, offset, offset + final, reason)
        self.rows[rollout] = row
        self._context += prompt + tokens
        self._order.append((-row.end, -rollout, row))
        if not self.forget(rollout):
            self._missing[-1][rollout] = prompt + tokens

    def remove(self, rollouts: Sequence[int], keep_kv: bool) -> tuple[Counts, Counts]:
        """Take rollouts out: the tokens of those whose cache is kept, and of the rest.

        A rollout that has not been prefilled yet has no cache to keep.
        """
        kept, lost = [], []
        for rollout in rollouts:
            row = self.rows.pop(rollout, None)
            if row is None:
                continue  # this boundary's token was its last
            tokens = self._anchor - row.offset
            context = tokens + row.prompt
            self._context -= context
            unfilled = [missing.pop(rollout, None) for missing in self._missing]
            if keep_kv and not any(unfilled):
                self.kept[rollout] = context
                self._kept_tokens += context
                kept.append((rollout, tokens))
            else:
                lost.append((rollout, tokens))
        self._order = [entry for entry in self._order if entry[2].id in self.rows]
        return tuple(sorted(kept)), tuple(sorted(lost))

    def forget(self, rollout: int) -> bool:
        """Free the cache of a paused rollout; whether there was one."""
        kept = self.kept.pop(rollout, None)
        if kept is None:
            return False
        self._kept_tokens -= kept
        return True

    def counts(self) -> Counts:
        """The tokens of its running rollouts at the anchor."""
        anchor = self._anchor
        return tuple(sorted([(row.id, anchor - row.offset) for row in self.rows.values()]))

    def take_peak(self) -> int:
        """The most KV tokens held since the last call."""
        peak, self._peak_tokens = self._peak_tokens, self._context + self._kept_tokens
        return peak

    # boundaries

    def at_boundary(self, now_s: float, request: Callable[[float], None]) -> None:
        """Call `request(at_s)` at the next boundary, which may be now; then plan anew."""
        at_s = self._boundary(now_s)[1]
        if at_s == now_s and not self._requests:
            self._settle(now_s)
            request(now_s)
            self.replan()
            return
        self._requests.append(request)
        if len(self._requests) == 1:
            self._wake_at(at_s)

    def stall(self, seconds: float) -> None:
        """Stall for that much longer before the next iteration."""
        self._due_s += seconds

    def hold(self) -> None:
        """No iteration until `release`."""
        self._held = True

    def release(self, now_s: float, recompute: bool) -> None:
        """Go on after the stall that was due; `recompute` prefills all that runs, and only that."""
        if recompute:
            rows = self.rows.values()
            self._missing = [{row.id: self._anchor - row.offset + row.prompt for row in rows}]
        self._held = False
        self._reached_s = now_s
        self.replan()

    def set_speed(self, now_s: float, factor: float) -> None:
        """From now on tokens take `factor` times what the law says, the running one too."""
        if factor == self._speed:
            return
        if self.rows and not self._held and now_s != self._reached_s:
            position, at_s = self._boundary(now_s)
            self._set_anchor(position, now_s + (at_s - now_s) * (factor / self._speed))
            self._advance(position)
        if factor not in self._laws:
            self._laws[factor] = self._laws[1.0].scaled(factor)
        self._speed, self._law = factor, self._laws[factor]
        self._least_s = self._law.token_s(1, 0.0)
        self.replan()

    def _boundary(self, now_s: float) -> tuple[int, float]:
        """The first boundary at or after now; what has finished before it is gone."""
        if self._held:
            return self._anchor, inf
        if not self.rows:
            return self._at, now_s
        anchor, anchor_s = self._anchor, self._anchor_s
        if now_s <= anchor_s:
            return anchor, now_s if now_s == self._reached_s else anchor_s
        if self._flat_s is not None:
            token_s = self._flat_s
            n = int((now_s - anchor_s) / token_s) if token_s else 0
            while anchor_s + n * token_s < now_s:
                n += 1
            while n and anchor_s + (n - 1) * token_s >= now_s:
                n -= 1
            return anchor + n, anchor_s + n * token_s
        batch = len(self.rows)
        context = self._context - (self._at - anchor) * batch
        n = self._law.tokens_by(batch, context, anchor_s, now_s)
        at_s = anchor_s + self._law.span_s(batch, context, n)
        if at_s < now_s:
            n += 1
            at_s = anchor_s + self._law.span_s(batch, context, n)
        return anchor + n, at_s

    def _settle(self, now_s: float) -> None:
        """Move the anchor to the next boundary; a stall that is due there stays due."""
        if self.rows and now_s == self._reached_s:
            return
        position, at_s = self._boundary(now_s)
        self._set_anchor(position, at_s)
        self._advance(position)

    def _set_anchor(self, position: int, reached_s: float) -> None:
        self._anchor, self._reached_s = position, reached_s
        self._due_s = 0.0
        self._missing.clear()

    def _advance(self, position: int) -> None:
        """Account for the KV that has been written up to a position."""
        self._context += (position - self._at) * len(self.rows)
        self._at = position
        held = self._context + self._kept_tokens
        if held > self._peak_tokens:
            self._peak_tokens = held

    def _wake_at(self, at_s: float) -> None:
        epoch = self._epoch
        if at_s != inf:
            self._clock.at(at_s, Clock.BOUNDARY, lambda: self._serve(epoch, at_s))

    def _serve(self, epoch: int, at_s: float) -> None:
        """Grant what has waited for this boundary."""
        if epoch != self._epoch or not self._requests:
            return
        self._settle(at_s)
        requests, self._requests = self._requests, []
        for request in requests:
            request(at_s)
        self.replan()

    # what is ahead

    def replan(self) -> None:
        """From the anchor: foresee the finishes of the round, and set the clock for its end."""
        self._epoch += 1
        self.plan = []
        self._advance(self._at)
        if not self.rows or self._held:
            return
        self._anchor_s = self._reached_s + self._stall_s() * self._speed
        order = self._order
        order.sort()
        last = order[0][2].end
        end = last if self._round_end is None or last <= self._round_end else self._round_end
        flat = self._law.flat_s(len(order), self._context, end - self._anchor)
        self._flat_s = flat if flat == self._least_s else None
        end_s = self._plan_flat(end) if self._flat_s is not None else self._plan_any(end)
        self.plan.reverse()
        epoch = self._epoch
        if end < last:
            self._clock.at(end_s, Clock.TOKEN, lambda: self._end_round(epoch, end, end_s))
        elif self._ran_dry is not None:
            self._clock.at(end_s, Clock.TOKEN, lambda: self._end_batch(epoch, end_s))
        if self._requests:
            self._wake_at(self._reached_s)

    def _stall_s(self) -> float:
        seconds = self._due_s
        for missing in self._missing:
            if missing:
                contexts = missing.values()
                attention = sum([tokens * tokens for tokens in contexts]) * 0.5
                seconds += self._prefill_s(sum(contexts), attention)
        return seconds

    def _plan_flat(self, end: int) -> float:
        anchor, anchor_s, token_s = self._anchor, self._anchor_s, self._flat_s or 0.0
        for _, _, row in reversed(self._order):
            if row.end > end:
                break
            self.plan.append((anchor_s + (row.end - anchor) * token_s, row))
        return anchor_s + (end - anchor) * token_s

    def _plan_any(self, end: int) -> float:
        position, at_s, batch = self._anchor, self._anchor_s, len(self._order)
        context = self._context
        for _, _, row in reversed(self._order):
            if row.end > end:
                break
            at_s += self._law.span_s(batch, context, row.end - position)
            context += (row.end - position) * batch - (row.end - row.offset + row.prompt)
            position = row.end
            batch -= 1
            self.plan.append((at_s, row))
        return at_s + self._law.span_s(batch, context, end - position) if batch else at_s

    def _end_round(self, epoch: int, position: int, at_s: float) -> None:
        if epoch != self._epoch:
            return
        self._set_anchor(position, at_s)
        self._advance(position)
        self._due_s = self._round_s
        self._emit(Emitted(at_s, self.name, self.counts()))
        self._round_end = None if self._chunk_tokens is None else position + self._chunk_tokens
        self.replan()

    def _end_batch(self, epoch: int, at_s: float) -> None:
        if epoch == self._epoch and self._ran_dry is not None:
            self._ran_dry(at_s)

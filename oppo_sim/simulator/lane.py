"""An actor lane in closed form: a batch that decodes in lockstep, without an event per token.

The lane counts iterations (`position`). A rollout that joined at position p with t tokens has
`position - (p - t)` tokens, so that joins, finishes, rounds and pauses are all positions, and the
decode law turns positions into time. Time is measured from an anchor: the last position at which
the batch or the speed changed. While the token time is the same whatever the batch (launch-bound
decode), finishes do not move the anchor, and lanes that started together stay in step to the last
bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Literal

from oppo_sim.costs.interface import DecodeLaw
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
        self.reason = reason


class ActorLane:
    def __init__(
        self,
        lane: Lane,
        index: int,
        law: DecodeLaw,
        round_s: float,
        clock: Clock,
        emit: Callable[[Emitted], None],
    ) -> None:
        self.name = lane.name
        self.devices = lane.devices
        self.index = index
        self.clock = clock
        self._emit = emit
        self.round_s = round_s
        self.rows: dict[int, Row] = {}  # in the order of joining
        self.kept: dict[int, int] = {}  # paused rollouts whose cache is here: KV tokens
        self.kept_tokens = 0
        self.kv_peak_tokens = 0
        self.chunk_tokens: int | None = None
        self.dry_at_s = inf  # when the last row of the plan will have finished, if nothing changes
        self.plan: list[tuple[float, Row]] = []  # finishes up to the end of the round, latest first
        self._order: list[
            tuple[int, int, Row]
        ] = []  # (-end, -rollout, row): rows by their end, latest first
        self._law = law
        self._speed = 1.0  # multiplies token times
        self._scaled = {1.0: law}
        self._least_s = law.token_s(1, 0.0)
        self._flat_s: float | None = None  # the token time, where it depends on nothing
        self._anchor = 0  # position
        self._anchor_s = 0.0  # when decoding goes on from there
        self._reached_s = 0.0  # when it was reached; a stall lies between the two
        self._context = 0  # KV tokens of the rows at position `_at`
        self._at = 0
        self._round_end: int | None = None
        self._prefill_s = 0.0  # the part of the stall that is prefill
        self._due_s = 0.0  # the stall that a held lane still owes
        self._requests: list[Callable[[float], None]] = []
        self._epoch = 0  # of the plan; what an older one has queued is ignored

    def next_finish_s(self) -> float:
        return self.plan[-1][0] if self.plan else inf

    def pop_finish(self) -> Row:
        """The row whose end is next; it leaves the lane."""
        at_s, row = self.plan.pop()
        self._order.pop()
        self._advance(row.end)
        del self.rows[row.id]
        self._context -= row.end - row.offset + row.prompt
        if self._flat_s is None:
            self._anchor, self._anchor_s, self._reached_s = row.end, at_s, at_s
        return row

    def at_boundary(self, now_s: float, request: Callable[[float], None]) -> None:
        """Call `request(at_s)` at the next boundary, which may be now; then plan anew."""
        at_s = self._boundary(now_s)[1]
        if at_s == now_s and not self._requests:
            self.settle(now_s)
            request(now_s)
            self.replan()
            return
        self._requests.append(request)
        if len(self._requests) == 1:
            self._wake_at(at_s)

    def settle(self, now_s: float) -> None:
        """Move the anchor to the next boundary; a stall that is due there stays due."""
        if self.rows and now_s == self._reached_s:
            return
        self._anchor, self._anchor_s = self._boundary(now_s)
        self._reached_s = self._anchor_s
        self._prefill_s = 0.0
        self._advance(self._anchor)

    def stall(self, switch_s: float, prefill_s: float) -> None:
        """No iteration for that much longer (the lane is settled)."""
        self._anchor_s += switch_s + prefill_s
        self._prefill_s += prefill_s

    def hold(self) -> None:
        """No iteration until `release` (the lane is settled)."""
        self._due_s, self._anchor_s, self._reached_s = self._anchor_s - self._reached_s, inf, inf

    def release(self, now_s: float, prefill_s: float | None) -> None:
        """Go on, with what was due before or, instead of the prefills that were, another one."""
        if prefill_s is not None:
            self._due_s += prefill_s - self._prefill_s
        self._reached_s, self._anchor_s = now_s, now_s + self._due_s
        self.replan()

    def add(self, rollout: int, tokens: int, final: int, prompt: int, reason: Stop) -> bool:
        """Join a rollout at the anchor; whether its cache was here."""
        if not self.rows:
            self._round_end = (
                None if self.chunk_tokens is None else self._anchor + self.chunk_tokens
            )
        offset = self._anchor - tokens
        row = Row(rollout, prompt, offset, offset + final, reason)
        self.rows[rollout] = row
        self._context += prompt + tokens
        self._order.append((-row.end, -rollout, row))
        return self.forget(rollout)

    def remove(self, rollouts: Sequence[int], keep_kv: bool) -> Counts:
        """Take rollouts out at the anchor; their tokens so far."""
        counts = []
        for rollout in rollouts:
            row = self.rows.pop(rollout, None)
            if row is None:
                continue  # this boundary's token was its last
            tokens = self._anchor - row.offset
            counts.append((rollout, tokens))
            self._context -= tokens + row.prompt
            if keep_kv:
                self.kept[rollout] = tokens + row.prompt
                self.kept_tokens += tokens + row.prompt
        gone = {rollout for rollout, _ in counts}
        self._order = [entry for entry in self._order if entry[2].id not in gone]
        return tuple(sorted(counts))

    def counts(self) -> Counts:
        """The tokens of its running rollouts at the anchor."""
        anchor = self._anchor
        return tuple(sorted([(row.id, anchor - row.offset) for row in self.rows.values()]))

    def contexts(self) -> list[int]:
        """KV tokens of each running rollout at the anchor."""
        return [self._anchor - row.offset + row.prompt for row in self.rows.values()]

    def forget(self, rollout: int) -> bool:
        """Free the cache of a paused rollout; whether there was one."""
        kept = self.kept.pop(rollout, None)
        if kept is None:
            return False
        self.kept_tokens -= kept
        return True

    def take_peak(self) -> int:
        """The most KV tokens held since the last call."""
        peak = self.kv_peak_tokens
        self.kv_peak_tokens = self._context + self.kept_tokens
        return peak

    def set_speed(self, now_s: float, factor: float) -> None:
        """From now on tokens take `factor` times what the law says, the running one too."""
        if factor == self._speed:
            return
        if self.rows:
            if now_s > self._anchor_s:
                self.settle(now_s)
            self._anchor_s = now_s + (self._anchor_s - now_s) * (factor / self._speed)
            if self._reached_s != now_s:
                self._reached_s = self._anchor_s
        if factor not in self._scaled:
            self._scaled[factor] = self._scaled[1.0].scaled(factor)
        self._speed, self._law = factor, self._scaled[factor]
        self._least_s = self._law.token_s(1, 0.0)
        self.replan()

    def replan(self) -> None:
        """Foresee the finishes up to the end of the round, and set the clock for the end."""
        self._epoch += 1
        self.plan = []
        self.dry_at_s = inf
        self._advance(self._at)
        if not self.rows or self._anchor_s == inf:
            return
        order = self._order
        order.sort()
        last = order[0][2].end
        end = last if self._round_end is None or last <= self._round_end else self._round_end
        flat = self._law.flat_s(len(order), self._context, end - self._anchor)
        self._flat_s = flat if flat == self._least_s else None
        end_s = self._plan_flat(end) if self._flat_s is not None else self._plan_any(end)
        self.plan.reverse()
        if end < last:
            epoch = self._epoch
            self.clock.at(end_s, Clock.TOKEN, lambda: self._end_round(epoch, end, end_s))
        else:
            self.dry_at_s = end_s
        if self._requests:
            self._wake_at(self._reached_s)

    def _plan_flat(self, end: int) -> float:
        anchor, anchor_s, token_s = self._anchor, self._anchor_s, self._flat_s or 0.0
        for _, _, row in reversed(self._order):
            if row.end > end:
                break
            self.plan.append((anchor_s + (row.end - anchor) * token_s, row))
        return anchor_s + (end - anchor) * token_s

    def _plan_any(self, end: int) -> float:
        position, at_s, context, batch = (
            self._anchor,
            self._anchor_s,
            self._context,
            len(self._order),
        )
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
        self._anchor, self._reached_s, self._anchor_s = position, at_s, at_s + self.round_s
        self._prefill_s = 0.0
        self._advance(position)
        self._emit(Emitted(at_s, self.name, self.counts()))
        self._round_end = None if self.chunk_tokens is None else position + self.chunk_tokens
        self.replan()

    def _boundary(self, now_s: float) -> tuple[int, float]:
        """The first boundary at or after now (finishes before it have left)."""
        anchor, anchor_s = self._anchor, self._anchor_s
        if not self.rows:
            return self._at, now_s
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

    def _wake_at(self, at_s: float) -> None:
        epoch = self._epoch
        if at_s != inf:
            self.clock.at(at_s, Clock.BOUNDARY, lambda: self._serve(epoch, at_s))

    def _serve(self, epoch: int, at_s: float) -> None:
        """Grant what has waited for this boundary."""
        if epoch != self._epoch or not self._requests:
            return
        self.settle(at_s)
        requests, self._requests = self._requests, []
        for request in requests:
            request(at_s)
        self.replan()

    def _advance(self, position: int) -> None:
        """Account for the KV that has been written up to a position."""
        self._context += (position - self._at) * len(self.rows)
        self._at = position
        held = self._context + self.kept_tokens
        if held > self.kv_peak_tokens:
            self.kv_peak_tokens = held

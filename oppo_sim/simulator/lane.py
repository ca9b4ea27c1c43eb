"""An actor lane in closed form: a batch that decodes in lockstep, without an event per token.

The lane counts iterations (its position). A rollout that joined at position p with t tokens has
`position - (p - t)` tokens, so that joins, finishes, rounds and pauses are all positions, and the
decode law turns positions into time. Time is measured from an anchor: a boundary, the stall that is
due there, and what decodes from then on. While the token time is the same whatever the batch
(launch-bound decode), finishes do not move the anchor, and lanes that started together stay in step
to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from math import inf

from oppo_sim.costs.interface import Costs, DecodeLaw
from oppo_sim.engine.contract import Counts, Emitted, Lane, Paused
from oppo_sim.simulator.batch import Batch, Left, Row, Stop
from oppo_sim.simulator.clock import Clock


class ActorLane:
    def __init__(
        self,
        lane: Lane,
        index: int,
        costs: Costs,
        round_s: float,
        clock: Clock,
        emit: Callable[[Emitted | Paused], None],
        ran_dry: Callable[[float], None] | None,
    ) -> None:
        self.name = lane.name
        self.devices = lane.devices
        self.index = index
        self.batch = Batch(lane.name, lane.kv_tokens)
        self.plan: list[tuple[float, Row]] = []  # finishes ahead, the next one last
        self._clock = clock
        self._emit = emit
        self._ran_dry = ran_dry  # asked for where a device's other work depends on it
        self._prefill_s = costs.prefill_s
        self._is_padded = costs.by_row is not None  # every row reads as much as the longest
        self._round_s = round_s
        self._chunk_tokens: int | None = None
        self._round_end: int | None = None
        # the anchor: a position, when it was reached, the stalls due there, when they are over
        self._anchor = 0
        self._reached_s = 0.0
        self._due_s = 0.0  # the end of a round, a change of task
        self._missing: list[dict[int, int]] = []  # prefills, each of rollouts and their context
        self._again: dict[int, int] = {}  # the response tokens in these
        self._reprefilled_tokens = 0
        self._anchor_s = 0.0
        self._held = False  # by a weight swap
        # the law, stretched where a scorer shares the device
        self._laws: dict[float, DecodeLaw] = {1.0: costs.decode}
        self._speed = 1.0
        self._law = costs.decode
        self._least_s = costs.decode.token_s(1, 0.0)
        self._flat_s: float | None = None  # the token time, where it depends on nothing
        self._requests: list[Callable[[float], None]] = []
        self._epoch = 0  # what an older plan has put on the clock is ignored

    # who is on it

    def pop_finish(self) -> Row:
        """The row whose end is next leaves the lane."""
        at_s, _ = self.plan.pop()
        row = self.batch.pop_next()
        if self._flat_s is None:
            self._set_anchor(row.end, at_s)
            self._anchor_s = at_s
        return row

    def open(self, chunk_tokens: int | None) -> None:
        """Rollouts are about to join; where there are none yet, a round opens."""
        self._chunk_tokens = chunk_tokens
        self._missing.append({})
        if not self.batch.rows:
            self._round_end = None if chunk_tokens is None else self._anchor + chunk_tokens

    def add(self, rollout: int, tokens: int, final: int, prompt: int, reason: Stop) -> None:
        """Join a rollout; without its cache, its context will be prefilled."""
        self.batch.add(rollout, tokens, final, prompt, reason)
        if not self.batch.forget(rollout):
            self._missing[-1][rollout] = prompt + tokens
            if tokens:
                self._again[rollout] = tokens

    def remove(self, rollouts: Sequence[int], keep_kv: bool) -> tuple[Counts, Counts]:
        """Take rollouts out: the tokens of those whose cache is kept, and of the rest.

        A rollout that has not been prefilled yet has no cache to keep.
        """
        kept, lost = [], []
        for left in self.batch.take_out(rollouts):
            if self._is_filled(left) and keep_kv:
                self.batch.keep(left.rollout, left.context)
                kept.append((left.rollout, left.tokens))
            else:
                lost.append((left.rollout, left.tokens))
        return tuple(sorted(kept)), tuple(sorted(lost))

    def _is_filled(self, left: Left) -> bool:
        """Whether a rollout that left had a cache; if not, it will not be prefilled any more."""
        self._again.pop(left.rollout, None)
        unfilled = [missing.pop(left.rollout, None) for missing in self._missing]
        return not any(unfilled)

    # boundaries

    def at_boundary(self, now_s: float, request: Callable[[float], None]) -> None:
        """Call `request(at_s)` at the next boundary, which may be now; then plan anew."""
        at_s = self._boundary(now_s)[1]
        if at_s == now_s and not self._requests:
            self._settle(now_s)
            request(now_s)
            self._make_room(now_s)
            self._plan()
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
            self._missing = [self.batch.contexts()]
            self._again = dict(self.batch.counts())
        self._held = False
        self._reached_s = now_s
        self._plan()

    def set_speed(self, now_s: float, factor: float, law: DecodeLaw | None = None) -> None:
        """From now on all takes `factor` times as long, the token that is under way too.

        `law`: of the tokens to come, where the factor depends on the batch.
        """
        if factor not in self._laws:
            self._laws[factor] = self._laws[1.0].scaled(factor)
        law = self._laws[factor] if law is None else law
        if factor == self._speed and law is self._law:
            return
        if self.batch.rows and not self._held and now_s != self._reached_s:
            position, at_s = self._boundary(now_s)
            change = factor / self._speed
            if law is not self._laws[factor] or self._law is not self._laws.get(self._speed):
                rows, context = len(self.batch.rows), self._context(position)
                change = law.token_s(rows, context) / self._law.token_s(rows, context)
            self._set_anchor(position, now_s + (at_s - now_s) * change)
            self.batch.advance(position)
        self._speed, self._law = factor, law
        self._least_s = self._law.token_s(1, 0.0)
        self._plan()

    def _boundary(self, now_s: float) -> tuple[int, float]:
        """The first boundary at or after now; what has finished before it is gone."""
        if self._held:
            return self._anchor, inf
        if not self.batch.rows:
            return self.batch.at, now_s
        anchor, anchor_s = self._anchor, self._anchor_s
        if now_s <= anchor_s:
            return anchor, now_s if now_s == self._reached_s else anchor_s
        if self._flat_s is not None:
            token_s = self._flat_s
            n = int((now_s - anchor_s) / token_s)
            while anchor_s + n * token_s < now_s:
                n += 1
            while n and anchor_s + (n - 1) * token_s >= now_s:
                n -= 1
            return anchor + n, anchor_s + n * token_s
        rows = len(self.batch.rows)
        context = self._context(anchor)
        n = self._law.tokens_by(rows, context, anchor_s, now_s)
        at_s = anchor_s + self._law.span_s(rows, context, n)
        if at_s < now_s:
            n += 1
            at_s = anchor_s + self._law.span_s(rows, context, n)
        return anchor + n, at_s

    def _settle(self, now_s: float) -> None:
        """Move the anchor to the next boundary; a stall that is due there stays due."""
        if self.batch.rows and now_s == self._reached_s:
            return
        position, at_s = self._boundary(now_s)
        self._set_anchor(position, at_s)
        self.batch.advance(position)

    def _set_anchor(self, position: int, reached_s: float) -> None:
        self._anchor, self._reached_s = position, reached_s
        self._due_s = 0.0
        self._missing.clear()
        if self._again:
            self._reprefilled_tokens += sum(self._again.values())
            self._again.clear()

    def _make_room(self, at_s: float) -> None:
        """Preempt the youngest where memory is short."""
        gone = self.batch.preempt()
        if gone:
            for left in gone:
                self._is_filled(left)
            counts = tuple(sorted([(left.rollout, left.tokens) for left in gone]))
            self._emit(Paused(at_s, self.name, counts, False, "memory"))
            if not self.batch.rows and self._ran_dry is not None:
                self._ran_dry(at_s)

    def take_reprefilled(self) -> int:
        """Response tokens that were prefilled again since the last call; at a boundary."""
        tokens, self._reprefilled_tokens = self._reprefilled_tokens, 0
        return tokens

    # what is ahead

    def _plan(self) -> None:
        """Foresee the finishes, and set the clock for what ends them: a round, or memory."""
        self._epoch += 1
        self.plan = []
        self.batch.advance(self.batch.at)
        if not self.batch.rows or self._held:
            return
        self._anchor_s = self._reached_s + self._stall_s() * self._speed
        rows = self.batch.by_end()
        last = self.batch.last_end()
        end = last if self._round_end is None else min(last, self._round_end)
        context = self._context(self._anchor)
        flat = self._law.flat_s(len(self.batch.rows), context, end - self._anchor)
        self._flat_s = flat if flat == self._least_s else None
        position, at_s = self._foresee(rows, end)
        self.plan.reverse()
        epoch = self._epoch
        if position < end:
            self._clock.at(at_s, Clock.TOKEN, lambda: self._run_short(epoch, position, at_s))
        elif end < last:
            self._clock.at(at_s, Clock.TOKEN, lambda: self._end_round(epoch, end, at_s))
        elif self._ran_dry is not None:
            self._clock.at(at_s, Clock.TOKEN, lambda: self._end_batch(epoch, at_s))
        if self._requests:
            self._wake_at(self._reached_s)

    def _context(self, position: int) -> int:
        """KV tokens that an iteration reads from there on: of all rows, or all as the longest.

        `position` is the anchor, or where the batch is.
        """
        rows = self.batch.rows
        if self._is_padded:
            return len(rows) * (position + max([r.prompt - r.offset for r in rows.values()]))
        return self.batch.context - (self.batch.at - position) * len(rows)

    def _foresee(self, rows: Iterable[Row], end: int) -> tuple[int, float]:
        """Plan the finishes up to `end`, or to where memory is short: that position and when."""
        position, at_s, anchor, anchor_s = (
            self._anchor,
            self._anchor_s,
            self._anchor,
            self._anchor_s,
        )
        context, batch, flat_s = self.batch.context, len(self.batch.rows), self._flat_s
        if self._is_padded:
            rows = [*rows]
            leads = [*accumulate([row.prompt - row.offset for row in reversed(rows)], max)]
        fits = self.batch.iterations_left(batch, context) > end - anchor
        for row in rows:
            if row.end > end:
                break
            if not fits and position + self.batch.iterations_left(batch, context) < row.end:
                break
            if flat_s is None:
                held = batch * (position + leads[batch - 1]) if self._is_padded else context
                at_s += self._law.span_s(batch, held, row.end - position)
            else:
                at_s = anchor_s + (row.end - anchor) * flat_s
            self.plan.append((at_s, row))
            context += (row.end - position) * batch - (row.end - row.offset + row.prompt)
            position = row.end
            batch -= 1
        if batch and not fits:
            end = min(end, position + self.batch.iterations_left(batch, context))
        if flat_s is not None:
            return end, anchor_s + (end - anchor) * flat_s
        if not batch:
            return end, at_s
        held = batch * (position + leads[batch - 1]) if self._is_padded else context
        return end, at_s + self._law.span_s(batch, held, end - position)

    def _stall_s(self) -> float:
        seconds = self._due_s
        for missing in self._missing:
            if missing:
                contexts = missing.values()
                attention = sum([tokens * tokens for tokens in contexts]) * 0.5
                seconds += self._prefill_s(sum(contexts), attention)
        return seconds

    def _end_round(self, epoch: int, position: int, at_s: float) -> None:
        if epoch != self._epoch:
            return
        self._set_anchor(position, at_s)
        self.batch.advance(position)
        self._due_s = self._round_s
        self._emit(Emitted(at_s, self.name, self.batch.counts()))
        self._round_end = None if self._chunk_tokens is None else position + self._chunk_tokens
        self._make_room(at_s)
        self._plan()

    def _run_short(self, epoch: int, position: int, at_s: float) -> None:
        if epoch != self._epoch:
            return
        self._set_anchor(position, at_s)
        self.batch.advance(position)
        self._make_room(at_s)
        self._plan()

    def _end_batch(self, epoch: int, at_s: float) -> None:
        if epoch == self._epoch and self._ran_dry is not None:
            self._ran_dry(at_s)

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
        self._make_room(at_s)
        self._plan()

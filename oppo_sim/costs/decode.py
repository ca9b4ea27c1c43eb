"""The decode law: the time of one iteration, and of any span of them in closed form."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from oppo_sim.costs import checks

ENDLESS = sys.maxsize  # tokens: no limit


class Line(NamedTuple):
    """An affine bound on the time of a decode iteration."""

    constant_s: float
    per_rollout_s: float = 0.0
    per_context_s: float = 0.0  # per token of KV context, summed over the batch


@dataclass(frozen=True)
class DecodeLaw:
    """Seconds of one decode iteration of a lane: the largest of launch, memory, compute.

    `batch` (at least 1) rollouts get one token each per iteration; `context_tokens` is the KV
    context that they hold before the first one: iteration i sees `context_tokens + i * batch`.
    Token time is then convex and never falls along a span, which gives every sum in closed form.
    """

    lines: tuple[Line, ...]
    _flat: tuple[tuple[float, float], ...] = field(init=False, repr=False, compare=False)
    _sloped: tuple[Line, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checks.at_least_one("DecodeLaw", lines=self.lines)
        for n, (constant, per_rollout, per_context) in enumerate(self.lines):
            owner = f"DecodeLaw.lines[{n}]"
            checks.finite(owner, constant_s=constant)  # below 0 for a line that starts late
            checks.not_negative(owner, per_rollout_s=per_rollout, per_context_s=per_context)
        flat = tuple((c, r) for c, r, k in self.lines if k == 0.0)
        sloped = sorted((line for line in self.lines if line[2] > 0.0), key=lambda line: line[2])
        object.__setattr__(self, "_flat", flat)
        object.__setattr__(self, "_sloped", tuple(sloped))

    @classmethod
    def of(
        cls, *lines: tuple[float, float, float], per_rollout_s: float = 0.0, fixed_s: float = 0.0
    ) -> Self:
        """max(lines) + per_rollout_s * batch + fixed_s: the additions are folded into each line."""
        return cls(tuple(Line(c + fixed_s, r + per_rollout_s, k) for c, r, k in lines))

    def token_s(self, batch: int, context_tokens: float) -> float:
        """Seconds of the next iteration."""
        longest = 0.0
        for constant, per_rollout, per_context in self.lines:
            seconds = constant + per_rollout * batch + per_context * context_tokens
            if seconds > longest:
                longest = seconds
        return longest

    def flat_s(self, batch: int, context_tokens: float, tokens: int) -> float | None:
        """The token time if it is the same for all `tokens` (at least 1) iterations, else None.

        It never falls, so it is the same throughout if a line without slope still wins at the end.
        """
        floor = 0.0
        for constant, per_rollout in self._flat:
            seconds = constant + per_rollout * batch
            if seconds > floor:
                floor = seconds
        last = context_tokens + (tokens - 1) * batch
        for constant, per_rollout, per_context in self._sloped:
            if constant + per_rollout * batch + per_context * last > floor:
                return None
        return floor

    def span_s(self, batch: int, context_tokens: float, tokens: int) -> float:
        """Seconds of the next `tokens` iterations: the sum of `token_s`, a series per line.

        Never falls in `tokens`; 0.0 for no tokens.
        """
        if tokens <= 0:
            return 0.0
        flat = self.flat_s(batch, context_tokens, tokens)
        if flat is not None:
            return flat * tokens
        total = 0.0
        while tokens > 0:
            first, step, piece = self._piece(batch, context_tokens, tokens)
            total += piece * (first + step * (piece - 1) * 0.5)
            context_tokens += piece * batch
            tokens -= piece
        return total

    def tokens_within(
        self, batch: int, context_tokens: float, seconds: float, most: int = ENDLESS
    ) -> int:
        """How many iterations end within `seconds`: the largest n with span_s(n) <= seconds.

        At most `most`, which is the answer where iterations cost nothing.
        """
        return self.tokens_by(batch, context_tokens, 0.0, seconds, most)

    def tokens_by(
        self,
        batch: int,
        context_tokens: float,
        start_s: float,
        end_s: float,
        most: int = ENDLESS,
    ) -> int:
        """`tokens_within` between two instants: the largest n with start_s + span_s(n) <= end_s.

        Exact in the very floats in which the ends are stamped, as `end_s - start_s` would not be.
        """
        tokens = self._guess(batch, context_tokens, end_s - start_s, most)

        def fits(n: int) -> bool:
            return start_s + self.span_s(batch, context_tokens, n) <= end_s

        # The guess is right but for rounding: gallop away from it, then bisect the last jump.
        jump = 1
        if tokens == 0 or fits(tokens):
            low = tokens
            while low < most and fits(min(low + jump, most)):
                low = min(low + jump, most)
                jump *= 2
            high = min(low + jump, most + 1)
        else:
            high = tokens
            while high > 1 and not fits(max(high - jump, 1)):
                high = max(high - jump, 1)
                jump *= 2
            low = max(high - jump, 0)
        while high - low > 1:
            middle = (low + high) // 2
            if fits(middle):
                low = middle
            else:
                high = middle
        return low

    def scaled(self, factor: float) -> Self:
        """The same law with every time multiplied; exact if `factor` is a power of two."""
        checks.positive("DecodeLaw.scaled", factor=factor)
        return type(self)(tuple(Line(*(x * factor for x in line)) for line in self.lines))

    def _piece(self, batch: int, context_tokens: float, most: int) -> tuple[float, float, int]:
        """The series that starts here: first time, step, and for how many of `most` tokens.

        Where it ends does not depend on `most`, so longer spans have the pieces of shorter ones.
        """
        first = slope = 0.0
        for constant, per_rollout in self._flat:
            seconds = constant + per_rollout * batch
            if seconds > first:
                first = seconds
        for constant, per_rollout, per_context in self._sloped:
            seconds = constant + per_rollout * batch + per_context * context_tokens
            if seconds >= first:
                first, slope = seconds, per_context
        step = slope * batch
        piece = most
        for constant, per_rollout, per_context in self._sloped:
            gain = per_context * batch - step
            if gain > 0.0:
                lead = first - (constant + per_rollout * batch + per_context * context_tokens)
                if lead < gain * (piece - 1):
                    piece = int(lead / gain) + 1
        return first, step, piece

    def _guess(self, batch: int, context_tokens: float, seconds: float, most: int) -> int:
        """`tokens_within` up to rounding: whole pieces, then n*h + step*n*n/2 = seconds left."""
        done = 0
        while done < most and seconds > 0.0:
            first, step, piece = self._piece(batch, context_tokens, most - done)
            spent = piece * (first + step * (piece - 1) * 0.5)
            if spent > seconds:
                half = first - step * 0.5
                root = half + math.sqrt(half * half + 2.0 * step * seconds)
                return done + min(int(2.0 * seconds / root), piece) if root > 0.0 else done
            seconds -= spent
            done += piece
            context_tokens += piece * batch
        return done

"""A listener that counts what actors prefill again, because its cache was lost."""

from __future__ import annotations

from collections.abc import Callable

from oppo_sim.engine.contract import Entry, Finished, Generate, Paused


class Refilled:
    """Preemptions, and the contexts that were prefilled more than once: how many, tokens, seconds.

    A rollout that is placed and leaves again before its next token was never prefilled, and does
    not count. `prefill_s` gives the seconds of one context; prompts are `prompt_tokens` long. For
    schedules that do not recompute caches at an update.
    """

    def __init__(self, prompt_tokens: int, prefill_s: Callable[[int], float]) -> None:
        self.preemptions = self.tokens = 0
        self.seconds = 0.0
        self._prompt_tokens = prompt_tokens
        self._prefill_s = prefill_s
        self._placed: dict[int, int] = {}  # without a cache: tokens when it was placed
        self._kept: set[int] = set()  # paused, with its cache
        self._filled: set[int] = set()  # has had a cache once

    def __call__(self, entry: Entry) -> None:
        match entry:
            case Generate():
                for rollout, tokens in entry.starts:
                    if rollout not in self._kept:
                        self._placed[rollout] = tokens
                    self._kept.discard(rollout)
            case Paused():
                for rollout, tokens in entry.counts:
                    decoded = self._leave(rollout, tokens)
                    if entry.kv_kept:
                        self._kept.add(rollout)
                    elif entry.why == "memory":
                        self.preemptions += decoded
            case Finished():
                self._leave(entry.rollout, entry.tokens)
                self._filled.discard(entry.rollout)

    def _leave(self, rollout: int, tokens: int) -> bool:
        """Whether it has decoded since it was placed, so that it had a cache."""
        start = self._placed.pop(rollout, None)
        if start is None:
            return True
        if tokens == start:
            return False
        if rollout in self._filled:
            context = self._prompt_tokens + start
            self.tokens += context
            self.seconds += self._prefill_s(context)
        self._filled.add(rollout)
        return True

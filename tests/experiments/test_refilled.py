"""What is prefilled again, by hand."""

from __future__ import annotations

from experiments.refilled import Refilled
from oppo_sim.engine.contract import Entry, Finished, Generate, Paused


def watched(*entries: Entry) -> Refilled:
    """Prompts of 100 tokens; a context of n tokens takes n / 10 s."""
    refilled = Refilled(100, lambda context: context / 10)
    for entry in entries:
        refilled(entry)
    return refilled


def placed(rollout: int, tokens: int) -> Generate:
    return Generate("a", ((rollout, tokens),), 1000, None)


def paused(
    at_s: float, rollout: int, tokens: int, why: str = "memory", kept: bool = False
) -> Paused:
    return Paused(at_s, "a", ((rollout, tokens),), kept, why)  # type: ignore[arg-type]


def test_a_preempted_rollout_is_prefilled_again_with_its_prompt() -> None:
    found = watched(
        placed(0, 0), paused(5.0, 0, 50), placed(0, 50), Finished(9.0, "a", 0, 80, "stop")
    )
    assert (found.preemptions, found.tokens, found.seconds) == (1, 150, 15.0)


def test_what_leaves_before_its_next_token_was_not_prefilled() -> None:
    """Neither fresh nor resumed: the one prefill in between is the first one."""
    found = watched(
        placed(0, 0), paused(1.0, 0, 0), placed(0, 0), paused(2.0, 0, 7),
        placed(0, 7), paused(3.0, 0, 7), placed(0, 7), Finished(4.0, "a", 0, 9, "stop"),
    )  # fmt: skip
    assert (found.preemptions, found.tokens) == (1, 107)


def test_a_cache_that_was_kept_is_not_prefilled_again_and_one_that_was_not_is() -> None:
    stop = paused(5.0, 0, 50, "asked", kept=True)
    kept = watched(placed(0, 0), stop, placed(0, 50), Finished(9.0, "a", 0, 80, "stop"))
    assert (kept.preemptions, kept.tokens) == (0, 0)
    lost = watched(
        placed(0, 0), paused(5.0, 0, 50, "asked"), placed(0, 50), Finished(9.0, "a", 0, 80, "stop")
    )
    assert (lost.preemptions, lost.tokens) == (0, 150)

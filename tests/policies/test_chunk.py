"""How chunk policies choose: whole responses, a fixed size, and the paper's periodic probe."""

from __future__ import annotations

import pytest

from oppo_sim.policies import FixedChunk, ProbedChunk, WholeResponse
from oppo_sim.records import StepRecord
from tests.policies.seen import seen
from tests.steps import step


def steps_that_took(*seconds: float, policy: ProbedChunk, first: int = 0) -> list[StepRecord]:
    """Steps of these durations, each with the chunk that the policy chose for it."""
    steps: list[StepRecord] = []
    for number, duration_s in enumerate(seconds, start=first):
        chunk = policy.chunk_tokens(seen(steps, step=number))
        steps.append(step(number, end_s=duration_s, chunk_tokens=chunk))
    return steps


def chunks_of(steps: list[StepRecord]) -> list[int | None]:
    return [record.chunk_tokens for record in steps]


def test_whole_responses_have_no_chunks_and_a_fixed_size_never_moves() -> None:
    for recent in ([], [step(0, chunk_tokens=7)]):
        assert WholeResponse().chunk_tokens(seen(recent)) is None
        assert FixedChunk(500).chunk_tokens(seen(recent)) == 500


def test_the_papers_probe() -> None:
    """128, 256 and 512 are tried on a step each, every 50 steps."""
    probe = ProbedChunk()
    assert (probe.candidates, probe.every, probe.repeats) == ((128, 256, 512), 50, 1)
    assert probe.window == 50
    steps = steps_that_took(9, 7, 8, *[7] * 47, 5, 6, 7, *[5] * 10, policy=probe)
    assert chunks_of(steps) == [128, 256, 512, *[256] * 47, 128, 256, 512, *[128] * 10]


def test_only_the_steps_of_the_latest_probe_count() -> None:
    probe = ProbedChunk(candidates=(10, 20), every=5)
    # 10 wins its probe, whatever it takes later; in the second probe it loses
    steps = steps_that_took(3, 4, 99, 99, 99, 6, 5, 1, 1, 1, 7, policy=probe)
    assert chunks_of(steps) == [10, 20, 10, 10, 10, 10, 20, 20, 20, 20, 10]


def test_repeats_are_averaged_and_alternate() -> None:
    probe = ProbedChunk(candidates=(10, 20), every=6, repeats=2)
    # 10: 1 and 9 s, mean 5; 20: 4 and 5 s, mean 4.5
    assert chunks_of(steps_that_took(1, 4, 9, 5, 0, 0, policy=probe)) == [10, 20, 10, 20, 20, 20]


def test_on_a_tie_the_first_candidate_serves() -> None:
    probe = ProbedChunk(candidates=(30, 10, 20), every=5)
    assert chunks_of(steps_that_took(4, 4, 4, 4, 4, policy=probe))[3:] == [30, 30]


def test_a_candidate_that_was_not_seen_cannot_win() -> None:
    """A run that went on from a record of its last two steps."""
    probe = ProbedChunk(candidates=(10, 20, 30), every=9)
    recent = [step(1, end_s=8, chunk_tokens=20), step(2, end_s=9, chunk_tokens=30)]
    assert probe.chunk_tokens(seen(recent)) == 20


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: FixedChunk(0), r"chunk = 0: must be at least 1"),
        (lambda: FixedChunk(2.5), r"chunk = 2\.5: must be a whole number"),  # type: ignore[arg-type]
        (lambda: FixedChunk(True), r"chunk = True: must be a whole number"),
        (lambda: ProbedChunk(candidates=()), r"chunk\.candidates is empty: name at least one"),
        (lambda: ProbedChunk(candidates=(128, -1)), r"chunk\.candidates = -1: must be at least 1"),
        (lambda: ProbedChunk(repeats=0), r"chunk\.repeats = 0: must be at least 1"),
        (lambda: ProbedChunk(every=3), r"chunk\.every = 3 leaves no step .* must exceed .* 3"),
        (lambda: ProbedChunk(repeats=17), r"chunk\.every = 50 leaves no step .* must exceed .* 51"),
        (lambda: ProbedChunk(every=50.5), r"chunk\.every = 50\.5: must be a whole number"),  # type: ignore[arg-type]
        (lambda: ProbedChunk(every="50"), r"chunk\.every = '50': must be a whole number"),  # type: ignore[arg-type]
    ],
)
def test_an_error_names_field_value_and_limit(make: object, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        make()  # type: ignore[operator]

"""The one schema: what a run records, whichever machine it ran on (standard library only).

Times are seconds since the run began, lengths are tokens, intervals are half-open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One PPO step, from the end of the one before to its weights being in place.

    The lists `trained`, `tokens`, `staleness`, `deferrals` and `rewards` run in parallel, one entry
    per trained rollout, in the order in which the batch was taken.
    """

    step: int  # 0-based; the step trains weights version `step` into `step + 1`
    start_s: float
    taken_s: float  # the batch was complete: generation has ended, as far as this step is concerned
    scored_s: float  # the last reward of the batch was known
    train_start_s: float
    train_end_s: float
    end_s: float
    # what the policies chose at the start of the step, and what they saw besides earlier steps
    chunk_tokens: int | None
    overcommit: int
    running: int
    carried: int
    finished: int
    queued: int
    kv_used: float
    # the batch
    trained: tuple[int, ...]
    tokens: tuple[int, ...]
    staleness: tuple[int, ...]
    deferrals: tuple[int, ...]
    rewards: tuple[float, ...]
    stale_tokens: int  # tokens of the batch that older weights decoded
    # totals since the run began
    admitted: int
    dropped: int
    # of this step
    carried_tokens: int  # held at the end by rollouts not trained yet, as far as emitted
    wasted_tokens: int
    reprefilled_tokens: int
    kv_peak_tokens: int
    score_s: float  # scorer seconds that ended in this step, summed over scorers
    hidden_score_s: float  # those of them that ran before the batch was complete
    busy_s: Mapping[str, float] = field(default_factory=dict)  # by device; a task still running is
    # accounted in the step in which it ends

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s

    @property
    def reward(self) -> float:
        """The mean reward of the batch."""
        return sum(self.rewards) / len(self.rewards)


class Span(NamedTuple):
    """One task on one lane and its devices."""

    lane: str
    devices: tuple[str, ...]
    kind: str  # decode, score, train, sync
    start_s: float
    end_s: float
    step: int  # the step during which it ended
    rollouts: int
    tokens: int
    # What a score reads was decoded in these spans: an actor lane, and the instant within (start,
    # end] of its decode span at which it was handed over. Empty for other kinds.
    reads: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """All that a policy may see at the start of a step: the run so far, nothing of the future."""

    step: int
    version: int
    batch_size: int
    max_response_tokens: int
    running: int  # rollouts that are decoding now
    carried: int  # unfinished rollouts with tokens, from steps before
    finished: int  # finished ones that wait to be trained
    queued: int  # admitted ones that have not begun
    kv_used: float  # share of the actors' KV reserve that is taken, 0 where memory has no limit
    recent: Sequence[StepRecord] = ()  # bounded by the window that the policies declare


def to_row(record: StepRecord | Span) -> dict[str, Any]:
    """A record as one JSON object."""
    if isinstance(record, Span):
        return record._asdict()
    return {name: getattr(record, name) for name in _STEP_FIELDS}


_LISTS = ("trained", "tokens", "staleness", "deferrals", "rewards")
_STEP_FIELDS = tuple(f.name for f in fields(StepRecord))


def step_from_row(row: Mapping[str, Any]) -> StepRecord:
    """The record of one JSON object; ValueError names a field that is missing or unknown."""
    odd = sorted(set(_STEP_FIELDS) ^ set(row))
    if odd:
        raise ValueError(
            f"a step has the fields of schema {SCHEMA_VERSION}; missing or unknown: {odd}"
        )
    values: dict[str, Any] = {k: tuple(v) if k in _LISTS else v for k, v in row.items()}
    return StepRecord(**values)


def span_from_row(row: Mapping[str, Any]) -> Span:
    """The span of one JSON object; ValueError names a field that is missing or unknown."""
    odd = sorted(set(Span._fields) ^ set(row))
    if odd:
        raise ValueError(f"a span has the fields {Span._fields}; missing or unknown: {odd}")
    reads = tuple([(lane, at_s) for lane, at_s in row["reads"]])
    return Span(**{**row, "devices": tuple(row["devices"]), "reads": reads})

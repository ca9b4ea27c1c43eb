"""What a run amounts to: step time, where it goes, devices, lateness, lengths, waste."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any, Self

import numpy as np

from oppo_sim.analysis.intervals import of_series
from oppo_sim.records import StepRecord

STAGES = ("generation", "scoring", "waiting", "training", "sync")
WHOLE = "whole"  # the chunk of a step without rounds
_HISTOGRAMS = ("staleness", "deferrals", "overcommit")
_COUNTED = (*_HISTOGRAMS, "chunk_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """A run in numbers. Means are over steps unless they say otherwise; None: not known."""

    steps: int
    mean_step_s: float
    mean_step_low_s: float | None  # 95 % interval by batch means (see intervals.of_series)
    mean_step_high_s: float | None
    p50_step_s: float
    p95_step_s: float
    # Exposed seconds of each stage; they add up to mean_step_s. generation: until the batch was
    # complete; scoring: from then until its last reward; waiting: for the trainer; training; sync:
    # the weights on their way. What was over before the step began counts in an earlier step.
    stages_s: Mapping[str, float]
    # by device: busy seconds over wall seconds
    utilisation: Mapping[str, float]
    mean_utilisation: float
    score_s: float  # scorer seconds, exposed or not
    hidden_score_share: float | None  # of them, what ran before the batch was complete
    # trained rollouts by versions late, by steps carried over
    staleness: Mapping[int, int]
    deferrals: Mapping[int, int]
    stale_token_share: float  # tokens of the batches that older weights decoded
    trained_tokens_mean: float  # response tokens per trained rollout
    # Response tokens per admitted rollout, as long as they get in the end. In a finite run it is
    # above the mean of the trained even where nothing is lost: what is carried out of the last step
    # is long. That gap closes as 1/steps; one that stays means that long rollouts are dropped.
    admitted_tokens_mean: float | None
    decoded_tokens: float
    wasted_tokens: float
    reprefilled_tokens: float
    wasted_share: float  # of the decoded
    reprefilled_share: float  # tokens prefilled again per token decoded
    kv_peak_tokens: int  # of a lane
    kv_used_max: float  # at a step's start, share of the reserve
    reward_mean: float
    overcommit: Mapping[int, int]  # steps by overcommitment
    chunk_tokens: Mapping[str, int]  # steps by chunk; "whole": no rounds

    @property
    def mean_overcommit(self) -> float:
        return sum(d * steps for d, steps in self.overcommit.items()) / self.steps

    def as_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        row = asdict(self)
        for name in _HISTOGRAMS:
            row[name] = {str(key): count for key, count in row[name].items()}
        return row

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Self:
        """The inverse of `as_dict`."""
        ints = {name: {int(k): v for k, v in row[name].items()} for name in _HISTOGRAMS}
        return cls(**{**row, **ints})


def summarise(
    steps: Iterable[StepRecord],
    devices: Sequence[str] = (),
    *,
    warmup: int = 0,
    lengths: Callable[[range], Iterable[int]] | None = None,
) -> Metrics:
    """The metrics of a run's steps, in one pass that keeps one number per step.

    `devices` are those that count even if they never work (the others come from the steps);
    `warmup` first steps are left out; `lengths` gives the final response tokens of admitted
    rollouts, which only a simulated workload knows. Raises ValueError where no step is left.
    """
    sums = _Sums(devices, lengths)
    for record in steps:
        if record.step < warmup:
            sums.skip(record)
        else:
            sums.add(record)
    if not sums.seconds:
        raise ValueError(f"no steps to summarise after {warmup} steps of warm-up")
    return sums.metrics()


class _Sums:
    """Running totals over the steps that count."""

    def __init__(
        self, devices: Sequence[str], lengths: Callable[[range], Iterable[int]] | None
    ) -> None:
        self.seconds = array("d")
        self._lengths = lengths
        self._totals: Counter[str] = Counter()
        self._stages = dict.fromkeys(STAGES, 0.0)
        self._busy = dict.fromkeys(devices, 0.0)
        self._histograms: dict[str, Counter[int]] = {name: Counter() for name in _HISTOGRAMS}
        self._chunks: Counter[str] = Counter()
        self._admitted = self._carried = 0  # at the end of the step before
        self._carried_first = 0
        self._kv_peak = 0
        self._kv_used = self._reward = self._score_s = self._hidden_s = 0.0

    def skip(self, record: StepRecord) -> None:
        self._admitted = record.admitted
        self._carried = self._carried_first = record.carried_tokens

    def add(self, record: StepRecord) -> None:
        self.seconds.append(record.seconds)
        for stage, seconds in zip(STAGES, exposed(record), strict=True):
            self._stages[stage] += seconds
        for device, busy_s in record.busy_s.items():
            self._busy[device] = self._busy.get(device, 0.0) + busy_s
        self._histograms["staleness"].update(record.staleness)
        self._histograms["deferrals"].update(record.deferrals)
        self._histograms["overcommit"][record.overcommit] += 1
        chunk = record.chunk_tokens
        self._chunks[WHOLE if chunk is None else str(chunk)] += 1
        totals = self._totals
        totals["trained"] += len(record.trained)
        totals["tokens"] += sum(record.tokens)
        totals["stale"] += record.stale_tokens
        totals["wasted"] += record.wasted_tokens
        totals["reprefilled"] += record.reprefilled_tokens
        if self._lengths is not None:
            totals["admitted"] += record.admitted - self._admitted
            totals["lengths"] += sum(self._lengths(range(self._admitted, record.admitted)))
        self._admitted, self._carried = record.admitted, record.carried_tokens
        self._kv_peak = max(self._kv_peak, record.kv_peak_tokens)
        self._kv_used = max(self._kv_used, record.kv_used)
        self._reward += record.reward
        self._score_s += record.score_s
        self._hidden_s += record.hidden_score_s

    def metrics(self) -> Metrics:
        n, totals = len(self.seconds), self._totals
        step_s = of_series(self.seconds)
        p50, p95 = np.quantile(self.seconds, (0.5, 0.95)).tolist()
        wall_s = sum(self.seconds)
        utilisation = {d: busy / wall_s if wall_s else 0.0 for d, busy in self._busy.items()}
        decoded = totals["tokens"] + totals["wasted"] + self._carried - self._carried_first
        admitted = totals["admitted"]
        return Metrics(
            steps=n,
            mean_step_s=step_s.mean,
            mean_step_low_s=step_s.low,
            mean_step_high_s=step_s.high,
            p50_step_s=p50,
            p95_step_s=p95,
            stages_s={stage: seconds / n for stage, seconds in self._stages.items()},
            utilisation=utilisation,
            mean_utilisation=sum(utilisation.values()) / max(1, len(utilisation)),
            score_s=self._score_s / n,
            hidden_score_share=self._hidden_s / self._score_s if self._score_s else None,
            staleness=_sorted(self._histograms["staleness"]),
            deferrals=_sorted(self._histograms["deferrals"]),
            stale_token_share=totals["stale"] / max(1, totals["tokens"]),
            trained_tokens_mean=totals["tokens"] / max(1, totals["trained"]),
            admitted_tokens_mean=totals["lengths"] / admitted if admitted else None,
            decoded_tokens=decoded / n,
            wasted_tokens=totals["wasted"] / n,
            reprefilled_tokens=totals["reprefilled"] / n,
            wasted_share=totals["wasted"] / max(1, decoded),
            reprefilled_share=totals["reprefilled"] / max(1, decoded),
            kv_peak_tokens=self._kv_peak,
            kv_used_max=self._kv_used,
            reward_mean=self._reward / n,
            overcommit=_sorted(self._histograms["overcommit"]),
            chunk_tokens=dict(sorted(self._chunks.items(), key=_by_size)),
        )


def average(runs: Sequence[Metrics]) -> Metrics:
    """Several runs of equal length as one: means, histograms added up, peaks; no interval."""
    merged: dict[str, Any] = {}
    for name in (field.name for field in fields(Metrics)):
        values = [getattr(run, name) for run in runs]
        if name in _COUNTED:
            counted = sum((Counter(value) for value in values), Counter[Any]())
            merged[name] = dict(sorted(counted.items(), key=_by_size))
        elif name in ("kv_peak_tokens", "kv_used_max"):
            merged[name] = max(values)
        elif name == "steps":
            merged[name] = sum(values)
        elif isinstance(values[0], Mapping):
            merged[name] = {key: _mean([value[key] for value in values]) for key in values[0]}
        else:
            merged[name] = None if None in values else _mean(values)
    return Metrics(**{**merged, "mean_step_low_s": None, "mean_step_high_s": None})


def exposed(record: StepRecord) -> tuple[float, ...]:
    """The step cut at its milestones into the stages of STAGES; they add up to its seconds."""
    milestones = (
        record.taken_s,
        record.scored_s,
        record.train_start_s,
        record.train_end_s,
        record.end_s,
    )
    cuts = [record.start_s]
    for at_s in milestones:
        cuts.append(min(record.end_s, max(cuts[-1], at_s)))
    return tuple(end_s - start_s for start_s, end_s in pairwise(cuts))


def _sorted(histogram: Counter[int]) -> dict[int, int]:
    return dict(sorted(histogram.items()))


def _by_size(item: tuple[int | str, int]) -> tuple[bool, int]:
    """Numbers in order, whole responses after all chunks."""
    key = item[0]
    return key == WHOLE, 0 if key == WHOLE else int(key)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)

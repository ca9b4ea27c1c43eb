"""What the spans of a run did: seconds, and how much of each thing that costs time.

A span says how long, how many rollouts and how many tokens. What else a price needs (iterations,
context, prompts) is taken from the steps' records, and only where these explain the span to the
token; the other spans are counted and not used.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from oppo_sim.records import Span, StepRecord

Prompts = Callable[[int], int]
FEW = 20  # spans of known composition: below, the rest of a running lane's rounds are read too


class Row(NamedTuple):
    """A task: when it ended, how long it took, and what of."""

    step: int
    seconds: float
    amounts: Mapping[str, float]  # by the name of the cost in a scenario


class Tasks(NamedTuple):
    rows: list[Row]
    spans: int  # that there were; those without a row say too little


class Recorded(NamedTuple):
    """A run as far as costs go; `prompts` None where nobody knows how long they were."""

    steps: Sequence[StepRecord]
    spans: Sequence[Span]
    prompts: Prompts | None
    scoring: str

    def prompt_tokens(self, rollouts: Sequence[int]) -> int:
        return 0 if self.prompts is None else sum(self.prompts(r) for r in rollouts)

    def of(self, kind: str) -> list[Span]:
        return [span for span in self.spans if span.kind == kind and span.step < len(self.steps)]


def decode_tasks(run: Recorded) -> Tasks:
    """Decode spans whose rollouts are known, else rounds in which nothing began or ended."""
    spans = run.of("decode")
    lanes: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        lanes[span.lane].append(span)
    for of_lane in lanes.values():
        of_lane.sort(key=lambda span: span.start_s)
    rows = list(_composed(run, lanes))
    if len(rows) < FEW:
        rows = list(_plain_rounds(run, lanes))
    return Tasks(sorted(rows, key=lambda row: row.step), len(spans))


def _composed(run: Recorded, lanes: Mapping[str, list[Span]]) -> Iterator[Row]:
    """Of steps that begin and end with dry lanes: the batch is dealt out in order, lane by lane."""
    order = sorted(lanes, key=_natural)
    found: dict[tuple[str, int], list[Span]] = defaultdict(list)
    for of_lane in lanes.values():
        for span in of_lane:
            found[span.lane, span.step].append(span)
    for step in run.steps:
        batch = sorted(zip(step.trained, step.tokens, strict=True))
        for place, lane in enumerate(order):
            yield from _of_lane(run, step, batch[place :: len(order)], found[lane, step.step])


def _of_lane(
    run: Recorded, step: StepRecord, dealt: Sequence[tuple[int, int]], spans: Sequence[Span]
) -> list[Row]:
    """Rows for the rounds of these rollouts; none unless every span is what they would make."""
    longest = max((tokens for _, tokens in dealt), default=0)
    chunk = step.chunk_tokens or longest or 1
    starts = range(0, longest, chunk)
    if len(starts) != len(spans):
        return []
    rows = []
    for start, span in zip(starts, spans, strict=True):
        running = [(rollout, tokens) for rollout, tokens in dealt if tokens > start]
        decoded = [min(tokens - start, chunk) for _, tokens in running]
        if (len(running), sum(decoded)) != (span.rollouts, span.tokens):
            return []
        context = sum(
            n * (run.prompt_tokens([rollout]) + start) + n * (n - 1) / 2
            for (rollout, _), n in zip(running, decoded, strict=True)
        )
        amounts = {
            "decode_token_s": max(decoded),
            "decode_rollout_s": span.tokens,
            "decode_context_s": context,
            "round_s": float(start > 0),
        }
        if start == 0:
            amounts["prefill_call_s"] = 1
            amounts["prefill_token_s"] = run.prompt_tokens([rollout for rollout, _ in running])
        rows.append(Row(step.step, span.end_s - span.start_s, amounts))
    return rows


def _plain_rounds(run: Recorded, lanes: Mapping[str, list[Span]]) -> Iterator[Row]:
    """Rounds that follow another one at once: of one rollout, or all of it by each rollout."""
    for of_lane in lanes.values():
        for span in _continuing(run, of_lane):
            chunk = run.steps[span.step].chunk_tokens
            if chunk is None or not span.rollouts:
                continue
            iterations = span.tokens / span.rollouts
            if iterations == chunk or (span.rollouts == 1 and iterations < chunk):
                amounts = {
                    "decode_token_s": iterations,
                    "decode_rollout_s": span.tokens,
                    "round_s": 1.0,
                }
                yield Row(span.step, span.end_s - span.start_s, amounts)


def _continuing(run: Recorded, of_lane: Sequence[Span]) -> Iterator[Span]:
    """Spans that begin where the lane's last one ended, at a round's end: no rollout is new."""
    swapped = {span.end_s for span in run.of("sync")}  # there others may have joined
    ends: float | None = None
    for span in of_lane:
        if ends == span.start_s and ends not in swapped:
            yield span
        ends = span.end_s


def score_tasks(run: Recorded) -> Tasks:
    """Scores of whole responses; of chunks, those that only go on with rows that are open."""
    spans = run.of("score")
    row_of = _part_row(run) if run.scoring == "chunk" else _whole_row(run)
    return Tasks([row for span in spans if (row := row_of(span)) is not None], len(spans))


def _whole_row(run: Recorded) -> Callable[[Span], Row | None]:
    """Scores with their prompts: known for a batch, and where all prompts are as long."""
    lengths = {run.prompt_tokens([rollout]) for step in run.steps for rollout in step.trained}

    def row_of(score: Span) -> Row | None:
        step = run.steps[score.step]
        if (score.rollouts, score.tokens) == (len(step.trained), sum(step.tokens)):
            prompts = run.prompt_tokens(step.trained)
        elif len(lengths) == 1:
            prompts = score.rollouts * next(iter(lengths))
        else:
            return None
        amounts = {
            "score_call_s": 1,
            "score_token_s": score.tokens + prompts,
            "score_response_s": score.rollouts,
        }
        return Row(score.step, score.end_s - score.start_s, amounts)

    return row_of


def _part_row(run: Recorded) -> Callable[[Span], Row | None]:
    """Scores of chunks of which none opens its row."""
    goes_on = _goes_on(run)

    def row_of(score: Span) -> Row | None:
        amounts = {"score_call_s": 1, "score_token_s": score.tokens}
        seconds = score.end_s - score.start_s
        return Row(score.step, seconds, amounts) if goes_on(score) else None

    return row_of


def _goes_on(run: Recorded) -> Callable[[Span], bool]:
    """Whether a score reads only decode spans in which no rollout was new."""
    lanes: dict[str, list[Span]] = defaultdict(list)
    for span in run.of("decode"):
        lanes[span.lane].append(span)
    ends, known = {}, {}
    for lane, of_lane in lanes.items():
        of_lane.sort(key=lambda span: span.end_s)
        ends[lane] = [span.end_s for span in of_lane]
        known[lane] = {span.end_s for span in _continuing(run, of_lane)}

    def goes_on(score: Span) -> bool:
        for lane, at_s in score.reads:
            place = bisect_left(ends.get(lane, []), at_s)
            if place == len(ends.get(lane, [])) or ends[lane][place] not in known[lane]:
                return False
        return bool(score.reads)

    return goes_on


def train_tasks(run: Recorded) -> Tasks:
    """Updates on the batch that the step's record has."""
    spans = run.of("train")
    rows = []
    for span in spans:
        step = run.steps[span.step]
        if (span.rollouts, span.tokens) == (len(step.trained), sum(step.tokens)):
            amounts = {
                "train_call_s": 1.0,
                "train_token_s": span.tokens + run.prompt_tokens(step.trained),
                "train_sequence_s": span.rollouts,
            }
            rows.append(Row(span.step, span.end_s - span.start_s, amounts))
    return Tasks(rows, len(spans))


def sync_tasks(run: Recorded) -> Tasks:
    spans = run.of("sync")
    rows = [Row(span.step, span.end_s - span.start_s, {"sync_call_s": 1.0}) for span in spans]
    return Tasks(rows, len(rows))


def _natural(name: str) -> list[tuple[int, str]]:
    """Lanes as they are numbered: actor2 before actor10."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]

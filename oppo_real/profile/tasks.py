"""Each task by itself: rows of a cost table, measured on a scenario's own lanes."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from oppo_real.profile.lanes import Subjects
from oppo_real.profile.plan import TINY, Plan
from oppo_real.profile.timing import Budget, Timing, steady
from oppo_real.profile.work import Decoding, Scoring, Training
from oppo_sim.costs.measurements import LEAST_S, Row

ITERATIONS = 10  # of decode at a context, at least


def decode_rows(on: Subjects, plan: Plan, budget: Budget) -> Iterator[tuple[Row, Timing]]:
    """Iterations over batch and context, prefills of these contexts, and pauses."""
    points = plan.decoding
    for left, (rows, context) in zip(range(len(points), 0, -1), points, strict=True):
        decoding = Decoding(on, rows, context)
        prefilled = steady(decoding.join, 1.0, least=3 if context == plan.contexts[0] else 1)
        tokens = rows * (context - 1)  # the last one is pending
        yield Row("prefill", rows, 0, tokens, prefilled.seconds), prefilled
        found = steady(decoding.once, budget.share(left), warm_up=2, least=ITERATIONS)
        held = round(rows * fmean(decoding.seen))
        yield Row("decode", rows, held, rows, found.seconds), found
        decoding.pause()
        paused = steady(decoding.pause, 1.0, warm_up=0, most=5)
        yield Row("pause", rows, rows * decoding.context, rows, paused.seconds), paused
        decoding.leave()


def score_rows(on: Subjects, plan: Plan, budget: Budget) -> Iterator[tuple[Row, Timing]]:
    """Calls that open rows, over rows and width; calls that go on, over context as well."""
    points = [(rows, width, 0) for rows, width in plan.opening] + plan.going_on
    for left, (rows, tokens, context) in zip(range(len(points), 0, -1), points, strict=True):
        scoring = Scoring(on, rows, tokens, context, plan.longest)
        found = steady(scoring.once, budget.share(left, 3.0), most=12)
        scoring.drop()
        before = round(rows * fmean(scoring.seen))
        yield Row("score", rows, before, rows * tokens, found.seconds), found


def train_rows(on: Subjects, plan: Plan, budget: Budget) -> Iterator[tuple[Row, Timing]]:
    """What an update costs for each micro-batch, over its width, and what besides.

    Rows of next to no tokens tell the two apart: in one micro-batch, and in as many as a batch has.
    """
    rows, minis = plan.micro_rows, plan.minis

    def update(rows: int, width: int, is_one: bool, share_s: float) -> Timing:
        training = Training(on, rows, width, is_one)
        return steady(training.once, share_s, most=10)

    def timed(width: int, share_s: float) -> Timing:
        return update(rows * minis, width, minis == 1, share_s)

    one = timed(TINY, budget.share(8))
    whole = update(plan.batch, TINY, False, budget.share(7))
    more = max(1, plan.batch // minis // rows) - 1  # micro-batches beyond the first, per mini-batch
    each_s = max(0.0, (whole.seconds - one.seconds) / (more * minis)) if more else 0.0
    rest_s = max(LEAST_S, one.seconds - each_s * minis)
    if more:
        yield Row("update", 1, 0, 0, rest_s), one
    else:
        rest_s = 0.0
    widths = [TINY, *plan.widths]
    for left, width in zip(range(len(widths), 0, -1), widths, strict=True):
        found = one if width == TINY else timed(width, budget.share(left))
        seconds = max(LEAST_S, (found.seconds - rest_s) / minis)
        yield Row("train", rows, 0, rows * width, seconds), found

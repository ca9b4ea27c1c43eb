"""Each task by itself: rows of a cost table, measured on a scenario's own lanes.

A `Group` is what one kind of task is measured at. Its visits are made in every pass over all
groups, so that what the machine does for some seconds does not fall on one point alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from oppo_real.profile.lanes import Subjects
from oppo_real.profile.plan import TINY, Plan
from oppo_real.profile.timing import Series, Timing
from oppo_real.profile.work import Decoding, Scoring, Training
from oppo_sim.costs.measurements import LEAST_S, Row

ITERATIONS = 8  # of decode at a context in every pass, at least
Visit = Callable[[float], None]  # measures a point some times more, for about so many seconds


class Group(NamedTuple):
    """`rows()`: of all that was measured so far."""

    visits: Sequence[Visit]
    rows: Callable[[], list[tuple[Row, Timing]]]


def _group(points: Iterable[tuple[Visit, Sequence[Series]]]) -> Group:
    visits, series = zip(*points, strict=True)
    return Group(visits, lambda: [one.row() for some in series for one in some])


def decode_group(on: Subjects, plan: Plan) -> Group:
    """Iterations over batch and context, prefills of these contexts, and pauses."""
    return _group([_decode_point(on, rows, context) for rows, context in plan.decoding])


def _decode_point(on: Subjects, rows: int, context: int) -> tuple[Visit, Sequence[Series]]:
    decoding = Decoding(on, rows, context)
    tokens = rows * (context - 1)  # the last one is pending
    prefills = Series(lambda seconds: Row("prefill", rows, 0, tokens, seconds))
    pauses = Series(lambda seconds: Row("pause", rows, rows * context, rows, seconds))
    iterations = Series(
        lambda seconds: Row("decode", rows, round(rows * fmean(decoding.seen)), rows, seconds)
    )

    def visit(share_s: float) -> None:
        if not prefills:
            decoding.join()
            decoding.pause()
        prefills.add(decoding.join())
        pauses.add(decoding.pause())
        decoding.once()
        decoding.seen.clear()
        iterations.repeat(decoding.once, share_s, least=ITERATIONS)
        decoding.leave()

    return visit, (prefills, iterations, pauses)


def score_group(on: Subjects, plan: Plan) -> Group:
    """Calls that open rows, over rows and width; calls that go on, over context as well."""
    points = [(rows, width, 0) for rows, width in plan.opening] + plan.going_on
    return _group([_score_point(on, plan, *point) for point in points])


def _score_point(
    on: Subjects, plan: Plan, rows: int, tokens: int, context: int
) -> tuple[Visit, Sequence[Series]]:
    scoring = Scoring(on, rows, tokens, context, plan.longest)
    calls = Series(
        lambda seconds: Row(
            "score", rows, round(rows * fmean(scoring.seen)), rows * tokens, seconds
        )
    )

    def visit(share_s: float) -> None:
        if not calls:
            scoring.once()
            scoring.seen.clear()
        calls.repeat(scoring.once, share_s)
        scoring.drop()

    return visit, (calls,)


def train_group(on: Subjects, plan: Plan) -> Group:
    """What an update costs for each micro-batch, over its width, and what besides.

    Rows of next to no tokens tell the two apart: in one micro-batch, and in as many as a batch has.
    """
    rows, minis = plan.micro_rows, plan.minis
    more = max(1, plan.batch // minis // rows) - 1  # micro-batches beyond the first, per mini-batch
    updates = {
        width: _update(on, rows * minis, width, minis == 1) for width in [TINY, *plan.widths]
    }
    whole = _update(on, plan.batch, TINY, False)

    def found() -> list[tuple[Row, Timing]]:
        one = updates[TINY][1].timing
        rest_s, made = 0.0, []
        if more:
            each_s = max(0.0, (whole[1].timing.seconds - one.seconds) / (more * minis))
            rest_s = max(LEAST_S, one.seconds - each_s * minis)
            made.append((Row("update", 1, 0, 0, rest_s), one))
        for width, (_, series) in updates.items():
            seconds = max(LEAST_S, (series.timing.seconds - rest_s) / minis)
            made.append((Row("train", rows, 0, rows * width, seconds), series.timing))
        return made

    return Group([visit for visit, _ in (*updates.values(), whole)], found)


def _update(on: Subjects, rows: int, width: int, is_one: bool) -> tuple[Visit, Series]:
    training, updates = Training(on, rows, width, is_one), Series()

    def visit(share_s: float) -> None:
        if not updates:
            training.once()
        updates.repeat(training.once, share_s)

    return visit, updates

"""What runs side by side: two lanes on threads of their own, each timed while the other works."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

import torch

from oppo_real.profile.lanes import Subjects
from oppo_real.profile.plan import Plan
from oppo_real.profile.tasks import Group, Visit
from oppo_real.profile.timing import Series, Timing
from oppo_real.profile.work import Decoding, Scoring, Training
from oppo_sim.costs.measurements import Row

LEAST = 3  # times of each in every pass


class Work:
    """One kind of work, over and over: `once()` is timed where it was beside the other's."""

    def __init__(self, once: Callable[[], float], threads: int) -> None:
        self.once, self.threads = once, threads
        self.spans: list[tuple[float, float, float]] = []  # begin, end, timed seconds
        self.error: Exception | None = None

    def run(self, begin: threading.Barrier, over: threading.Event) -> None:
        torch.get_num_threads()  # a thread's first use of torch takes the number set last
        torch.set_num_threads(self.threads)
        try:
            self.once()
            begin.wait()
            while not over.is_set():
                begin_s = time.perf_counter()
                seconds = self.once()
                self.spans.append((begin_s, time.perf_counter(), seconds))
        except threading.BrokenBarrierError:
            return  # the other failed, and says why
        except Exception as error:
            self.error = error
            begin.abort()
            over.set()


def side_by_side(one: Work, other: Work, seconds: float) -> tuple[list[float], list[float]]:
    """Both for that long, and until each was timed some times beside the other: their times."""
    begin, over = threading.Barrier(3), threading.Event()
    threads = [
        threading.Thread(target=w.run, args=(begin, over), daemon=True) for w in (one, other)
    ]
    for thread in threads:
        thread.start()
    try:
        begin.wait()
        end_s = time.perf_counter() + seconds
        while not over.wait(0.02):
            if time.perf_counter() > end_s and min(len(one.spans), len(other.spans)) >= LEAST:
                break
    except threading.BrokenBarrierError:
        pass
    over.set()
    for thread in threads:
        thread.join()
    for work in (one, other):
        if work.error is not None:
            raise work.error
    return _while(one, other), _while(other, one)


def _while(one: Work, other: Work) -> list[float]:
    """Of what began and ended while the other worked."""
    first, last = other.spans[0][0], other.spans[-1][1]
    inside = [s for begin, end, s in one.spans if begin >= first and end <= last]
    return inside or [s for *_, s in one.spans]


class Side(NamedTuple):
    """One of two kinds of work."""

    kind: str
    once: Callable[[], float]
    threads: int
    row: Callable[[float], Row]  # of its seconds beside the other
    close: Callable[[], None]


def beside_group(on: Subjects, plan: Plan, alone: Mapping[str, int]) -> Group:
    """Decoding beside scoring; each beside an update where the trainer's devices let them; an actor
    lane beside another.

    `alone`: torch threads of a lane while the lanes that lend it theirs do not work; a trainer
    neither lends nor borrows.
    """
    own = {"actor": on.real.actor_threads, "scorer": on.real.scorer_threads}
    trainer = set(on.places["trainer"].devices)
    few = max(1, plan.batch // 4)
    pairs = [
        (("decode", plan.most), ("score", plan.batch)),
        (("decode", plan.batch), ("score", few)),
        (("decode", few), ("open", plan.batch)),  # whole responses: of a batch, of one
        (("decode", 1), ("open", 1)),
    ]
    if trainer.isdisjoint(on.places["actor"].devices):
        pairs.append((("decode", plan.batch), ("train", plan.batch)))
    if trainer.isdisjoint(on.places["scorer"].devices):
        pairs += [
            (("score", few), ("train", plan.batch)),
            (("open", plan.batch), ("train", plan.batch)),
        ]
    if on.others:
        half = max(1, plan.batch // 2)
        pairs.append((("decode", half), ("also", half)))
    visits: list[Visit] = []
    series: list[Series] = []
    for pair in pairs:
        threads = {**alone, **({} if "train" in dict(pair) else own)}
        one, other = (_side(on, plan, threads, kind, rows) for kind, rows in pair)
        both = _series(one, other), _series(other, one)
        visits.append(_visit(one, other, both))
        series += both

    def rows() -> list[tuple[Row, Timing]]:
        return [times.row() for times in series]

    return Group(visits, rows)


def _series(one: Side, beside: Side) -> Series:
    return Series(lambda seconds: one.row(seconds)._replace(task=f"{one.kind}+{beside.kind}"))


def _visit(one: Side, other: Side, series: Sequence[Series]) -> Visit:
    def visit(share_s: float) -> None:
        left, right = (Work(side.once, side.threads) for side in (one, other))
        for times, found in zip(series, side_by_side(left, right, share_s), strict=True):
            times.add(found)
        for side in (one, other):
            side.close()

    return visit


def _side(on: Subjects, plan: Plan, threads: Mapping[str, int], kind: str, rows: int) -> Side:
    middle = (plan.prompt + plan.longest) // 2
    if kind in ("decode", "also"):  # on another lane
        decoding = Decoding(on, rows, middle, None if kind == "decode" else on.others[0])

        def decoded(seconds: float) -> Row:
            return Row("decode", rows, round(rows * fmean(decoding.seen)), rows, seconds)

        return Side("decode", decoding.once, threads["actor"], decoded, decoding.leave)
    if kind == "train":
        rows = plan.micro_rows * plan.minis
        training = Training(on, rows, middle, plan.minis == 1)

        def trained(seconds: float) -> Row:
            return Row(kind, rows, 0, rows * middle, seconds)

        return Side(kind, training.once, threads["trainer"], trained, lambda: None)
    chunk = max(plan.chunks, default=max(1, (plan.longest - plan.prompt) // 4))
    tokens, context = (middle, 0) if kind == "open" else (chunk, plan.prompt + chunk)
    scoring = Scoring(on, rows, tokens, context, plan.longest)

    def scored(seconds: float) -> Row:
        return Row("score", rows, round(rows * fmean(scoring.seen)), rows * tokens, seconds)

    return Side("score", scoring.once, threads["scorer"], scored, scoring.drop)

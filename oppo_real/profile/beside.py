"""What runs side by side: two lanes on threads of their own, each timed while the other works."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from statistics import fmean
from typing import NamedTuple

import torch

from oppo_real.profile.lanes import Subjects
from oppo_real.profile.plan import Plan
from oppo_real.profile.timing import Budget, Timing, timing
from oppo_real.profile.work import Decoding, Scoring, Training
from oppo_sim.costs.measurements import Row

LEAST = 4  # times of each


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


def side_by_side(one: Work, other: Work, seconds: float) -> tuple[Timing, Timing]:
    """Both for that long, and until each was timed some times beside the other."""
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


def _while(one: Work, other: Work) -> Timing:
    """Of what began and ended while the other worked."""
    first, last = other.spans[0][0], other.spans[-1][1]
    inside = [s for begin, end, s in one.spans if begin >= first and end <= last]
    return timing(inside or [s for *_, s in one.spans])


class Side(NamedTuple):
    """One of two kinds of work."""

    kind: str
    rows: int
    work: Work
    row: Callable[[float], Row]  # of its seconds beside the other
    close: Callable[[], None]


def beside_rows(
    on: Subjects, plan: Plan, alone: Mapping[str, int], budget: Budget
) -> Iterator[tuple[Row, Timing]]:
    """Decoding beside scoring; each beside an update where the trainer's devices let them.

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
        pairs.append((("score", few), ("train", plan.batch)))
    for left, pair in zip(range(len(pairs), 0, -1), pairs, strict=True):
        threads = {**alone, **({} if "train" in dict(pair) else own)}
        one, other = (_side(on, plan, threads, kind, rows) for kind, rows in pair)
        found = side_by_side(one.work, other.work, budget.share(left, 8.0))
        for side, beside, timed in ((one, other, found[0]), (other, one, found[1])):
            side.close()
            row = side.row(timed.seconds)
            yield row._replace(task=f"{side.kind}+{beside.kind}"), timed


def _side(on: Subjects, plan: Plan, threads: Mapping[str, int], kind: str, rows: int) -> Side:
    middle = (plan.prompt + plan.longest) // 2
    if kind == "decode":
        decoding = Decoding(on, rows, middle)
        decoding.join()
        work = Work(decoding.once, threads["actor"])

        def decoded(seconds: float) -> Row:
            return Row(kind, rows, round(rows * fmean(decoding.seen)), rows, seconds)

        return Side(kind, rows, work, decoded, decoding.leave)
    if kind == "train":
        rows = plan.micro_rows * plan.minis
        training = Training(on, rows, middle, plan.minis == 1)
        work = Work(training.once, threads["trainer"])

        def trained(seconds: float) -> Row:
            return Row(kind, rows, 0, rows * middle, seconds)

        return Side(kind, rows, work, trained, lambda: None)
    chunk = max(plan.chunks, default=max(1, (plan.longest - plan.prompt) // 4))
    tokens, context = (middle, 0) if kind == "open" else (chunk, plan.prompt + chunk)
    scoring = Scoring(on, rows, tokens, context, plan.longest)
    work = Work(scoring.once, threads["scorer"])

    def scored(seconds: float) -> Row:
        return Row("score", rows, round(rows * fmean(scoring.seen)), rows * tokens, seconds)

    return Side("score", rows, work, scored, scoring.drop)

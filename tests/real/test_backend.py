"""The torch backend keeps the contract: any schedule, on one thread or on several."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oppo_sim.engine import EngineError, Limits, run
from oppo_sim.engine.contract import Entry, Finished, Generate, Lane
from oppo_sim.policies import CATALOG, Schedule
from tests.engine.test_replay import assert_decisions_replay
from tests.engine.test_two_machines import schedules, small
from tests.real.fakes import Bench, reward
from tests.simulator.lab import CAP, PROMPT_CAP, Run, Work, room
from tests.simulator.ledger import Ledger, prefilled_again

WORK = Work([5, 12, 30, 7, 55, 1, 18, 9, 24, 3, 13])
HOSTS = ("inline", "threads")


def played(schedule: Schedule, lanes: list[Lane], host: str, work: Work = WORK) -> Run:
    bench = Bench(lanes, host, work)
    limits, log = Limits(PROMPT_CAP, CAP), list[Entry]()

    def listen(entry: Entry) -> None:
        log.append(entry)
        assert len(log) < 6000, f"it gets nowhere: {log[-8:]}"

    with bench.backend as backend:
        records = list(run(backend, schedule, limits, 6, listen))
    trained = [rollout for record in records for rollout in record.trained]
    assert bench.trainer.trained == trained
    assert [update for update, _ in bench.stats] == list(range(6))
    assert not set(trained) & set(bench.store.rows), "trained rollouts are forgotten"
    for record in records:
        for rollout, tokens, got in zip(record.trained, record.tokens, record.rewards, strict=True):
            assert tokens == work.response_tokens(rollout)
            assert got == reward(rollout, tokens)
    return Run(schedule, lanes, limits, records, log)


def keeps_the_contract(run: Run) -> None:
    """What any machine's log shows: a second bookkeeper agrees, and so do the decisions."""
    book = Ledger(run.log)
    last = run.records[-1]
    assert book.admitted == last.admitted
    assert len(book.dropped) == last.dropped
    least, most = prefilled_again(run.log)
    assert least <= sum(record.reprefilled_tokens for record in run.records) <= most
    assert_decisions_replay(run)
    stamps = [entry.at_s for entry in run.log if hasattr(entry, "at_s")]
    assert stamps == sorted(stamps)


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("name", CATALOG)
@pytest.mark.parametrize("trainer", ["own", "actors"])
def test_every_schedule_of_the_catalogue_runs(name: str, host: str, trainer: Any) -> None:
    keeps_the_contract(played(small(name), room(2, trainer=trainer), host))


@settings(max_examples=60, deadline=None)
@given(
    schedule=schedules(),
    host=st.sampled_from(HOSTS),
    trainer=st.sampled_from(["own", "actors"]),
    scoring=st.sampled_from(["own", "actors"]),
    kv_tokens=st.sampled_from([None, 200]),
)
def test_any_schedule_runs(
    schedule: Schedule, host: str, trainer: Any, scoring: Any, kv_tokens: int | None
) -> None:
    lanes = room(2, trainer=trainer, scoring=scoring, kv_tokens=kv_tokens)
    keeps_the_contract(played(schedule, lanes, host))


@pytest.mark.parametrize("name", CATALOG)
def test_one_thread_makes_the_same_run_every_time(name: str) -> None:
    """Stamps apart, the log is the same."""

    def timeless(entry: Entry) -> Any:
        return [value for value in entry if not isinstance(value, float)]

    one, other = (played(small(name), room(2), "inline") for _ in range(2))
    assert [timeless(e) for e in one.log] == [timeless(e) for e in other.log]


def test_a_batch_closes_at_its_last_token() -> None:
    """Two of three finish at token 2; the third has two tokens then, not some more."""
    schedule = Schedule(name="hand", batch=2, overcommit=1, stop="taken")
    work = Work([40, 2, 2], prompts=(1,))
    run = played(schedule, room(1), "threads", work)
    assert run.records[0].trained == (1, 2)
    assert run.records[0].carried_tokens == 2


# what goes wrong


@contextmanager
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("host", HOSTS)
def test_a_lane_that_fails_says_what_it_did_and_for_whom(host: str) -> None:
    with no_thread_is_left():
        bench = Bench(room(1), host, WORK)

        def broken(chunks: object) -> Any:
            raise FloatingPointError("reward is nan")

        bench.scorers["scorer0"].score = broken  # type: ignore[method-assign]
        with (
            bench.backend as backend,
            pytest.raises(
                EngineError, match=r"Score failed on lane scorer0.*rollouts.*reward is nan"
            ),
        ):
            list(run(backend, small("trl"), Limits(PROMPT_CAP, CAP), 2))


def test_an_idle_machine_says_so() -> None:
    with (
        Bench(room(1), "threads", WORK).backend as backend,
        pytest.raises(EngineError, match="nothing"),
    ):
        backend.wait()


def test_threads_end_with_the_backend() -> None:
    with no_thread_is_left():
        bench = Bench(room(2), "threads", WORK)
        with bench.backend as backend:
            backend.submit(Generate("actor0", ((0, 0), (1, 0)), CAP, None))
            assert isinstance(backend.wait()[0], Finished)

"""The study of a search in a database, which any number of processes may share."""

from __future__ import annotations

import hashlib
import json
import time
import warnings

import optuna
from optuna.exceptions import ExperimentalWarning, OptunaError
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.study import Study
from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import IntegrityError, OperationalError, SQLAlchemyError

from oppo_sim.search.sought import Search

HEARTBEAT_S = 2
GRACE_S = 10  # without a heartbeat: the process is dead, and its trial is anybody's
OPENINGS, OPENING_S = 10, 0.5  # tries, and seconds between them
LOCKED_S = 60  # that a statement waits for another process, and after which no other try is made


def open_study(search: Search, url: str) -> Study:
    """The study of this search in a database, which any number of processes may share."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    header = json.dumps(search.header(), sort_keys=True, default=str)
    digest = hashlib.sha256(header.encode()).hexdigest()[:12]
    name = f"{search.space.problem.document['name']}-{digest}"
    until_s = time.monotonic() + LOCKED_S
    for left in reversed(range(OPENINGS)):
        try:
            return _opened(url, name, len(search.goals.objectives))
        except (SQLAlchemyError, OptunaError, ImportError, ValueError, RuntimeError) as error:
            is_race = isinstance(error, OperationalError | IntegrityError)
            if is_race and left and time.monotonic() < until_s:
                time.sleep(OPENING_S)  # another process may be making the tables
                continue
            said = database_error(error) or str(error).splitlines()[0]
            raise ValueError(
                f"--storage {url}: cannot be used: {said}; give a URL such as sqlite:///search.db"
            ) from None
    raise AssertionError


def database_error(error: BaseException) -> str | None:
    """What the database said, in one line, where that is why something was raised.

    Optuna reads on where a trial could not be written, and may fail by what it did not read.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, SQLAlchemyError):
        cause = cause.__cause__ or cause.__context__
    return None if cause is None else str(cause).splitlines()[0]


def _opened(url: str, name: str, objectives: int) -> Study:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        storage = RDBStorage(
            url,
            heartbeat_interval=HEARTBEAT_S,
            grace_period=GRACE_S,
            heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(),
            engine_kwargs={"connect_args": {"timeout": LOCKED_S}} if "sqlite" in url else None,
        )
    if storage.engine.dialect.name == "sqlite" and storage.engine.url.database:
        _lock_at_once(storage.engine)
    return optuna.create_study(
        study_name=name,
        storage=storage,
        directions=["minimize"] * objectives,
        load_if_exists=True,
    )


def _lock_at_once(engine: Engine) -> None:
    """Every transaction has the file for itself, from its first statement on.

    SQLite locks no rows: two processes that both read that a trial waits would both take it.
    """

    @event.listens_for(engine, "connect")
    def no_begin_of_its_own(connection: Connection, _: object) -> None:
        connection.isolation_level = None  # type: ignore[attr-defined]

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    engine.dispose()  # connections that know nothing of it

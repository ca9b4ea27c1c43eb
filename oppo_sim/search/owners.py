"""Which trials of a study are in nobody's hands: those of processes of this machine that ended."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from optuna.exceptions import UpdateFinishedTrialError
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

OWNER = "owner"  # attribute of a trial
ORPHAN_S = 10.0  # a trial that nobody has signed so long was begun by a process that died at once


def here() -> str:
    """This machine, or container: process numbers mean the same in it."""
    space = Path("/proc/self/ns/pid")
    number = space.stat().st_ino if space.exists() else 0
    return f"{socket.gethostname()} {number}"


def signature() -> str:
    return f"{here()} {os.getpid()}"


class Orphans:
    """Gives up what dead processes were at, so that it is begun again.

    What other machines were at is found by the heartbeats of the study.
    """

    def __init__(self, study: Study) -> None:
        self._study = study
        self._first_seen_s: dict[int, float] = {}  # by the number of an unsigned trial

    def give_up(self) -> list[FrozenTrial]:
        """Those that this call gave up: each only once, whichever process sees it first."""
        running = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        return [trial for trial in running if self._is_orphan(trial) and self._failed(trial)]

    def _is_orphan(self, trial: FrozenTrial) -> bool:
        owner = trial.user_attrs.get(OWNER)
        if owner is None:
            since_s = self._first_seen_s.setdefault(trial.number, time.monotonic())
            return time.monotonic() - since_s > ORPHAN_S
        place, _, process = owner.rpartition(" ")
        return place == here() and not _is_alive(int(process))

    def _failed(self, trial: FrozenTrial) -> bool:
        try:
            self._study.tell(trial.number, state=TrialState.FAIL)
        except (UpdateFinishedTrialError, ValueError):
            return False
        return True


def _is_alive(process: int) -> bool:
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True

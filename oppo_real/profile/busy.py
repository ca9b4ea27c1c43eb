"""What disturbs a timing: how much of the machine others take, and how slow its cores are.

Other processes are seen in the system's own account, other virtual machines as far as the host
tells. That cores are slower than they were - hot, throttled, or shared - is in no account: a little
work that is always the same, timed in CPU seconds, tells.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from statistics import fmean

STAT = Path("/proc/stat")
EVERY_S = 0.25
LOOPS = 40_000  # about a millisecond


class Busy:
    """What the machine's cores do, from now on; `close` it, or use it in a `with`."""

    def __init__(self) -> None:
        self._began = self._now()
        self._probes: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="oppo-busy", daemon=True)
        self._thread.start()

    def __enter__(self) -> Busy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def elsewhere(self) -> float:
        """The share of all cores that others took; 0 where the system does not tell."""
        wall, own, all_of_it = (b - a for a, b in zip(self._began, self._now(), strict=True))
        return max(0.0, all_of_it - own) / (wall * (os.cpu_count() or 1))

    def probe_s(self) -> float:
        """Mean CPU seconds of the little work since the beginning."""
        return fmean(self._probes or [probe()])

    def _watch(self) -> None:
        while not self._over.wait(EVERY_S):
            self._probes.append(probe())

    def _now(self) -> tuple[float, float, float]:
        return time.monotonic(), time.process_time(), busy_s()


def probe() -> float:
    """CPU seconds of this thread for a little work: waiting for a core does not count."""
    begin_s = time.thread_time()
    total = 0
    for number in range(LOOPS):
        total += number
    return time.thread_time() - begin_s


def busy_s() -> float:
    """CPU seconds that the whole machine has worked, or its host has kept for itself and for other
    virtual machines; 0 where the system does not tell."""
    try:
        ticks = STAT.read_text().split("\n", 1)[0].split()[1:]
    except OSError:
        return 0.0
    user, nice, system, _, _, irq, softirq, stolen, *_ = map(int, ticks)
    return (user + nice + system + irq + softirq + stolen) / os.sysconf("SC_CLK_TCK")

"""How much of the machine other processes take while something is timed."""

from __future__ import annotations

import os
import time
from pathlib import Path


class Busy:
    """What the machine's cores do, from now on."""

    def __init__(self) -> None:
        self._began = self._now()

    def elsewhere(self) -> float:
        """The share of all cores that other processes took; 0 where the system does not tell."""
        wall, own, all_of_it = (b - a for a, b in zip(self._began, self._now(), strict=True))
        return max(0.0, all_of_it - own) / (wall * (os.cpu_count() or 1))

    def _now(self) -> tuple[float, float, float]:
        return time.monotonic(), time.process_time(), busy_s()


def busy_s() -> float:
    """CPU seconds that the whole machine has worked; 0 where the system does not tell."""
    try:
        ticks = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    except OSError:
        return 0.0
    user, nice, system, _, _, irq, softirq, *_ = map(int, ticks)
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")

"""What becomes of memory that lanes free: it is kept, for they soon ask for as much again."""

from __future__ import annotations

import ctypes
import os

TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8  # of glibc's malloc.h
MOST_TRIM, MOST_MMAP = 2**31 - 1, 32 * 2**20  # bytes, the most that it takes


def keep_freed() -> bool:
    """Ask glibc for one arena that gives nothing back before 2 GiB are free; whether it does.

    By default every lane's thread has an arena that returns large blocks at once, and the next call
    faults their pages in anew: a tenth of the time of a score on a CPU. Where there is no glibc, or
    the user has set MALLOC_... variables, nothing changes.
    """
    if any(name.startswith("MALLOC_") for name in os.environ):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    settings = ((ARENA_MAX, 1), (TRIM_THRESHOLD, MOST_TRIM), (MMAP_THRESHOLD, MOST_MMAP))
    return [mallopt(*setting) for setting in settings] == [1] * len(settings)

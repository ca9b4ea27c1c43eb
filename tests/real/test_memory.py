"""Freed memory is kept: a lane that asks for as much again gets it without a page fault."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

PAGES = (24 << 20) // os.sysconf("SC_PAGE_SIZE")
SCRIPT = """
import resource, threading
import torch
from oppo_real.machine.memory import keep_freed

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.empty(6 << 20).fill_(1.0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(keep_freed())
for lane in range(2):
    thread = threading.Thread(target=lambda: print(faults()))
    thread.start()
    thread.join()
"""


def said(**variables: str) -> list[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(
        command, env=clean | variables, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="asks glibc")
def test_a_second_lane_gets_what_the_first_has_freed() -> None:
    kept, _, second = said()
    assert kept == "True"
    assert int(second) < PAGES / 10


def test_what_a_user_has_set_stays() -> None:
    assert said(MALLOC_ARENA_MAX="2")[0] == "False"

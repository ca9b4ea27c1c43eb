"""Is the simulator slower than it was? `make bench` asks; the suite does not collect this file."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import pytest

from oppo_sim.analysis.bench import bare_timeouts
from tests.bench import baseline
from tests.bench.workloads import WORKLOADS

ROUNDS = 7


def cpu_s(work: Callable[[], None]) -> float:
    began = process_time()
    work()
    return process_time() - began


@pytest.mark.benchmark(timer=process_time)
@pytest.mark.parametrize("name", WORKLOADS)
def test_speed(name: str, benchmark: Any, tmp_path: Path) -> None:
    yards: list[float] = []
    numbers = itertools.count()

    def prepared() -> tuple[tuple[Path], dict[str, Any]]:
        """Timeouts right before each round, so that a slower minute of the machine hits both."""
        yards.append(cpu_s(bare_timeouts))
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        return (folder,), {}

    benchmark.pedantic(WORKLOADS[name], setup=prepared, rounds=ROUNDS, warmup_rounds=1)
    assert benchmark.stats is not None, "nothing was timed: add --benchmark-enable"
    times = benchmark.stats.stats.data
    ratio = median(t / yard for t, yard in zip(times, yards[-len(times) :], strict=True))
    before = baseline.ratios().get(name)
    said = "not in the baseline" if before is None else baseline.verdict(ratio, before)
    benchmark.extra_info.update(workload=name, ratio=ratio, said=said)
    assert before is None or baseline.change(ratio, before) <= baseline.BAND, f"{name}: {said}"

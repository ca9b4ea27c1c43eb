"""What `make bench` prints: a ratio and a verdict for each workload."""

from typing import Any


def pytest_terminal_summary(terminalreporter: Any, config: Any) -> None:
    session = getattr(config, "_benchmarksession", None)
    timed = [one.extra_info for one in getattr(session, "benchmarks", ()) if one.extra_info]
    if timed:
        terminalreporter.section("CPU time over that of 200,000 bare SimPy timeouts")
    for one in timed:
        terminalreporter.line(f"{one['workload']:<22}{one['ratio']:8.2f}   {one['said']}")

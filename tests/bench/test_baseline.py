"""What the benchmark says of a ratio, by hand; and its baseline is of what it times."""

import json
from pathlib import Path

import pytest

from tests.bench import baseline
from tests.bench.workloads import WORKLOADS


def test_the_baseline_has_what_is_timed_and_says_where_it_is_from() -> None:
    held = json.loads(baseline.FILE.read_text())
    assert held["ratios"].keys() == WORKLOADS.keys()
    assert min(held["ratios"].values()) > 0
    assert all(held[key] for key in ("unit", "machine", "python", "date"))


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        (2.0, "+0%, within 30%"),
        (2.5, "+25%, within 30%"),
        (2.8, "SLOWER than the baseline by 40%"),
        (1.0, "faster than the baseline by 50%: look again (tests/bench/baseline.py)"),
    ],
)
def test_a_ratio_is_judged_by_its_change(ratio: float, said: str) -> None:
    assert baseline.verdict(ratio, 2.0) == said


def test_a_report_becomes_a_baseline() -> None:
    report = {
        "machine_info": {
            "cpu": {"brand_raw": "A chip", "count": 2},
            "python_implementation": "CPython",
            "python_version": "3.11.7",
        },
        "datetime": "2026-01-02T03:04:05+00:00",
        "benchmarks": [{"extra_info": {"workload": "trl", "ratio": 1.23456}}],
    }
    made = baseline.document(report)
    assert made["ratios"] == {"trl": 1.235}
    assert (made["machine"], made["python"], made["date"]) == (
        "A chip, 2 cores",
        "CPython 3.11.7",
        "2026-01-02",
    )


@pytest.mark.parametrize("name", WORKLOADS)
def test_what_is_timed_runs(name: str, tmp_path: Path) -> None:
    WORKLOADS[name](tmp_path)

"""How much work took when that was last looked at, in units of bare SimPy timeouts, and a verdict.

A ratio hardly depends on the machine; BAND is what is left of that, and of noise. To look again,
after a change that is meant to make something faster or slower:

python -m pytest -n 0 tests/bench/bench_sim.py --benchmark-enable --benchmark-json=report.json
python -m tests.bench.baseline report.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("baseline.json")
BAND = 0.30  # slower by more is worth a look


def ratios() -> dict[str, float]:
    """By workload: CPU seconds over those of 200,000 timeouts in the same rounds."""
    found: dict[str, float] = json.loads(FILE.read_text())["ratios"]
    return found


def change(ratio: float, before: float) -> float:
    """Above 0: slower than it was by this share."""
    return ratio / before - 1


def verdict(ratio: float, before: float) -> str:
    by = change(ratio, before)
    if by > BAND:
        return f"SLOWER than the baseline by {by:.0%}"
    if by < -BAND:
        return f"faster than the baseline by {-by:.0%}: look again (tests/bench/baseline.py)"
    return f"{by:+.0%}, within {BAND:.0%}"


def document(report: Mapping[str, Any]) -> dict[str, Any]:
    """The baseline of a report of pytest-benchmark."""
    machine = report["machine_info"]
    return {
        "unit": "CPU seconds of 200,000 bare SimPy timeouts, timed in the same rounds",
        "machine": f"{machine['cpu']['brand_raw']}, {machine['cpu']['count']} cores",
        "python": f"{machine['python_implementation']} {machine['python_version']}",
        "date": report["datetime"][:10],
        "ratios": {
            one["extra_info"]["workload"]: round(one["extra_info"]["ratio"], 3)
            for one in report["benchmarks"]
        },
    }


if __name__ == "__main__":
    (name,) = sys.argv[1:]
    FILE.write_text(json.dumps(document(json.loads(Path(name).read_text())), indent=2) + "\n")

"""The table of public logs in DESIGN.md is what the code gives."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from oppo_sim.calibration.laws import Law
from oppo_sim.calibration.logs import FittedLog
from oppo_sim.calibration.shipped import shipped_logs

DESIGN = (Path(__file__).parents[2] / "DESIGN.md").read_text()


@pytest.mark.parametrize("name", shipped_logs())
def test_the_errors_in_the_design_are_those_of_the_code(
    name: str, public: Callable[[str], FittedLog]
) -> None:
    (row,) = re.findall(rf"^\| `{re.escape(name)}` \|(.*)\|$", DESIGN, flags=re.MULTILINE)
    log = public(name)
    cells = [str(log.steps)]
    for stage in ("generation", "training"):
        law = log.law(stage)
        assert law is not None
        cells += _cells(law)
    assert [cell.strip() for cell in row.split("|")] == cells


def _cells(law: Law) -> list[str]:
    held = law.held_out
    shares = (held.median.value, held.null_error, held.floor)
    error, null, change = (f"{100 * share:.1f} %" for share in shares)
    return [error, f"{100 * held.signed.value:+.1f} %", null, change]

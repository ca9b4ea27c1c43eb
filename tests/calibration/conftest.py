"""Logs that are shipped, fitted once for all tests that look at them."""

from collections.abc import Callable

import pytest

from oppo_sim.calibration.logs import FittedLog, fit_log
from oppo_sim.calibration.shipped import shipped_log


@pytest.fixture(scope="session")
def public() -> Callable[[str], FittedLog]:
    """The fit of a shipped log, by its name."""
    known: dict[str, FittedLog] = {}

    def of(name: str) -> FittedLog:
        if name not in known:
            with shipped_log(name) as path:
                known[name] = fit_log(path)
        return known[name]

    return of

"""The range in which something was measured, and the one warning about leaving it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field


class ExtrapolationWarning(UserWarning):
    """A cost was asked for outside of what was measured."""


@dataclass
class Range:
    """What was measured of one quantity of a task; the warning names it, and comes once."""

    what: str  # "prefill: tokens in a call"
    least: float
    most: float
    beyond: str  # what is taken there
    table: str = "the table"
    is_left: bool = field(default=False, compare=False)

    def see(self, value: float) -> None:
        if not self.is_left and not self.least <= value <= self.most:
            self.leave()

    def leave(self) -> None:
        if self.is_left:
            return
        self.is_left = True
        span = f"{self.least:,.6g} to {self.most:,.6g}"
        span = f"only {self.least:,.6g}" if self.least == self.most else span
        warnings.warn(
            f"{self.table}: {self.what}: measured {span}, asked for others: {self.beyond}",
            ExtrapolationWarning,
            stacklevel=2,
        )

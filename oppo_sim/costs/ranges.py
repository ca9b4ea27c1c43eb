"""The range in which something was measured, and the one warning about leaving it."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Self


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

    @classmethod
    def of_tokens(cls, table: str, task: str, tokens: Collection[int]) -> Self:
        """Of the tokens in a call."""
        beyond = "fewer cost as the fewest, more go on with the last rise"
        return cls(f"{task}: tokens of a call", min(tokens), max(tokens), beyond, table)

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

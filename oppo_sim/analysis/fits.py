"""What was fitted to the paper's rows: every candidate that was tried, and which were accepted."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from importlib.resources import files
from math import isfinite
from typing import Any

import numpy as np

STAGES = ("chat", "gsm8k", "opencoder")
REGISTERED = "chat-rounds-of-500"  # the chat stage with the chunk that was registered first
LEAST, MOST = 0.1, 0.9  # quantiles: intervals are 80 %
WIDE = 2.0  # a factor between accepted values of a parameter that the rows leave open


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A length tail, the parameters that suit it best, and what the rows come to with them.

    worst: the largest relative error of the rows that the tail is fitted to; error: the root mean
    square over all rows fitted. late_share: of the deferred rollouts, those two or more steps late.
    decode_counts, wait_counts: what a device counts as utilised while it decodes, and while it has
    no rollout left before the batch is complete.
    """

    lengths: str
    max_response_tokens: int
    most: int  # largest overcommitment
    train_mfu: float
    prefill_mfu: float | None  # None: nothing is scored by a network
    decode_counts: float
    wait_counts: float
    worst: float
    error: float
    late_share: float
    accepted: bool
    values: Mapping[str, float] = field(default_factory=dict)  # by row


@dataclass(frozen=True)
class Fit:
    """All candidates of a stage."""

    stage: str
    candidates: tuple[Candidate, ...]

    @property
    def accepted(self) -> tuple[Candidate, ...]:
        return tuple([candidate for candidate in self.candidates if candidate.accepted])

    @property
    def shown(self) -> Candidate:
        """The accepted candidate whose rows are nearest to the medians over all accepted.

        Accepted ones meet their rows equally well, as far as these are known; the one with the
        least error would be picked by chance. ValueError where none was accepted.
        """
        if not self.accepted:
            raise ValueError(f"{self.stage}: no candidate meets its rows well enough")
        rows = sorted(set.intersection(*[set(c.values) for c in self.accepted]))
        values = np.array([[c.values[row] for row in rows] for c in self.accepted])
        off = np.abs(values / np.median(values, axis=0) - 1) if rows else values
        return self.accepted[int(np.argmin((off**2).sum(axis=1)))]

    def untold(self, free: Iterable[str]) -> tuple[str, ...]:
        """The free parameters that the rows do not tell: accepted values differ by over WIDE."""
        found = []
        for name in free:
            values = [value for c in self.accepted if (value := getattr(c, name)) is not None]
            if values and max(values) > WIDE * min(values):
                found.append(name)
        return tuple(found)

    def median(self, row: str) -> float | None:
        """Of the accepted candidates' values of a row."""
        found = [c.values[row] for c in self.accepted if row in c.values]
        return float(np.median(found)) if found else None

    def spread(self, row: str) -> tuple[float, float] | None:
        """80 % of the accepted candidates' values of a row; None where they have none."""
        found = [c.values[row] for c in self.accepted if row in c.values]
        if not found:
            return None
        low, high = np.quantile(found, (LEAST, MOST)).tolist()
        return low, high


def shipped_fits() -> dict[str, Fit]:
    """By stage, as they were fitted when the package was made."""
    return {stage: _shipped(stage) for stage in STAGES}


def registered_fit() -> Fit:
    """The chat stage with rounds of 500 tokens, as the protocol had it."""
    return _shipped(REGISTERED)


def _shipped(stage: str) -> Fit:
    file = files("oppo_sim") / "data" / "fits" / f"{stage}.csv"
    return read(stage, file.read_text("utf-8"))


def read(stage: str, text: str) -> Fit:
    """The inverse of `written`; ValueError names a bad cell."""
    lines = csv.DictReader(io.StringIO(text))
    return Fit(stage, tuple([_candidate(f"{stage}.csv", row) for row in lines]))


def rounded(candidate: Candidate) -> Candidate:
    """As it is read again after it was written, so that a fit that was stopped is the same fit."""
    return read("", written(Fit("", (candidate,)))).candidates[0]


def written(fit: Fit) -> str:
    """As a CSV, a candidate per line: the accepted ones first, by their error."""
    ordered = sorted(
        fit.candidates,
        key=lambda c: (not c.accepted, c.error, c.lengths, c.max_response_tokens, c.most),
    )
    rows = list(dict.fromkeys(row for c in ordered for row in c.values))
    table = io.StringIO()
    writer = csv.DictWriter(table, [*_OWN, *rows], lineterminator="\n")
    writer.writeheader()
    for candidate in ordered:
        own = {name: _cell(getattr(candidate, name)) for name in _OWN}
        writer.writerow({**own, **{row: _cell(v) for row, v in candidate.values.items()}})
    return table.getvalue()


_OWN = tuple([each.name for each in fields(Candidate) if each.name != "values"])


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else value


def _candidate(file: str, row: Mapping[str | None, Any]) -> Candidate:
    own: dict[str, Any] = {}
    values: dict[str, float] = {}
    for name, cell in row.items():  # None: a cell that is missing; the name of those too many
        try:
            if name in _OWN:
                own[name] = _READ.get(name, _number)(cell)
            elif name is None or cell is None:
                raise ValueError
            elif cell:
                values[name] = _number(cell)
        except (TypeError, ValueError, KeyError):
            raise ValueError(
                f"{file}: {name or 'a cell too many'} = {cell!r}: cannot be read"
            ) from None
    missing = [name for name in _OWN if name not in own]
    if missing:
        raise ValueError(f"{file}: has no column {missing[0]!r}")
    return Candidate(**own, values=values)


def _number(cell: str) -> float:
    number = float(cell)
    if not isfinite(number):
        raise ValueError
    return number


_READ: dict[str, Any] = {
    "lengths": str,
    "max_response_tokens": int,
    "most": int,
    "prefill_mfu": lambda cell: None if cell == "" else _number(cell),
    "accepted": lambda cell: {"yes": True, "no": False}[cell],
}

"""Which published rows are fitted, with what freedom, and which are held out: as data."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from oppo_sim.analysis.paper import PaperRow, paper_rows
from oppo_sim.workload.shipped import load, shipped
from oppo_sim.workload.tables import QuantileTable
from oppo_sim.workload.tail import generation_tokens, mean_and_longest

BATCH = 112
SCREEN_STEPS = 300
MOST_MFU = 1.0
PROMPT_TOKENS = 200  # of the chat scenarios, where tables have none
PARAMETERS = ("train_mfu", "prefill_mfu", "decode_counts", "wait_counts")


class Tail(NamedTuple):
    """A measured table of lengths, where responses are cut, and the largest overcommitment.

    most_mfu: the training efficiency per real token that it allows at most.
    """

    lengths: str
    max_response_tokens: int
    most: int
    most_mfu: float = MOST_MFU


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Rows that are fitted together.

    A tail is accepted by the rows of `fits`; those of `counts` only say what decoding and waiting
    count as utilised. What is not `free` keeps what the scenario, or the first stage, says.
    """

    name: str
    about: str
    scenarios: tuple[str, ...]
    fits: tuple[PaperRow, ...]
    counts: tuple[PaperRow, ...]
    holds_out: tuple[PaperRow, ...]
    free: tuple[str, ...]
    searched: Mapping[str, Any]  # how tails are found: see `tails`

    @property
    def fitted(self) -> tuple[PaperRow, ...]:
        return self.fits + self.counts


@dataclass(frozen=True, kw_only=True)
class Protocol:
    accepted_within: float
    late_share: float
    stages: tuple[Stage, ...]


def shipped_protocol() -> Protocol:
    """The one by which the paper's rows are calibrated."""
    text = (files("oppo_sim") / "data" / "protocol.toml").read_text("utf-8")
    return protocol(tomllib.loads(text), paper_rows())


def protocol(document: Mapping[str, Any], rows: Sequence[PaperRow]) -> Protocol:
    """ValueError where it names a row or parameter that there is not, or contradicts a role."""
    named = {row.id: row for row in rows}
    return Protocol(
        accepted_within=document["accepted_within"],
        late_share=document["late_share"],
        stages=tuple([_stage(stage, named) for stage in document["stage"]]),
    )


def _stage(document: Mapping[str, Any], rows: Mapping[str, PaperRow]) -> Stage:
    name = document["name"]

    def of_role(key: str, role: str) -> tuple[PaperRow, ...]:
        found = []
        for row in document.get(key, ()):
            if row not in rows:
                raise ValueError(f"protocol: {name}.{key}: no row is called {row!r}")
            if rows[row].role != role:
                raise ValueError(
                    f"protocol: {name}.{key}: {row} has the role {rows[row].role!r}: must be {role}"
                )
            found.append(rows[row])
        return tuple(found)

    unknown = [free for free in document["free"] if free not in PARAMETERS]
    if unknown:
        raise ValueError(
            f"protocol: {name}.free: {unknown[0]!r} must be one of {', '.join(PARAMETERS)}"
        )
    return Stage(
        name=name,
        about=document["about"],
        scenarios=tuple(document["scenarios"]),
        fits=of_role("fits", "fitted"),
        counts=of_role("counts", "fitted"),
        holds_out=of_role("holds_out", "held_out"),
        free=tuple(document["free"]),
        searched=document,
    )


def tails(stage: Stage) -> tuple[Tail, ...]:
    """Every table with each cap up to the first that it never reaches, or that its source had.

    Without those whose overcommitment gains too little, where the stage says how much it takes.
    """
    said, found = stage.searched, []
    for table in shipped():
        known = any(fnmatch(table, pattern) for pattern in said["lengths"])
        if not known or table in said.get("without", ()):
            continue
        lengths = load(table)
        for cap in _caps(lengths, said["max_response_tokens"]):
            mean, longest = mean_and_longest(lengths, BATCH, cap)
            real = (PROMPT_TOKENS + mean) / (PROMPT_TOKENS + longest)
            mfu = said["padded_mfu"] * real if "padded_mfu" in said else MOST_MFU
            found += [
                Tail(table, cap, most, mfu)
                for most in said["most"]
                if longest
                >= said.get("least_gain", 0.0)
                * generation_tokens(lengths, BATCH, most, cap, SCREEN_STEPS)
            ]
    return tuple(found)


def _caps(lengths: QuantileTable, caps: Sequence[int]) -> list[int]:
    longest = int(lengths.ppf(np.array([1 - 1e-9]))[0])
    known = lengths.known_tokens
    sorted_caps = sorted(cap for cap in caps if known is None or cap <= known)
    below = [cap for cap in sorted_caps if cap < longest]
    return sorted_caps[: len(below) + 1]

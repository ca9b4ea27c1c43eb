"""What an experiment yields, and how it is kept: numbers, picture, paragraph, and its finding."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from matplotlib.figure import Figure

import oppo_sim
from oppo_sim.analysis import canvas
from oppo_sim.runs import write_whole

Value = str | int | float | None
Row = dict[str, Value]
Verdict = Literal["confirmed", "corrected", "undecided"]


@dataclass(frozen=True)
class Finding:
    """A claim, and what the simulation says of it under the scenario's assumptions.

    "confirmed" and "corrected" follow from conditions on the numbers, which stand in the code of
    each experiment; "undecided" is what meets neither.
    """

    claim: str
    verdict: Verdict
    numbers: Mapping[str, Value]  # those that the verdict rests on


@dataclass(frozen=True)
class Result:
    """Rows of one shape, the picture of them, and the sentences that follow from them."""

    rows: Sequence[Mapping[str, Value]]
    figure: Figure
    text: Sequence[str]
    finding: Finding | None = None


@dataclass(frozen=True)
class Experiment:
    """A question and what answers it; `run(quick)` draws a small version if it is quick."""

    name: str
    question: str
    minutes: int  # on two cores, at full size
    run: Callable[[bool], Result]
    role: str = "simulated"  # of its numbers; what is measured needs the extra [real]

    def is_done(self, out: Path, quick: bool) -> bool:
        """Whether its files are there, made by the same code at the same size."""
        files = [out / f"{self.name}.{form}" for form in ("md", "csv", "png", "json")]
        if not all(file.is_file() for file in files):
            return False
        return stamp(quick, self.role) in files[0].read_text(encoding="utf-8")

    def write(self, out: Path, quick: bool) -> None:
        """Run it and keep what it yields; the paragraph, last, says that the rest is there."""
        with canvas.style():
            result = self.run(quick)
            picture = canvas.encode(result.figure, "png")
        out.mkdir(parents=True, exist_ok=True)
        write_whole(out / f"{self.name}.png", picture)
        write_whole(out / f"{self.name}.csv", _table(result.rows, self.role))
        write_whole(out / f"{self.name}.json", self._document(result, quick))
        size = "\n\nA quick version: few steps, one seed, for tests." if quick else ""
        found = result.finding
        claim = f"\n\n*Claim:* {found.claim} *Here: {found.verdict}.*" if found else ""
        write_whole(
            out / f"{self.name}.md",
            f"# {self.question}{claim}\n\n{' '.join(result.text)}{size}\n\n"
            f"![{self.name}]({self.name}.png)\n\n{stamp(quick, self.role)}\n",
        )

    def _document(self, result: Result, quick: bool) -> str:
        """What a report needs, as JSON; claim, verdict and numbers are null without a finding."""
        found = result.finding
        document = {
            "name": self.name,
            "question": self.question,
            "claim": found.claim if found else None,
            "verdict": found.verdict if found else None,
            "numbers": dict(found.numbers) if found else None,
            "paragraph": " ".join(result.text),
            "figure": f"{self.name}.png",
            "table": f"{self.name}.csv",
            "role": self.role,
            "quick": quick,
        }
        return json.dumps(document, indent=1, allow_nan=False) + "\n"


def stamp(quick: bool, role: str) -> str:
    """By what code, and at which size, a figure was made."""
    return f"<!-- {'quick' if quick else 'full'}, code {_code(role)} -->"


def _table(rows: Sequence[Mapping[str, Value]], role: str) -> str:
    table = io.StringIO()
    writer = csv.DictWriter(table, [*rows[0], "role"], lineterminator="\n")
    writer.writeheader()
    writer.writerows({**row, "role": role} for row in rows)
    return table.getvalue()


@cache
def _code(role: str) -> str:
    """A digest of all that a figure depends on: the machine, its data and these scripts."""
    digest = hashlib.sha256()
    simulator = Path(oppo_sim.__file__).parent
    real = [simulator.with_name("oppo_real")] if role == "measured" else []
    for folder in (simulator, *real, Path(__file__).parent):
        for file in sorted(folder.rglob("*")):
            if file.suffix in (".py", ".csv", ".toml") and file.is_file():
                digest.update(f"{file.relative_to(folder)}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:12]

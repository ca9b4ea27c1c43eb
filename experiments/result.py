"""What an experiment yields, and how it is kept: numbers, picture, paragraph, each in one file."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from matplotlib.figure import Figure

import oppo_sim
from oppo_sim.analysis import canvas
from oppo_sim.runs import write_whole

Value = str | int | float | None
Row = dict[str, Value]


@dataclass(frozen=True)
class Result:
    """Rows of one shape, the picture of them, and the sentences that follow from them."""

    rows: Sequence[Mapping[str, Value]]
    figure: Figure
    text: Sequence[str]


@dataclass(frozen=True)
class Experiment:
    """A question and what answers it; `run(quick)` draws a small version if it is quick."""

    name: str
    question: str
    minutes: int  # on two cores, at full size
    run: Callable[[bool], Result]
    role: str = "simulated"  # of its numbers; what is measured needs the extra [real]

    def is_done(self, out: Path, quick: bool) -> bool:
        """Whether its three files are there, made by the same code at the same size."""
        files = [out / f"{self.name}.{form}" for form in ("md", "csv", "png")]
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
        size = "\n\nA quick version: few steps, one seed, for tests." if quick else ""
        write_whole(
            out / f"{self.name}.md",
            f"# {self.question}\n\n{' '.join(result.text)}{size}\n\n"
            f"![{self.name}]({self.name}.png)\n\n{stamp(quick, self.role)}\n",
        )


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

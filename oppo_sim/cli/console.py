"""What all commands share: options, output as a table or as one JSON document, progress."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import fill
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from oppo_sim.cli.narrow import fits, stacked

if TYPE_CHECKING:
    from oppo_sim.analysis.why import Why


def folder(text: str) -> Path:
    """The path that an option names."""
    if not text:  # a path of nothing would be this folder
        raise typer.BadParameter("it is empty: name a new or empty folder")
    return Path(text)


Scenario = Annotated[
    str, typer.Argument(metavar="SCENARIO", help="A shipped name, or the path of a TOML file.")
]
Steps = Annotated[
    int | None, typer.Option(min=1, help="PPO steps; the scenario's if not given.", metavar="N")
]
Seed = Annotated[
    int | None, typer.Option(min=0, help="Seed of lengths and rewards; else the scenario's.")
]
PointSeeds = Annotated[
    int | None,
    typer.Option(min=1, max=10_000, metavar="N", help="Runs per point; else the file's."),
]
Jobs = Annotated[
    int | None,
    typer.Option(min=1, help="Processes; one per core if not given. Results do not depend on it."),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a key of the scenario, by its dotted path; may be given several times. A "
        "file is looked for in the folder of the scenario's file; a sweep's or search's, where the "
        "scenario is a shipped one, beside that file.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Write to this folder, which must be new or empty.", parser=folder
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with what --out already holds.")]
AsJson = Annotated[
    bool, typer.Option("--json", help="One JSON document on stdout instead of tables.")
]

FIRST_SIGN_S = 1.0  # what is over sooner shows no progress
LINE_EVERY_S = 5.0  # where stderr is no terminal


class _Output(Console):
    def on_broken_pipe(self) -> None:  # rich would exit with 1, as if something had failed
        raise BrokenPipeError


def show(*parts: Table | str) -> None:
    """Tables and paragraphs on stdout, as wide as the terminal, else 80 columns.

    A table that the terminal is too narrow for is shown row under row.
    """
    console = _Output(highlight=False, markup=False, emoji=False, width=width())
    for part in parts:
        if isinstance(part, Table) and not fits(part, console.width):
            part = stacked(part, console.width)
        console.print(part)


def width() -> int:
    """As wide as `show` writes; a terminal that does not know, and says 0, has 80 columns."""
    return Console().width or 80


def show_why(reasons: Why) -> None:
    """The verdict, and a bullet for each reason."""
    show(reasons.verdict)
    for reason in reasons.reasons:
        show(fill(reason, width(), initial_indent="  - ", subsequent_indent="    "))


def emit(document: Mapping[str, Any]) -> None:
    """The one JSON document."""
    print(json.dumps(document, indent=2, allow_nan=False))


def overrides(sets: list[str] | None) -> dict[str, object]:
    """KEY=VALUE pairs; ValueError for one that is none."""
    pairs: dict[str, object] = {}
    for text in sets or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"--set {text}: must be KEY=VALUE, such as cluster.actors=4")
        pairs[key.strip()] = value.strip()
    return pairs


def need_out(out: Path | None, **options: bool) -> None:
    """ValueError for options that need a folder where none is given, and for --out FILE."""
    if out is not None and out.exists() and not out.is_dir():
        raise ValueError(f"--out {out}: is not a folder; name a new or empty one")
    for name, given in options.items():
        if given and out is None:
            raise ValueError(f"--{name} needs --out DIR")


class Meter:
    """Progress on stderr: a bar on a terminal, elsewhere a line now and then; nothing if quick."""

    def __init__(self, what: str, unit: str, *, says_left: bool = False) -> None:
        self._what = what
        self._unit = unit
        self.done: tuple[int, int] | None = None  # of how many; None: it was not told yet
        self._says_left = says_left  # where there is no bar, which always does
        self._first: tuple[int, float] | None = None
        self._next_s = monotonic() + FIRST_SIGN_S
        self._bar: Progress | None = None
        self._is_terminal = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, done: int, total: int) -> None:
        now_s, self.done = monotonic(), (done, total)
        if self._first is None:
            self._first = (done, now_s)
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done, total=total)
        elif now_s < self._next_s:
            return
        elif self._is_terminal:
            self._bar = _bar()
            self._bar.start()
            self._bar.add_task(self._what, total=total, completed=done)
        else:
            self._next_s = now_s + LINE_EVERY_S
            line = f"{self._what}: {done}/{total} {self._unit}{self._left(done, total, now_s)}"
            print(line, file=sys.stderr, flush=True)

    def _left(self, done: int, total: int, now_s: float) -> str:
        """At the pace since the first call: what was done before it took no time."""
        assert self._first is not None
        first, began_s = self._first
        if done == first or not self._says_left:
            return ""
        return f", about {(now_s - began_s) / (done - first) * (total - done):.0f} s left"


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )

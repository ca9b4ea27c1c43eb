"""`oppo plot`: a run as a picture."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from oppo_sim.cli import console

_FORMATS = (".png", ".svg", ".pdf")


def plot(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder that `oppo run` wrote.")],
    kind: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help="gantt (needs --spans), steps, staleness, lengths or utilisation.",
        ),
    ] = "steps",
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A .png, .svg or .pdf; KIND.png in RUN if not given."),
    ] = None,
    steps: Annotated[
        str | None,
        typer.Option(
            metavar="FROM:TO",
            help="These steps only, TO not included; a gantt shows the first 3 if not given.",
        ),
    ] = None,
    as_json: console.AsJson = False,
) -> None:
    """Draw a run: where the time goes, who waits, how late and how long rollouts are.

    The same run gives the same picture, byte for byte.
    """
    if out is not None and out.suffix.lower() not in _FORMATS:
        raise ValueError(f"--out {out}: a picture is a {', '.join(_FORMATS[:-1])} or .pdf file")
    window = _window(steps)

    from oppo_sim.analysis.plots import plot as draw
    from oppo_sim.runs import write_whole

    where = run / f"{kind}.png" if out is None else out
    write_whole(where, draw(run, kind, where.suffix.lower()[1:], window))
    if as_json:
        console.emit({"out": str(where), "kind": kind})
    else:
        console.show(f"Written to {where}.")


def _window(text: str | None) -> range | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d*):(\d*)", text)
    if found is None or not any(found.groups()):
        raise ValueError(f"--steps {text}: must be FROM:TO, such as 10:13")
    start, stop = int(found[1] or 0), int(found[2] or 1 << 62)
    if stop <= start:
        raise ValueError(f"--steps {text}: FROM must be below TO, such as {start}:{start + 3}")
    return range(start, stop)

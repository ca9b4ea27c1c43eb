"""`oppo plot`: a run, or a sweep, as a picture."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from oppo_sim.cli import console

_FORMATS = (".png", ".svg", ".pdf")


def plot(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="A folder that `oppo run`, `oppo sweep` or `oppo search` wrote."
        ),
    ],
    kind: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="gantt (needs --spans), steps (if not given), staleness, lengths or utilisation; "
            "of a sweep heatmap (if not given) or front.",
        ),
    ] = None,
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
    axes: Annotated[
        str | None,
        typer.Option(
            metavar="X,Y", help="Of a sweep's heat map; its first two of numbers if not given."
        ),
    ] = None,
    as_json: console.AsJson = False,
) -> None:
    """Draw a run: where the time goes, who waits, how late and how long rollouts are.

    Or a sweep: speed-up over two of its axes, or step time against staleness. Of a search, what
    breaks a constraint or was given up is set apart, and the winner is marked. The same folder
    gives the same picture, byte for byte.
    """
    if out is not None and out.suffix.lower() not in _FORMATS:
        raise ValueError(f"--out {out}: a picture is a {', '.join(_FORMATS[:-1])} or .pdf file")
    window = _window(steps)

    from oppo_sim.runs import write_whole
    from oppo_sim.search.swept import is_swept

    swept = is_swept(run)
    kind = kind or ("heatmap" if swept else "steps")
    where = run / f"{kind}.png" if out is None else out
    form = where.suffix.lower()[1:]
    if swept:
        if window is not None:
            raise ValueError(f"--steps {steps}: a sweep has none; leave it out")
        write_whole(where, _of_sweep(run, kind, form, axes))
    else:
        from oppo_sim.analysis.plots import plot as draw

        if axes is not None:
            raise ValueError(f"--axes {axes}: a run has none; leave it out")
        write_whole(where, draw(run, kind, form, window))
    if as_json:
        console.emit({"out": str(where), "kind": kind})
    else:
        console.show(f"Written to {where}.")


def _of_sweep(folder: Path, kind: str, form: str, axes: str | None) -> bytes:
    from oppo_sim.search.pictures import draw
    from oppo_sim.search.standing import read_standing
    from oppo_sim.search.swept import read_swept

    swept = read_swept(folder)
    standing = read_standing(folder, swept.table)
    if axes is None:
        return draw(swept, kind, form, standing=standing)
    x, comma, y = axes.partition(",")
    if not comma:
        raise ValueError(f"--axes {axes}: must be X,Y, such as schedule.chunk,schedule.overcommit")
    return draw(swept, kind, form, (x.strip(), y.strip()), standing)


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

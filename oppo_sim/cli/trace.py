"""`oppo trace`: a run as a timeline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oppo_sim.cli import console


def trace(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="A folder that `oppo run --spans` wrote.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.json", help="Where to write; trace.json in RUN if not given."),
    ] = None,
    as_json: console.AsJson = False,
) -> None:
    """Write a run as a Chrome trace: every task on every device, for ui.perfetto.dev.

    A track per lane of each device, the PPO steps with their stages and milestones, counters, and
    an arrow from each chunk that was decoded to the score that reads it.
    """
    from oppo_sim.analysis.claims import HEADER
    from oppo_sim.analysis.trace import write_trace
    from oppo_sim.analysis.why import count

    if (run / HEADER).is_file():
        raise ValueError(
            f"{run} is of many runs, and a trace is of one: make it by oppo run SCENARIO --spans "
            "--out DIR, with --schedule and --set of the point or schedule that is wanted"
        )
    with console.Meter("writing the trace", "steps") as meter:
        written = write_trace(run, run / "trace.json" if out is None else out, meter)
    if as_json:
        console.emit(
            {
                "out": str(written.out),
                "steps": written.steps,
                "spans": written.spans,
                "arrows": written.arrows,
            }
        )
        return
    console.show(
        f"Written to {written.out}: {count(written.steps, 'step')}, "
        f"{count(written.spans, 'span')}, {count(written.arrows, 'arrow')} from chunks to scores.",
        "Open it at https://ui.perfetto.dev, which reads it in the browser and sends it nowhere.",
    )

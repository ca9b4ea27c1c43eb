"""`oppo train`: a schedule on the real machine."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Self

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from oppo_sim.cli import console, notes
from oppo_sim.cli.real import real_module

if TYPE_CHECKING:
    from oppo_sim.analysis.metrics import Metrics
    from oppo_sim.records import StepRecord

ROWS = 20  # steps that the live table shows


def train(
    scenario: Annotated[
        str, typer.Argument(metavar="CONFIG", help="A scenario file with a [real] table.")
    ],
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="Write to this folder, which must be new or empty.",
            parser=console.folder,
        ),
    ],
    schedule: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="A schedule's name, or the path of a TOML file."),
    ] = None,
    steps: console.Steps = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of sampling and data; else the scenario's.")
    ] = None,
    sets: console.Sets = None,
    resume: console.Resume = False,
    profile: Annotated[
        int | None,
        typer.Option(min=1, metavar="STEP", help="Record this step with torch.profiler."),
    ] = None,
    as_json: console.AsJson = False,
) -> int:
    """Train with PPO on this machine, scheduled as in the simulator.

    The folder gets what `oppo run` writes, so that `oppo trace` and `oppo plot` read it, and
    updates.jsonl (loss, KL and the like, under TRL's names), TensorBoard's event files, checkpoints
    and, in the end, model/. --resume goes on from the last checkpoint. Ctrl-C, or SIGTERM, ends the
    run after the step in progress, with a checkpoint; a second one ends it at once. What --profile
    records is a part of what `oppo trace` writes. Needs the extra [real].

    \b
    Example:
      oppo train experiments/configs/real/even-tokens.toml --steps 3 --out runs/even
    That file has a [real] table to start from; its keys are in oppo_sim/config/real.py. The
    schedule, if none is named, is the file's.
    """
    from oppo_sim.analysis.documents import header_of, summary_document
    from oppo_sim.config import load_scenario, load_schedule
    from oppo_sim.simulate import remarks

    console.need_out(out)
    loaded = load_scenario(scenario, console.overrides(sets))
    chosen = load_schedule(schedule, loaded) if schedule is not None else loaded.schedule()
    header = header_of(loaded, chosen, seed=seed, steps=steps, spans=True, role="measured")
    if profile is not None and profile > header.steps:
        raise ValueError(f"--profile {profile}: the run has {header.steps} steps; name one of them")
    recorded = None if profile is None else profile - 1
    drawn = loaded.real is not None and loaded.real.lengths == "workload"
    notes.say(remarks(loaded, [chosen], draws_lengths=drawn))
    real = real_module("train", "training")
    done, stopping = 0, real.Stopping()
    steps_done = real.train(
        loaded, chosen, header, out, resume=resume, profile_step=recorded, stopping=stopping
    )
    with _Watch(f"{loaded.name}, {chosen.name}", header.steps) as watch:
        for step in steps_done:
            if done == 0 and step.record.step:
                print(f"goes on after step {step.record.step}, its checkpoint", file=sys.stderr)
            watch(step.record, step.stats)
            done = step.record.step + 1
    if stopping.is_wanted and done < header.steps:
        print(
            f"oppo: stopped after step {done} of {header.steps}; its checkpoint is written, and "
            "--resume goes on from there",
            file=sys.stderr,
        )
        return int(stopping.exit_code)
    metrics = _metrics(out)
    if as_json:
        console.emit(summary_document(header, metrics))
        return 0
    from oppo_sim.cli.tables import RUN_LEGEND, metrics_table

    console.show(
        f"{header.called}, schedule {chosen.name}: {header.steps} steps, seed {header.seed}. Every "
        "number is measured on this machine.",
        metrics_table(metrics),
        RUN_LEGEND,
    )
    if loaded.real is not None and loaded.real.device == "cpu":
        console.show("gpu0 and so on are the scenario's devices: in this run, parts of the CPU.")
    console.show(f"Written to {out}; `oppo trace {out}` and `oppo plot {out}` show it.")
    return 0


def _metrics(out: Path) -> Metrics:
    from oppo_sim.analysis.metrics import summarise
    from oppo_sim.runs import each_step

    return summarise(each_step(out))


class _Watch:
    """The latest steps as a table on a terminal's stderr; elsewhere a line for each."""

    COLUMNS = ("step", "reward", "KL", "step s", "hidden", "in flight", "D", "chunk")

    def __init__(self, what: str, steps: int) -> None:
        self._what, self._steps = what, steps
        self._rows: deque[tuple[str, ...]] = deque(maxlen=ROWS)
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            console = Console(stderr=True, markup=False, emoji=False)
            self._live = Live(self._table(), console=console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, record: StepRecord, stats: Mapping[str, float]) -> None:
        row = _cells(record, stats, self._steps)
        self._rows.append(row)
        if self._live is not None:
            self._live.update(self._table(), refresh=True)
        else:
            cells = ", ".join(f"{n} {v}" for n, v in zip(self.COLUMNS, row, strict=True))
            print(f"{self._what}: {cells}", file=sys.stderr, flush=True)

    def _table(self) -> Table:
        table = Table(title=self._what, box=None)
        for column in self.COLUMNS:
            table.add_column(column, justify="right")
        for row in self._rows:
            table.add_row(*row)
        return table


def _cells(record: StepRecord, stats: Mapping[str, float], steps: int) -> tuple[str, ...]:
    hidden = f"{record.hidden_score_s / record.score_s:.0%}" if record.score_s else "-"
    in_flight = record.admitted - record.dropped - record.step * len(record.trained)
    return (
        f"{record.step + 1}/{steps}",
        f"{record.reward:.3g}",
        f"{stats.get('objective/kl', 0.0):.3g}",
        f"{record.end_s - record.start_s:.3g}",
        hidden,
        str(in_flight),
        str(record.overcommit),
        str(record.chunk_tokens or "whole"),
    )

"""`oppo run`: one scenario, one schedule, one seed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oppo_sim.cli import console, notes

if TYPE_CHECKING:
    from oppo_sim.analysis.metrics import Metrics
    from oppo_sim.config import Scenario
    from oppo_sim.policies import Schedule
    from oppo_sim.records import StepRecord
    from oppo_sim.runs import Header, RunWriter


def run(
    scenario: console.Scenario,
    schedule: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="A schedule's name, or the path of a TOML file."),
    ] = None,
    steps: console.Steps = None,
    seed: console.Seed = None,
    sets: console.Sets = None,
    out: console.Out = None,
    spans: Annotated[
        bool, typer.Option("--spans", help="Write spans.jsonl too: every task, for timelines.")
    ] = False,
    resume: console.Resume = False,
    as_json: console.AsJson = False,
) -> None:
    """Simulate one run and sum it up.

    With --out it is written step by step: run.json, steps.jsonl, and spans.jsonl with --spans. The
    same seed gives the same bytes. --resume goes on with a run that was stopped, or to more steps.
    """
    from oppo_sim.analysis.documents import header_of, summary_document
    from oppo_sim.config import load_scenario, load_schedule
    from oppo_sim.simulate import check, remarks

    console.need_out(out, spans=spans, resume=resume)
    loaded = load_scenario(scenario, console.overrides(sets))
    chosen = loaded.schedule() if schedule is None else load_schedule(schedule, loaded)
    header = header_of(loaded, chosen, seed=seed, steps=steps, spans=spans)
    check(loaded, chosen, header.steps)
    notes.say(remarks(loaded, [chosen]))
    metrics = _simulate(loaded, chosen, header, out, resume)
    if as_json:
        console.emit(summary_document(header, metrics))
    else:
        _print(loaded, chosen, header, metrics, out)


def _simulate(
    scenario: Scenario, schedule: Schedule, header: Header, out: Path | None, resume: bool
) -> Metrics:
    from oppo_sim.analysis.metrics import summarise
    from oppo_sim.engine.spans import SpanRecorder
    from oppo_sim.runs import RunWriter
    from oppo_sim.simulate import lanes, simulate, workload

    by_name = {lane.name: lane for lane in lanes(scenario)}
    devices = dict.fromkeys(device for lane in by_name.values() for device in lane.devices)
    with ExitStack() as stack:
        writer, recorder = None, None
        if out is not None:
            writer = stack.enter_context(RunWriter(out, header, resume=resume))
            recorder = SpanRecorder(by_name, writer.span) if header.spans else None
        records = simulate(
            scenario, schedule, seed=header.seed, steps=header.steps, listen=recorder
        )
        meter = stack.enter_context(console.Meter(f"{scenario.name}, {schedule.name}", "steps"))
        lengths = workload(scenario, header.seed).responses
        watched = _watched(records, header.steps, writer, meter)
        return summarise(watched, tuple(devices), lengths=lengths)


def _watched(
    records: Iterable[StepRecord], steps: int, writer: RunWriter | None, meter: console.Meter
) -> Iterator[StepRecord]:
    for record in records:
        if writer is not None:
            writer.step(record)
        meter(record.step + 1, steps)
        yield record


def _print(
    scenario: Scenario, schedule: Schedule, header: Header, metrics: Metrics, out: Path | None
) -> None:
    from oppo_sim.analysis.why import count
    from oppo_sim.cli.tables import RUN_LEGEND, metrics_table

    console.show(
        f"{header.called}, schedule {schedule.name}: {count(header.steps, 'step')}, seed "
        f"{header.seed}. Every number is simulated.",
        metrics_table(metrics),
        RUN_LEGEND,
    )
    if scenario.assumptions:
        console.show(_assumed(scenario))
    if out is not None:
        console.show(f"Written to {out}; steps.jsonl has one step a line.")


def _assumed(scenario: Scenario) -> str:
    """The one assumption, or where to read them all."""
    first, *more = scenario.assumptions
    if not more:
        return f"Assumed: {first}"
    called = f"oppo scenarios {scenario.file}"
    return f"The scenario assumes {1 + len(more)} things, which `{called}` names."

"""Whole runs for their times: no checkpoint, no curve, no model; lengths by rollout instead."""

from __future__ import annotations

import gc
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from statistics import median_low
from typing import NamedTuple

from oppo_real.assembly import Machine, machine
from oppo_real.build import real_of
from oppo_real.profile.busy import Busy
from oppo_real.profile.identity import identity
from oppo_sim.config import Scenario
from oppo_sim.costs.identity import CROWDED, SLOWED
from oppo_sim.engine import State, run
from oppo_sim.engine.spans import SpanRecorder
from oppo_sim.policies import Schedule
from oppo_sim.records import StepRecord
from oppo_sim.runs import Header, RunError, RunJournal, read_run, write_whole
from oppo_sim.workload.loads import workload

LENGTHS = "lengths.csv"  # response_tokens and prompt_tokens of rollout 0, 1, 2 ...
MACHINE = "machine.json"  # what it ran on, and how much of that others took meanwhile
TRIES = 3
BEYOND = 4  # batches of lengths beyond what was admitted: a simulation may admit a little more


def rounds(schedules: Sequence[str], repeats: int) -> Iterator[tuple[str, int]]:
    """Every schedule in every round, in an order that turns on by one each time."""
    for repeat in range(repeats):
        turn = repeat % len(schedules)
        for name in (*schedules[turn:], *schedules[:turn]):
            yield name, repeat


def is_done(folder: Path, header: Header) -> bool:
    """Whether this very run is there with all its steps; what is there of another is cleared."""
    try:
        there = read_run(folder)
    except RunError:
        there = None
    if there is not None and there.header == header and there.complete:
        return (folder / LENGTHS).exists()
    if folder.exists():
        shutil.rmtree(folder)
    return False


def timed_run(
    scenario: Scenario, schedule: Schedule, header: Header, out: Path
) -> Iterator[StepRecord]:
    """Train `header.steps` steps into a run folder with spans and lengths.csv.

    Raises ConfigError, ModelError or RunError before the first step; EngineError where a lane
    fails.
    """
    gc.collect()
    with machine(scenario, schedule, seed=header.seed, steps=header.steps) as on:
        lengths: dict[int, int] = {}
        state = State(schedule, on.backend.lanes(), on.limits)
        with RunJournal(out, header) as journal:
            recorder = SpanRecorder(on.backend.lanes(), journal.span)
            with Busy() as busy:
                for record in run(on.backend, schedule, on.limits, header.steps, recorder, state):
                    lengths |= zip(record.trained, record.tokens, strict=True)
                    journal.step(record)
                    yield record
        disturbed = {"elsewhere": busy.elsewhere(), "probe_s": busy.probe_s()}
        about = {**identity(scenario, on.models), **disturbed}
        write_whole(out / MACHINE, json.dumps(about, indent=2) + "\n")
        write_whole(out / LENGTHS, _lengths(scenario, schedule, header.seed, on, state, lengths))


class Timed(NamedTuple):
    """Mean seconds of a step; what others took of the machine; CPU seconds of a little work."""

    step_s: float
    elsewhere: float
    probe_s: float


def undisturbed(
    scenario: Scenario, schedule: Schedule, header: Header, out: Path, fastest_s: float = inf
) -> Timed:
    """A `timed_run` during which others left the machine alone, or the last of a few tries.

    `fastest_s`: the least `probe_s` that was seen: cores that are slower now are disturbed as well.
    """
    for _ in range(TRIES):
        shutil.rmtree(out, ignore_errors=True)
        seconds = [record.seconds for record in timed_run(scenario, schedule, header, out)]
        about = json.loads((out / MACHINE).read_bytes())
        found = Timed(sum(seconds) / len(seconds), about["elsewhere"], about["probe_s"])
        if found.elsewhere <= CROWDED and found.probe_s <= SLOWED * fastest_s:
            break
    return found


def _lengths(
    scenario: Scenario,
    schedule: Schedule,
    seed: int,
    on: Machine,
    state: State,
    known: Mapping[int, int],
) -> str:
    """Those of the workload where they were forced, else as far as they are known."""
    count = state.admitted + BEYOND * schedule.batch
    if real_of(scenario).lengths == "workload":
        forced = workload(scenario, seed).response_tokens
        responses = [forced(rollout) for rollout in range(count)]
    else:
        cap, middle = on.limits.response_tokens, median_low(known.values())
        so_far = {rollout: len(row.ids) for rollout, row in on.backend.store.rows.items()}
        responses = [
            known.get(rollout, min(cap, max(middle, so_far.get(rollout, 0) + 1)))
            for rollout in range(count)
        ]
    lines = [f"{r},{len(on.backend.store.prompt(n))}\n" for n, r in enumerate(responses)]
    return "response_tokens,prompt_tokens\n" + "".join(lines)

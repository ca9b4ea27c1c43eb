"""A run of the real machine simulated again: its scenario with measured costs and its lengths.

What was side by side on one machine is slowed as it was measured (`costs.beside`), wherever its
lanes are; the lanes and their devices stay those of the scenario, so that the engine decides alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median_low
from typing import Any

from oppo_sim.calibration.replayed import DRAWN, schedule_of
from oppo_sim.config import Scenario, parse_scenario
from oppo_sim.costs import Measured, measurements
from oppo_sim.engine.spans import SpanRecorder
from oppo_sim.policies import Schedule
from oppo_sim.records import StepRecord
from oppo_sim.runs import Header, Run, RunJournal
from oppo_sim.simulate import lanes, simulate
from oppo_sim.workload import read_lengths
from oppo_sim.workload.fits import best, fit_all
from oppo_sim.workload.samples import Sample

LENGTHS = "lengths.csv"
BEYOND = 4  # batches of lengths beyond what was admitted


@dataclass(frozen=True)
class Recorded:
    """A real run and the lengths, by rollout, of responses and prompts."""

    run: Run
    responses: Sequence[int]
    prompts: Sequence[int] | None

    @property
    def schedule(self) -> Schedule:
        return schedule_of(self.run.header.schedule)


def recorded(run: Run, folder: Path) -> Recorded:
    """With lengths.csv where the folder has one, else as far as its steps tell."""
    if (folder / LENGTHS).exists():
        found = read_lengths(folder / LENGTHS)
        return Recorded(run, found.response_tokens, found.prompt_tokens)
    known = {
        rollout: tokens
        for step in run.steps
        for rollout, tokens in zip(step.trained, step.tokens, strict=True)
    }
    middle = median_low(known.values())
    batch = run.header.schedule["batch"]
    count = max(run.steps[-1].admitted, max(known) + 1) + BEYOND * batch
    return Recorded(run, [known.get(rollout, middle) for rollout in range(count)], None)


def twin(document: Mapping[str, Any], table: Path, workload: Mapping[str, Any]) -> Scenario:
    """The scenario of a real run as it is simulated. ValueError where the table does not fit it."""
    costs = Measured(measurements=measurements(str(table.resolve())))
    by_row = costs.by_row
    sharing = {**({} if by_row is None else by_row.sharing.stretches), "shared_host": True}
    news_s = costs.measurements.said_s("news_s") or 0.0
    whole = {key: value for key, value in document.items() if key != "real"}
    given = {key: v for key, v in document["workload"].items() if key not in (*DRAWN, "lengths")}
    return parse_scenario(
        {
            **whole,
            "cluster": {**document["cluster"], "contention": sharing},
            "costs": {"model": "table", "file": str(table.resolve()), "round_s": news_s},
            "workload": {"reward": {"points": [[0, 0.0]], "noise": 0.0}, **given, **workload},
        },
        f"{document['name']} as simulated",
    )


def replaying(of: Recorded) -> dict[str, Any]:
    """The `[workload]` that gives every rollout the length that it had."""
    lengths = [*of.responses]
    found: dict[str, Any] = {"lengths": {"replay": lengths}}
    cap = of.run.header.scenario["workload"]["max_response_tokens"]
    found["max_response_tokens"] = max(cap, *lengths)
    prompts = of.prompts
    if prompts is not None:
        found["prompt_tokens"] = round(sum(prompts) / len(prompts))
    return found


def drawing(runs: Sequence[Recorded]) -> tuple[dict[str, Any], str]:
    """The `[workload]` that draws from the law that fits the trained lengths best, and its name.

    A rollout that several runs trained counts once. ValueError for too few lengths.
    """
    cap = runs[0].run.header.scenario["workload"]["max_response_tokens"]
    forced = all(other.responses == runs[0].responses for other in runs)
    trained = {
        (0 if forced else place, rollout)
        for place, of in enumerate(runs)
        for step in of.run.steps
        for rollout in step.trained
    }
    lengths = [runs[place].responses[rollout] for place, rollout in sorted(trained)]
    sample = Sample.of(lengths, cap)
    law = best(fit_all(sample), sample.n).law
    name = type(law).__name__.lower()
    found: dict[str, Any] = {"lengths": {name: asdict(law)}}
    prompts = runs[0].prompts
    if prompts is not None:
        found["prompt_tokens"] = round(sum(prompts) / len(prompts))
    return found, name


def again(
    scenario: Scenario, of: Recorded, out: Path | None, seed: int | None = None
) -> Iterator[StepRecord]:
    """Simulate a run's schedule for as many steps; with `out`, into a run folder with spans."""
    header, schedule = of.run.header, of.schedule
    seed = header.seed if seed is None else seed
    steps = len(of.run.steps)
    if out is None:
        yield from simulate(scenario, schedule, seed=seed, steps=steps)
        return
    document = scenario.document()
    document["costs"]["file"] = Path(document["costs"]["file"]).name
    mine = Header(scenario=document, schedule=header.schedule, seed=seed, steps=steps, spans=True)
    by_name = {lane.name: lane for lane in lanes(scenario)}
    with RunJournal(out, mine) as journal:
        recorder = SpanRecorder(by_name, journal.span)
        for record in simulate(scenario, schedule, seed=seed, steps=steps, listen=recorder):
            journal.step(record)
            yield record

"""A run folder of ours, simulated or real: the linear costs behind its spans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from oppo_sim.calibration.laws import LEAST_ROWS, Law, Term, fit_law
from oppo_sim.calibration.replayed import Replayed, replay
from oppo_sim.calibration.tasks import (
    Prompts,
    Recorded,
    Row,
    Tasks,
    decode_tasks,
    score_tasks,
    sync_tasks,
    train_tasks,
)
from oppo_sim.config import Scenario, parse_scenario
from oppo_sim.runs import Header, Run, RunError, read_run
from oppo_sim.workload.loads import workload

UNSEEN = {
    "prefill": ("prefill_call_s", "prefill_token_s"),
    "what a response's end costs the scorer": ("score_response_s",),
    "hand-over to the scorer": (),
}
DIGITS = 6  # of a cost that is written
# Of what is the same in every span, the first takes the price of all.
FIXED = (
    *("decode_token_s", "prefill_token_s", "prefill_call_s", "round_s"),
    *("score_call_s", "train_call_s", "sync_call_s"),
)


@dataclass(frozen=True)
class FittedTask:
    """A task's law; None where too few spans say what they did, or where it takes no time."""

    task: str
    law: Law | None
    used: int
    spans: int
    amounts: frozenset[str]  # what its spans tell
    doubts: tuple[str, ...]


@dataclass(frozen=True)
class FittedRun:
    """The costs of a run as a linear table, what they rest on, and the run simulated with them."""

    source: str
    role: str  # of the run's numbers: simulated or measured
    scenario: Scenario
    steps: int
    fitted_steps: int
    tasks: tuple[FittedTask, ...]
    doubts: tuple[str, ...]
    replayed: Replayed | None
    tokens: tuple[int, ...]  # of the trained responses

    @property
    def costs(self) -> dict[str, float]:
        return linear_costs(task.law for task in self.tasks)


def fit_run(folder: Path, fit_share: float = 0.3, seed: int = 0) -> FittedRun:
    """Fit decode, prefill, scoring, training and sync on the first `fit_share` of the steps."""
    run = read_run(folder)
    if not run.spans:
        raise RunError(f"{folder} has no spans to fit costs on: run it again with --spans")
    scenario = parse_scenario(run.header.scenario, str(folder))
    prompts, doubts = _prompts(scenario, run.header)
    recorded = Recorded(run.steps, run.spans, prompts, str(run.header.schedule.get("scoring")))
    cut = round(fit_share * len(run.steps))
    tasks = tuple(
        _fit(name, found, cut, seed)
        for name, found in (
            ("decode", decode_tasks(recorded)),
            ("score", score_tasks(recorded)),
            ("train", train_tasks(recorded)),
            ("sync", sync_tasks(recorded)),
        )
    )
    costs = linear_costs(task.law for task in tasks)
    if not any(costs.values()):
        raise RunError(
            f"{folder}: no task has {LEAST_ROWS} spans to fit and {LEAST_ROWS} to check that say "
            "what they did: give a longer run, or one of the schedule trl"
        )
    if can_decode(costs):
        simulated, why = replay(run, scenario, costs)
    else:
        simulated, why = None, ("no cost of decoding, so that nothing can be simulated with these",)
    return FittedRun(
        source=str(folder),
        role=run.header.role,
        scenario=scenario,
        steps=len(run.steps),
        fitted_steps=cut,
        tasks=tasks,
        doubts=(*doubts, *_unseen(tasks), *_shared(run), *why),
        replayed=simulated,
        tokens=tuple(tokens for step in run.steps for tokens in step.tokens),
    )


def linear_costs(laws: Iterable[Law | None]) -> dict[str, float]:
    """The coefficients that are not 0, in the words of a scenario's `[costs]`."""
    estimates = [e for law in laws if law is not None for e in law.estimates if e.value]
    return {e.term: significant(e.value) for e in estimates}


def can_decode(costs: Mapping[str, float]) -> bool:
    """Whether a machine can run on them: decoding must take time."""
    return any(name.startswith("decode_") for name in costs)


def significant(value: float) -> float:
    """As many digits as are written."""
    return float(f"{value:.{DIGITS}g}")


def _prompts(scenario: Scenario, header: Header) -> tuple[Prompts | None, tuple[str, ...]]:
    """Prompt lengths by rollout: drawn as the simulator did, or the scenario's one length."""
    if header.role == "simulated":
        return workload(scenario, header.seed).prompt_tokens, ()
    length = scenario.workload.prompt_tokens
    if length is None:
        said = "prompts: the folder does not say how long they were; tokens are the responses'"
        return None, (said,)
    return lambda _: length, (f"prompts: taken as {length} tokens each, as the scenario says",)


def _fit(task: str, found: Tasks, cut: int, seed: int) -> FittedTask:
    """The law of a task's spans that took time and say what they did."""
    rows = [row for row in found.rows if row.seconds > 0]
    fitted = sum(row.step < cut for row in rows)
    amounts = frozenset(name for row in rows for name in row.amounts)

    def fitted_task(law: Law | None, *doubts: str) -> FittedTask:
        return FittedTask(task, law, len(found.rows), found.spans, amounts, doubts)

    if found.rows and not rows:
        return fitted_task(None, "takes no time")
    if min(fitted, len(rows) - fitted) < LEAST_ROWS:
        said = (
            f"not fitted: {fitted} spans to fit and {len(rows) - fitted} to check say what they "
            f"did, of {found.spans}, where {LEAST_ROWS} each are needed; a run of the schedule trl "
            "says most"
        )
        return fitted_task(None, said)
    terms, doubts = _terms(rows, fitted)
    law = fit_law(np.array([row.seconds for row in rows]), terms, fitted, seed)
    return fitted_task(law, *doubts, *law.doubts)


def _terms(rows: Sequence[Row], fitted: int) -> tuple[list[Term], list[str]]:
    """The amounts as columns; of a prefill that always has the same size, only its tokens."""
    names = dict.fromkeys(name for row in rows for name in row.amounts)
    table = {n: np.array([row.amounts.get(n, 0.0) for row in rows], dtype=float) for n in names}
    table = {name: values for name, values in table.items() if values[:fitted].any()}
    doubts = []
    prefilled = table.get("prefill_token_s")
    if prefilled is not None:
        sizes = set(prefilled[:fitted][table["prefill_call_s"][:fitted] > 0].tolist())
        if len(sizes) == 1:
            del table["prefill_call_s"]
            doubts.append(
                f"prefill: always of {sizes.pop():,.0f} tokens, so that a price per token cannot "
                "be told from one per call; written as one per token"
            )
    still = [name for name in FIXED if name in table and not np.ptp(table[name][:fitted])]
    for name in still[1:]:
        del table[name]
        doubts.append(f"{name}: as constant as {still[0]}, in whose price it is contained")
    return [Term(name, values, name in still) for name, values in table.items()], doubts


def _unseen(tasks: Sequence[FittedTask]) -> tuple[str, ...]:
    """The costs that these spans say nothing about."""
    seen = {name for task in tasks for name in task.amounts}
    unseen = [what for what, names in UNSEEN.items() if seen.isdisjoint(names)]
    return (f"{', '.join(unseen)}: not to be seen in these spans, written as free",)


def _shared(run: Run) -> tuple[str, ...]:
    """Whether scores and decoding stretched each other."""
    decode = {device for span in run.spans if span.kind == "decode" for device in span.devices}
    score = {device for span in run.spans if span.kind == "score" for device in span.devices}
    if decode & score:
        said = (
            "scorer and actor share a device: where both work their times stretch, and costs come "
            "out too high"
        )
        return (said,)
    return ()

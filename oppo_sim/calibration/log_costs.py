"""A log's stage laws as the costs of a scenario: a sequential step of the same pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oppo_sim.calibration.laws import Law
from oppo_sim.calibration.logs import FittedLog
from oppo_sim.calibration.metrics import GENERATION, LONGEST, MEAN, REWARD, SYNC, TOKENS
from oppo_sim.calibration.run_costs import significant
from oppo_sim.workload import Lognormal
from oppo_sim.workload.steplogs import StepLog, read_log

MADE_UP_REWARD = {"start": 0.0, "plateau": 1.0, "tau_steps": 100.0, "noise": 0.5}


@dataclass(frozen=True)
class LogCosts:
    """A `[costs]` table, the scenario around it where there is one, and what they leave open."""

    costs: dict[str, float]
    scenario: dict[str, Any] | None
    notes: tuple[str, ...]


def log_costs(path: Path, log: FittedLog, batch: int, lanes: int) -> LogCosts | None:
    """Prices per token from laws per step of `batch` responses on `lanes` engine replicas.

    A step's generation of a + b * mean + c * longest is a linear decode law: c seconds per
    iteration, b * lanes / batch per rollout and iteration, and `a` once per step. Every other
    forward than the reward's is part of training, as in a scenario. None for a log without lengths.
    """
    generation = log.law(GENERATION)
    if log.mean_tokens is None or generation is None:
        return None
    costs = {
        "decode_token_s": generation.value(LONGEST),
        "decode_rollout_s": generation.value(MEAN) * lanes / batch,
        "sync_call_s": generation.constant + _constant(log.law(SYNC)),
    }
    notes = []
    if generation.constant:
        notes.append(
            f"sync_call_s holds what generation takes whatever its lengths "
            f"({generation.constant:.4g} s), once per step"
        )
    if not costs["decode_token_s"] and log.longest_tokens:
        most = generation.constant / log.longest_tokens
        notes.append(
            f"decode_token_s is not known, at most {most:.3g}: the longest response hardly tells. "
            "At 0, a step that waits less for its longest response gains nothing"
        )
    reward = log.law(REWARD)
    if reward is not None:
        costs["score_call_s"] = reward.constant
        costs["score_token_s"] = reward.value(TOKENS) / batch
    else:
        notes.append("no time of the reward in the log: scoring costs nothing")
    trained = [
        one
        for one in log.stages
        if one.stage.kind == "stage" and one.stage.name not in (GENERATION, REWARD, SYNC)
    ]
    costs["train_call_s"] = sum(one.law.constant for one in trained)
    costs["train_token_s"] = sum(one.law.value(TOKENS) for one in trained) / batch
    notes.append(f"training is {', '.join(one.stage.name for one in trained)}")
    written = {name: significant(value) for name, value in costs.items() if value}
    law = _law(path, batch)
    if law is None:
        notes.append("no lognormal has such a mean and such a longest response: costs only")
        return LogCosts(written, None, tuple(notes))
    return LogCosts(written, _scenario(log, law, written, batch, lanes), tuple(notes))


def _constant(law: Law | None) -> float:
    return 0.0 if law is None else law.constant


def _law(path: Path, batch: int) -> Lognormal | None:
    log = read_log(path)
    return log.law(batch) if isinstance(log, StepLog) else None


def _scenario(
    log: FittedLog, law: Lognormal, costs: dict[str, float], batch: int, lanes: int
) -> dict[str, Any]:
    prompt = 1 if log.prompt_tokens is None else max(1, round(log.prompt_tokens))
    return {
        "name": "fitted",
        "about": f"Costs and lengths fitted on {Path(log.source).name}.",
        "assumptions": [
            f"{lanes} engine replicas that hold all {batch} responses, one scorer beside them.",
            "The reward curve is made up; lengths are a lognormal that does not drift.",
        ],
        "workload": {
            "lengths": {"lognormal": {"mu": significant(law.mu), "sigma": significant(law.sigma)}},
            "max_response_tokens": log.longest_tokens,
            "prompt_tokens": prompt,
            "reward": MADE_UP_REWARD,
        },
        "cluster": {"devices": lanes + 1, "actors": lanes, "scorers": 1},
        "costs": {"model": "linear", **costs},
        "schedule": {"name": "trl", "batch": batch},
    }

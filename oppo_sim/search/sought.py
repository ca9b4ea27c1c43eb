"""A search file: a scenario and axes as a sweep has them, what is sought, and how many trials."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oppo_sim.config.fields import Count, Listed, Seed, Share
from oppo_sim.search import folder
from oppo_sim.search.goals import Goals, read_goals
from oppo_sim.search.spec import SEARCH, Common, Sweep, build, read
from oppo_sim.search.tries import try_values


class SearchFile(Common):
    """What a search file says, beside what a sweep file does."""

    trials: Count = 50  # points that are tried
    objectives: Listed[str] = ("step_s",)  # the first decides between those that are equally good
    constraints: Listed[str] = ()  # such as "staleness <= 0.5"
    margin: Share = 0.05  # worse than another by more, on the seeds so far: no more seeds
    search_seed: Seed = 0  # of the proposals


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A search that can run."""

    space: Sweep  # scenario, axes and seeds
    goals: Goals
    trials: int
    margin: float
    seed: int
    taken: tuple[str, ...] = ()  # what the file does not say, as a sweep's does not

    def header(self) -> dict[str, Any]:
        """All that its points depend on; trials may be added."""
        own = folder.header(self.space)
        return {
            **{key: value for key, value in own.items() if key not in ("points", "draw_seed")},
            "kind": "search",
            "objectives": list(self.goals.objectives),
            "constraints": [str(bound) for bound in self.goals.bounds],
            "margin": self.margin,
            "search_seed": self.seed,
        }


def load_search(
    path: str | Path,
    *,
    overrides: Mapping[str, object] | None = None,
    steps: int | None = None,
    seeds: int | None = None,
    trials: int | None = None,
) -> Search:
    """The search of a file; what is given counts instead of the file's. ConfigError in one line."""
    file, own = str(path), read(path, SearchFile)
    space = build(file, own, SEARCH, overrides=overrides, steps=steps, seeds=seeds)
    goals = read_goals(
        file, own.objectives, own.constraints, has_baseline=space.problem.baseline is not None
    )
    try_values(file, space.problem, space.axes)
    return Search(
        space=space,
        goals=goals,
        trials=trials or own.trials,
        margin=own.margin,
        seed=own.search_seed,
        taken=_taken(own, is_told=trials is not None),
    )


def _taken(own: SearchFile, is_told: bool) -> tuple[str, ...]:
    """The defaults of what makes a sweep a search. `is_told`: the trials are, elsewhere."""
    texts = {
        "objectives": f"objectives = {json.dumps(own.objectives)}",
        "trials": f"trials = {own.trials}",
    }
    said = own.model_fields_set | ({"trials"} if is_told else set())
    return tuple(text for name, text in texts.items() if name not in said)

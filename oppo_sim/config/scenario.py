"""A scenario: hardware, models, workload, costs, default schedule; what a TOML file says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, PrivateAttr, model_validator

from oppo_sim.config.cluster import Cluster, Models
from oppo_sim.config.costs import Costs
from oppo_sim.config.errors import ConfigError, blaming, nearest, short
from oppo_sim.config.fields import Count, Listed, Seed, Table
from oppo_sim.config.paths import paths_of
from oppo_sim.config.real import Real
from oppo_sim.config.schedules import CALLED, Defaults, compose
from oppo_sim.config.workload import AnyReward, Lengths, Workload
from oppo_sim.policies import CATALOG, Schedule


class Scenario(Table):
    """What is simulated or trained. Every number that is not measured is named in `assumptions`."""

    name: str
    about: str = ""
    steps: Count = 500
    seed: Seed = 0
    assumptions: Listed[str] = ()
    workload: Workload
    cluster: Cluster
    models: Models | None = None
    costs: Costs | None = None  # None: of a real run, which takes the time that it takes
    defaults: Defaults = Field(alias="schedule")
    real: Real | None = None  # the simulator does not read it
    _file: str = PrivateAttr(default="scenario")
    _folder: Path = PrivateAttr(default=Path())
    _changed: Mapping[str, str] = PrivateAttr(default_factory=dict)

    @property
    def file(self) -> str:
        """Where it came from, as errors name it."""
        return self._file

    @property
    def folder(self) -> Path:
        """What the paths in it are relative to."""
        return self._folder

    @property
    def changed(self) -> Mapping[str, str]:
        """What was set beside its file: dotted paths, and the values as they were written."""
        return self._changed

    def read_from(self, file: str, folder: Path, changed: Mapping[str, str]) -> Scenario:
        """The same scenario, with where it came from and what was changed."""
        copy = self.model_copy()
        copy._file, copy._folder, copy._changed = file, folder, dict(changed)
        return copy

    def schedule(self, name: str | None = None) -> Schedule:
        """The schedule of that name, or the default one, with the scenario's `[schedule]` axes."""
        name = self.defaults.name if name is None else name
        if name not in CATALOG:
            raise ConfigError(f"no schedule is called {name!r}; {nearest(name, CATALOG)}")
        with blaming(self.file, "schedule"):
            return compose(CATALOG[name], self.defaults, {}, name)

    def document(self) -> dict[str, Any]:
        """What was given, as plain JSON, for a run's record; `parse_scenario` reads it again."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)

    @classmethod
    def _hint(cls, key: str, value: object, known: list[str]) -> str:
        """A key of one of the tables, without the table's name."""
        paths = paths_of(cls, key) or paths_of(cls, CALLED.get(key.lower(), key))
        if not paths:
            return nearest(key, known)
        is_plain = len(paths) == 1 and type(value) in (int, float)
        example = f" (as in --set {paths[0]}={short(value)})" if is_plain else ""
        return f"did you mean {' or '.join(paths)}{example}? known: {', '.join(known)}"

    # What only a simulation reads; a file for training may leave it out.

    def needed_costs(self) -> Costs:
        """ConfigError where there are none."""
        if self.costs is None:
            raise self._not_simulated()
        return self.costs

    def needed_lengths(self) -> Lengths:
        if self.workload.lengths is None:
            raise self._not_simulated()
        return self.workload.lengths

    def needed_reward(self) -> AnyReward:
        if self.workload.reward is None:
            raise self._not_simulated()
        return self.workload.reward

    def _not_simulated(self) -> ConfigError:
        missing = self._left_out()
        verb = "is" if len(missing) == 1 else "are"
        return ConfigError(
            f"{self._file}: {' and '.join(missing)} {verb} missing, which `oppo train` does not "
            "need and a simulation does: add it"
        )

    def _left_out(self) -> list[str]:
        work = self.workload
        tables = (
            ("workload.lengths", work.lengths),
            ("workload.reward", work.reward),
            ("costs", self.costs),
        )
        return [field for field, table in tables if table is None]

    @model_validator(mode="after")
    def _simulates_or_trains(self) -> Scenario:
        missing = self._left_out()
        if missing and self.real is None:
            raise ValueError(f"{missing[0]} is missing: add it")
        if "workload.lengths" in missing and self.real and self.real.lengths == "workload":
            raise ValueError(
                "workload.lengths is missing: add it, or leave out real.lengths = 'workload'"
            )
        return self

    @model_validator(mode="after")
    def _costs_have_what_they_need(self) -> Scenario:
        if self.costs is not None and self.costs.model == "roofline":
            if self.cluster.card is None:
                raise ValueError(
                    "costs.model = 'roofline' needs cluster.card: name one, for example 'H200'"
                )
            if self.models is None:
                raise ValueError(
                    "costs.model = 'roofline' needs a [models] table: set actor and reward"
                )
        return self

"""The `[schedule]` table and schedule files: a schedule of the catalogue, with axes set anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field

from oppo_sim.config.bounds import MOST_AHEAD
from oppo_sim.config.errors import nearest, short
from oppo_sim.config.fields import (
    Beyond,
    Count,
    Listed,
    Natural,
    NotNegative,
    Positive,
    Rollouts,
    Table,
    Tokens,
)
from oppo_sim.policies import (
    CATALOG,
    FixedChunk,
    FixedOvercommit,
    ProbedChunk,
    RewardSlope,
    Schedule,
    StragglerShare,
)
from oppo_sim.policies.chunk import ChunkPolicy
from oppo_sim.policies.overcommit import OvercommitPolicy
from oppo_sim.policies.schedule import Share


class Fixed(Table):
    """The same number of tokens, or of rollouts, at every step."""

    policy: Literal["fixed"] = "fixed"


class FixedTokens(Fixed):
    tokens: Tokens

    def build(self) -> ChunkPolicy:
        return FixedChunk(self.tokens)


class Whole(Table):
    policy: Literal["whole"] = "whole"

    def build(self) -> None:
        return None


class Probe(Table):
    """The paper's rule: try each candidate on a step, then use the fastest."""

    policy: Literal["probe"] = "probe"
    candidates: Listed[Tokens] | None = None
    every: Count | None = None
    repeats: Count | None = None

    def build(self) -> ChunkPolicy:
        return ProbedChunk(**_knobs(self))


class FixedRollouts(Fixed):
    rollouts: Beyond

    def build(self) -> OvercommitPolicy:
        return FixedOvercommit(self.rollouts)


class ShareOfBatch(Table):
    """As many rollouts as that share of the batch, in whole groups."""

    policy: Literal["share"] = "share"
    of_batch: NotNegative

    def build(self) -> Share:
        return Share(of_batch=self.of_batch)


class Slope(Table):
    """The paper's controller: up while the reward rises, down while it does not."""

    policy: Literal["reward-slope"] = "reward-slope"
    start: Beyond | None = None
    least: Beyond | None = None
    most: Beyond | None = None
    over: Count | None = None
    step_rule: Literal["constant", "proportional"] | None = None
    up: Rollouts | None = None
    down: Rollouts | None = None

    def build(self) -> OvercommitPolicy:
        return RewardSlope(**_knobs(self))


class Stragglers(Table):
    """Follows the share of responses that are much longer than their batch's median."""

    policy: Literal["straggler-share"] = "straggler-share"
    start: Beyond | None = None
    least: Beyond | None = None
    most: Beyond | None = None
    over: Count | None = None
    gain: Positive | None = None
    long: Positive | None = None
    up: Rollouts | None = None
    down: Rollouts | None = None

    def build(self) -> OvercommitPolicy:
        return StragglerShare(**_knobs(self))


def _knobs(table: Table) -> dict[str, Any]:
    return {name: value for name, value in table.given().items() if name != "policy"}


def _is_whole_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _chunk(value: Any) -> Any:
    """A number of tokens, "whole", or a table with a policy."""
    shown = short(value)
    if value == "whole":
        return {"policy": "whole"}
    if _is_whole_number(value):
        if value < 1:
            raise ValueError(f'= {shown}: must be at least 1 token, or "whole" for no chunks')
        return {"policy": "fixed", "tokens": value}
    if isinstance(value, Mapping | Table):
        return value
    raise ValueError(f'= {shown}: must be a number of tokens, "whole", or {{ policy = ... }}')


def _overcommit(value: Any) -> Any:
    """A number of rollouts, or a table with a policy."""
    shown = short(value)
    if _is_whole_number(value):
        if value < 0:
            raise ValueError(f"= {shown}: must be at least 0 rollouts (0: none beyond the batch)")
        return {"policy": "fixed", "rollouts": value}
    if isinstance(value, Mapping | Table):
        return value
    raise ValueError(f"= {shown}: must be a number of rollouts, or {{ policy = ... }}")


Chunk = Annotated[
    Annotated[FixedTokens | Whole | Probe, Discriminator("policy")], BeforeValidator(_chunk)
]
Overcommit = Annotated[
    Annotated[FixedRollouts | ShareOfBatch | Slope | Stragglers, Discriminator("policy")],
    BeforeValidator(_overcommit),
]


def _in_catalog(name: str) -> str:
    if name not in CATALOG:
        raise ValueError(f"no schedule is called {name!r}; {nearest(name, CATALOG)}")
    return name


Named = Annotated[str, AfterValidator(_in_catalog)]


class Axes(Table):
    """Every axis of a schedule; one that is not given keeps what it was (see `Schedule`)."""

    batch: Rollouts | None = None
    group: Rollouts | None = None
    overcommit: Overcommit | None = None
    ahead: Annotated[int, Field(ge=0, le=MOST_AHEAD)] | None = None
    pool: Count | None = None
    refill: Literal["batch", "idle", "event"] | None = None
    kv_reserve_tokens: Tokens | None = None
    take: Literal["finished", "oldest"] | None = None
    surplus: Literal["keep", "drop"] | None = None
    max_staleness: Natural | None = None
    stale: Literal["keep", "wait", "drop"] | None = None
    stop: Literal["taken", "train"] | None = None
    partial: Literal["kv", "tokens", "nothing"] | None = None
    update: Literal["in_flight", "interrupt", "drain"] | None = None
    update_kv: Literal["keep", "recompute"] | None = None
    chunk: Chunk | None = None
    scoring: Literal["batch", "response", "chunk"] | None = None
    flush: Literal["round", "rollout"] | None = None

    @classmethod
    def _hint(cls, key: str, value: object, known: list[str]) -> str:
        """An axis by another name that it has."""
        return super()._hint(CALLED.get(key.lower(), key), value, known)

    def axes(self) -> dict[str, Any]:
        """What was given, as the values that a Schedule takes."""
        given = {name: value for name, value in self.given().items() if name in AXES}
        for policy in ("chunk", "overcommit"):
            if policy in given:
                given[policy] = given[policy].build()
        return given


AXES = frozenset(Axes.model_fields)
CALLED = {  # in papers and elsewhere
    "d": "overcommit",
    "delta": "overcommit",
    "oversampling": "overcommit",
    "eta": "ahead",
    "group_size": "group",
    "num_generations": "group",
}


class Defaults(Axes):
    """The `[schedule]` table of a scenario.

    `chunk` holds for schedules that stream, `overcommit` for those that steer theirs by a policy (a
    fixed number or share is what makes APRIL be APRIL), the other axes for all: a fair comparison.
    """

    name: Named  # the schedule that runs unless another is asked for


class ScheduleFile(Axes):
    """A schedule of the catalogue, changed. What it says counts more than the scenario."""

    base: Named
    name: str | None = None  # None: the file's
    about: str = ""


def compose(base: Schedule, scenario: Axes, own: Mapping[str, Any], name: str) -> Schedule:
    """`base` with the scenario's axes where they apply, then with its `own`.

    ValueError where the axes contradict each other.
    """
    axes = scenario.axes()
    if own.get("chunk", base.chunk) is None:
        axes.pop("chunk", None)
    if isinstance(base.overcommit, int | Share):
        axes.pop("overcommit", None)
    return replace(base, **{**axes, **own, "name": name})

"""The `[workload]` table: how long prompts and responses are, and what they are worth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from oppo_sim.config.bounds import MOST_LOG, MOST_PROMPTS, MOST_TOKENS
from oppo_sim.config.errors import short
from oppo_sim.config.fields import (
    AtLeastOne,
    Listed,
    NotNegative,
    Number,
    Positive,
    Rollouts,
    Share,
    Table,
    Tokens,
)

FILES = (".csv", ".jsonl")
Log = Annotated[float, Field(ge=-MOST_LOG, le=MOST_LOG, allow_inf_nan=False)]
Spread = Annotated[float, Field(gt=0, le=MOST_LOG, allow_inf_nan=False)]


def _named_or_file(value: Any) -> Any:
    if isinstance(value, str):
        return {"file" if value.lower().endswith(FILES) else "table": value}
    if isinstance(value, Mapping | Table):
        return value
    raise ValueError(
        f"= {short(value)}: must be a shipped table, a CSV or JSONL file, or one of "
        "{ constant = ... }, { exponential = ... }, { lognormal = { mu = ..., sigma = ... } }, "
        "{ gamma = ... }, { weibull = ... }, { mixture = ... }, { replay = ... }"
    )


def _replay(value: Any) -> Any:
    """A list of lengths, or the path of a file with one."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list | tuple):
        raise ValueError(f"= {short(value)}: must be a list of lengths, or a CSV or JSONL file")
    if not value:
        raise ValueError("= []: a replay needs at least one length")
    for place, tokens in enumerate(value):
        if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1:
            raise ValueError(f"[{place}] = {short(tokens)}: must be a whole number, at least 1")
        if tokens > MOST_TOKENS:
            raise ValueError(f"[{place}] = {short(tokens)}: must be at most {MOST_TOKENS:,}")
    return tuple(value)


class Lognormal(Table):
    mu: Log  # of the natural logarithm of tokens
    sigma: Spread


class Shaped(Table):
    """A gamma or a Weibull law."""

    shape: Positive
    scale_tokens: Positive


class Mixture(Table):
    """Two lognormals; the first has this weight."""

    weight: Share
    mu: Listed[Log]
    sigma: Listed[Spread]

    @model_validator(mode="after")
    def _two(self) -> Mixture:
        if self.weight == 1 or len(self.mu) != 2 or len(self.sigma) != 2:
            raise ValueError("a mixture is of two: a weight below 1, two mu and two sigma")
        return self


LAWS = ("lognormal", "gamma", "weibull", "mixture")
SOURCES = ("table", "file", "constant", "exponential", *LAWS, "replay")


class Lengths(Table):
    """Where response lengths come from: exactly one source.

    In TOML a text is short for `table` or, if it ends in .csv or .jsonl, for `file`.
    """

    table: str | None = None  # a shipped quantile table
    file: str | None = None  # measured lengths, of which each rollout draws one
    cut_at_tokens: Tokens | None = None  # where whoever measured the file cut them
    constant: Tokens | None = None
    exponential: AtLeastOne | None = None  # its mean
    lognormal: Lognormal | None = None  # these four are fitted by `oppo lengths fit`
    gamma: Shaped | None = None
    weibull: Shaped | None = None
    mixture: Mixture | None = None
    endless: Share | None = None  # the share of a law's responses that never ends by itself
    replay: Annotated[tuple[Tokens, ...] | str | None, BeforeValidator(_replay)] = None  # in order

    @model_validator(mode="after")
    def _one_source(self) -> Lengths:
        given = [name for name in SOURCES if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of {', '.join(SOURCES)}, not {given or 'none'}")
        if self.endless is not None and (self.endless == 1 or given[0] not in LAWS):
            raise ValueError(f"endless is a share below 1, and goes with {', '.join(LAWS)}")
        if self.cut_at_tokens is not None and self.file is None:
            raise ValueError("cut_at_tokens goes with file: the other sources say it themselves")
        return self


class Reward(Table):
    """What every kind of reward has."""

    # Assumed: an update is worth 1 / (1 + stale_penalty * mean staleness of its batch) fresh ones.
    stale_penalty: NotNegative = 0.0


class Saturating(Reward):
    """Its mean at weights version v: start + (plateau - start) * (1 - exp(-v / tau_steps))."""

    start: Number
    plateau: Number
    tau_steps: Positive
    noise: NotNegative  # standard deviation of a single rollout's reward


class Points(Reward):
    """Its mean at some steps, straight lines between them."""

    points: Listed[Listed[Number]]  # [[step, reward], ...]
    noise: NotNegative

    @model_validator(mode="after")
    def _pairs(self) -> Points:
        for place, point in enumerate(self.points):
            if len(point) != 2:
                raise ValueError(f"points[{place}] = {list(point)}: must be [step, reward]")
        return self


class Curve(Reward):
    """One of the paper's curves."""

    curve: str  # a name in oppo_sim/data/reward_curves.csv
    noise: NotNegative


def _kind(reward: Any) -> str:
    """The tag of a reward; `_tag` because tags must not look like keys in an error's path."""
    has = reward if isinstance(reward, Mapping) else getattr(reward, "model_fields_set", ())
    return next((f"{key}_tag" for key in ("points", "curve") if key in has), "saturating_tag")


AnyReward = Annotated[
    Annotated[Saturating, Tag("saturating_tag")]
    | Annotated[Points, Tag("points_tag")]
    | Annotated[Curve, Tag("curve_tag")],
    Discriminator(_kind),
]


class Drift(Table):
    """Log lengths by step: per_step * s + a(s), with a(s) = ar * a(s - 1) + noise * normal."""

    per_step: Log = 0.0
    ar: Annotated[float, Field(ge=-1, le=1, allow_inf_nan=False)] = 0.0
    noise: Annotated[float, Field(ge=0, le=MOST_LOG, allow_inf_nan=False)] = 0.0


class Workload(Table):
    lengths: Annotated[Lengths, BeforeValidator(_named_or_file)] | None = None  # None: a model's
    max_response_tokens: Tokens  # longer ones are cut there
    max_prompt_tokens: Tokens | None = None  # memory is reserved for it; None: the longest there is
    prompt_tokens: Tokens | None = None  # of every prompt; None: those that came with the lengths
    reward: AnyReward | None = None  # None: of a real run, which scores its own
    prompt_effect: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.0  # of log-variance
    group: Rollouts | None = None  # responses to a prompt; None: the schedule's, with prompt_effect
    # so many prompts, then the same again; None: always new ones
    prompt_set: Annotated[int, Field(ge=1, le=MOST_PROMPTS)] | None = None
    drift: Drift | None = None  # the schedule's batch says what a step is

    @model_validator(mode="after")
    def _replay_fits(self) -> Workload:
        replay = None if self.lengths is None else self.lengths.replay
        if isinstance(replay, tuple) and max(replay) > self.max_response_tokens:
            place, longest = max(enumerate(replay), key=lambda entry: entry[1])
            raise ValueError(
                f"lengths.replay[{place}] = {longest} is above max_response_tokens = "
                f"{self.max_response_tokens}: a record is never cut, so raise max_response_tokens "
                f"to {longest} or replay another list"
            )
        prompt, most = self.prompt_tokens, self.max_prompt_tokens
        if prompt is not None and most is not None and prompt > most:
            raise ValueError(
                f"prompt_tokens = {prompt} is above max_prompt_tokens = {most}: "
                f"raise that to {prompt}, or leave it out"
            )
        return self

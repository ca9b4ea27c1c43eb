"""The `[workload]` table: how long prompts and responses are, and what they are worth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, model_validator

from oppo_sim.config.fields import AtLeastOne, Count, Number, Positive, Seconds, Table

FILES = (".csv", ".jsonl")


def _named_or_file(value: Any) -> Any:
    if isinstance(value, str):
        return {"file" if value.lower().endswith(FILES) else "table": value}
    if isinstance(value, Mapping | Table):
        return value
    raise ValueError(
        f"= {value!r}: must be a shipped table, a CSV or JSONL file, or one of "
        "{ constant = ... }, { exponential = ... }, { replay = ... }"
    )


def _replay(value: Any) -> Any:
    """A list of lengths, or the path of a file with one."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list | tuple):
        raise ValueError(f"= {value!r}: must be a list of lengths, or a CSV or JSONL file")
    if not value:
        raise ValueError("= []: a replay needs at least one length")
    for place, tokens in enumerate(value):
        if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1:
            raise ValueError(f"[{place}] = {tokens!r}: must be a whole number, at least 1")
    return tuple(value)


class Lengths(Table):
    """Where response lengths come from: exactly one source.

    In TOML a text is short for `table` or, if it ends in .csv or .jsonl, for `file`.
    """

    table: str | None = None  # a shipped quantile table
    file: str | None = None  # measured lengths, of which each rollout draws one
    cut_at_tokens: Count | None = None  # where whoever measured the file cut them
    constant: Count | None = None
    exponential: AtLeastOne | None = None  # its mean
    replay: Annotated[tuple[int, ...] | str | None, BeforeValidator(_replay)] = None  # in order

    @model_validator(mode="after")
    def _one_source(self) -> Lengths:
        sources = ("table", "file", "constant", "exponential", "replay")
        given = [name for name in sources if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of {', '.join(sources)}, not {given or 'none'}")
        if self.cut_at_tokens is not None and self.file is None:
            raise ValueError("cut_at_tokens goes with file: the other sources say it themselves")
        return self


class Reward(Table):
    """Its mean at weights version v: start + (plateau - start) * (1 - exp(-v / tau_steps))."""

    start: Number
    plateau: Number
    tau_steps: Positive
    noise: Seconds  # standard deviation of a single rollout's reward


class Workload(Table):
    lengths: Annotated[Lengths, BeforeValidator(_named_or_file)]
    max_response_tokens: Count  # longer ones are cut there
    max_prompt_tokens: Count | None = None  # memory is reserved for it; None: the longest there is
    prompt_tokens: Count | None = None  # of every prompt; None: those that came with the lengths
    reward: Reward

    @model_validator(mode="after")
    def _replay_fits(self) -> Workload:
        replay = self.lengths.replay
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

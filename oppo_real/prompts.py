"""Prompts from a JSONL file: which one a rollout gets is a pure function of its number."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from oppo_real.errors import ModelError

Encode = Callable[[str], Sequence[int]]


class Prompt(NamedTuple):
    """A line of the file."""

    ids: tuple[int, ...]
    place: str = ""  # file:line
    columns: Mapping[str, Any] = {}  # what else stands there; reward functions may ask for it


class Prompts:
    """Token ids by rollout. All are gone through, in an order of the seed's, then all anew.

    A group's rollouts share a prompt. Raises ModelError where there is none.
    """

    def __init__(self, prompts: Sequence[Prompt], *, seed: int, group: int = 1) -> None:
        if not prompts:
            raise ModelError("real.prompts: there is no prompt; give at least one")
        self._prompts = prompts
        self._seed, self._group = seed, group
        self._order = lru_cache(maxsize=4)(self._shuffled)

    def __len__(self) -> int:
        return len(self._prompts)

    @property
    def longest(self) -> int:
        """Tokens of the longest one."""
        return max(len(prompt.ids) for prompt in self._prompts)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Prompts, seed=self._seed, group=self._group), (self._prompts,)

    def __call__(self, rollout: int) -> tuple[int, ...]:
        return self._of(rollout).ids

    def beside(self, rollout: int) -> tuple[str, Mapping[str, Any]]:
        """Where a rollout's prompt stands, and its columns."""
        prompt = self._of(rollout)
        return prompt.place, prompt.columns

    def check_columns(self, needed: Sequence[str], field: str) -> None:
        """ModelError naming the first prompt that lacks one."""
        for prompt in self._prompts:
            for name in needed:
                if name not in prompt.columns:
                    raise ModelError(
                        f"{field}: asks for {name!r}, which {prompt.place} does not have; add it "
                        "to every prompt, or give the parameter a default"
                    )

    def _of(self, rollout: int) -> Prompt:
        epoch, place = divmod(rollout // self._group, len(self._prompts))
        return self._prompts[self._order(epoch)[place]]

    def _shuffled(self, epoch: int) -> list[int]:
        order = np.random.default_rng((self._seed, epoch)).permutation(len(self._prompts))
        return [int(place) for place in order]


def read_prompts(
    file: Path, encode: Encode | None, vocabulary: int, tokenizer: str = ""
) -> list[Prompt]:
    """One prompt a line: `prompt_ids`, or `prompt` as text where there is a tokenizer to `encode`.

    What else a line has are its columns. `tokenizer`: how errors name who encodes.
    Raises ModelError naming the line.
    """
    prompts = []
    try:
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    prompts.append(_prompt(line, encode, vocabulary, f"{file}:{number}", tokenizer))
    except OSError as error:
        raise ModelError(f"real.prompts: cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ModelError(f"real.prompts: {file} is not UTF-8 text; give JSONL") from None
    if not prompts:
        raise ModelError(f"real.prompts: {file} has no prompt; give at least one line")
    return prompts


def _prompt(
    line: str, encode: Encode | None, vocabulary: int, where: str, tokenizer: str
) -> Prompt:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{where}: not JSON ({error})") from None
    if not isinstance(row, dict):
        raise ModelError(f"{where}: must be an object with `prompt` or `prompt_ids`")
    ids, text = row.get("prompt_ids"), row.get("prompt")
    if ids is None and isinstance(text, str):
        if encode is None:
            raise ModelError(
                f"{where}: `prompt` is text, and there is no tokenizer: set real.tokenizer, or "
                "give `prompt_ids`"
            )
        ids = list(encode(text))
        if text.strip() and not ids:
            raise ModelError(
                f"{where}: the tokenizer {tokenizer} makes no token of {text!r:.60}; give another "
                "as real.tokenizer, or `prompt_ids`"
            )
    if not isinstance(ids, list) or any(type(i) is not int for i in ids):
        raise ModelError(f"{where}: needs `prompt`, a text, or `prompt_ids`, a list of token ids")
    if not ids:
        raise ModelError(f"{where}: the prompt is empty; give at least one token")
    wrong = [i for i in ids if not 0 <= i < vocabulary]
    if wrong:
        raise ModelError(
            f"{where}: token id {wrong[0]} is not in the actor's vocabulary of {vocabulary}"
        )
    columns = {name: value for name, value in row.items() if name not in ("prompt", "prompt_ids")}
    return Prompt(tuple(ids), where, columns)

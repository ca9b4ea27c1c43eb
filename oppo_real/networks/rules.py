"""A function of the user's as the reward: found by its name, called with texts and columns."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from inspect import Parameter
from pathlib import Path
from traceback import walk_tb
from types import TracebackType
from typing import Any, NamedTuple

from oppo_real.errors import ModelError

Rule = Callable[..., float]
# of a rollout: where its prompt stands, and what stands beside it there
Row = Callable[[int], tuple[str, Mapping[str, Any]]]
_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


class Columns(NamedTuple):
    """What a rule takes beyond prompt and response, by the names of its parameters."""

    needed: tuple[str, ...]
    known: tuple[str, ...]  # those with a default included
    taken: tuple[str, ...]  # prompt and response, however they are called
    rest: bool  # **columns: all there are

    def of(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments of one call."""
        if self.rest:
            return {name: value for name, value in columns.items() if name not in self.taken}
        return {name: columns[name] for name in self.known if name in columns}


class RuleReward:
    """A function of (prompt, response) as the reward: texts, or token ids without `decode`.

    Parameters after these two are columns of the prompts file, given by name: `def f(prompt,
    response, *, answer)`, or `**columns` for all of them. TRL's reward functions are named like
    that, but take lists; this one is called once for every response.
    """

    def __init__(
        self,
        function: Rule,
        decode: Callable[[list[int]], str] | None = None,
        row: Row = lambda rollout: ("", {}),
    ) -> None:
        self._function, self._decode, self._row = function, decode, row
        self.columns = columns_of(function)

    def beside(self, row: Row) -> RuleReward:
        """The same, where prompts have columns."""
        return RuleReward(self._function, self._decode, row)

    def __call__(self, rollout: int, prompt: list[int], response: list[int]) -> float:
        place, columns = self._row(rollout)
        texts = (self._decode(prompt), self._decode(response)) if self._decode else None
        at = f"rollout {rollout}{place and f', {place}'}: the reward function"
        try:
            value = self._function(*(texts or (prompt, response)), **self.columns.of(columns))
        except Exception as error:
            where = _where(error.__traceback__, self._function)
            raise ModelError(
                f"{at} failed with {type(error).__name__}: {error} ({where}); it must return a "
                "number for every response"
            ) from error
        try:
            return float(value)
        except (TypeError, ValueError) as error:
            raise ModelError(
                f"{at} returned {value!r:.80} ({_where(None, self._function)}); it must return a "
                "number for every response"
            ) from error


def is_rule(source: str) -> bool:
    """Whether `real.reward` names a function, as package.module:function does."""
    return _NAME.fullmatch(source) is not None


def load_rule(source: str) -> Rule:
    """The function at `package.module:function`; modules of the working directory count."""
    field = f"real.reward = {source!r}"
    if not is_rule(source):
        raise ModelError(f"{field}: must be package.module:function")
    module_name, name = source.split(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever the user's module raises
        raise ModelError(
            f"{field}: cannot import {module_name} ({type(error).__name__}: {error}); it must be "
            "installed or in the working directory"
        ) from error
    function = getattr(module, name, None)
    if function is None:
        raise ModelError(f"{field}: {module_name} has no {name}; write one that takes two texts")
    try:
        needed = dict.fromkeys(columns_of(function).needed)
        inspect.signature(function).bind("prompt", "response", **needed)
    except (TypeError, ValueError):
        raise ModelError(
            f"{field}: cannot be called as {name}(prompt, response); it takes two texts, and "
            "columns of the prompts by name, and returns a number"
        ) from None
    found: Rule = function
    return found


def columns_of(function: Rule) -> Columns:
    """By its signature; TypeError or ValueError where it has none."""
    parameters = inspect.signature(function).parameters.values()
    places = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    taken = [p.name for p in parameters if p.kind in places][:2]
    named = [p for p in parameters if p.kind in _NAMED and p.name not in taken]
    return Columns(
        needed=tuple([p.name for p in named if p.default is Parameter.empty]),
        known=tuple([p.name for p in named]),
        taken=tuple(taken),
        rest=any(p.kind is Parameter.VAR_KEYWORD for p in parameters),
    )


def _where(trace: TracebackType | None, function: Rule) -> str:
    """file:line of the last frame in the user's own file; without one, of the function."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:  # no function of Python's
        return getattr(function, "__qualname__", repr(function))
    lines = [line for frame, line in walk_tb(trace) if frame.f_code.co_filename == code.co_filename]
    return f"{code.co_filename}:{lines[-1] if lines else code.co_firstlineno}"

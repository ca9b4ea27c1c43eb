"""What each rollout brings with it: prompt, response length, why it stops, and its reward."""

from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from oppo_sim.workload.checks import whole
from oppo_sim.workload.effects import Course, Effects, drifted, mixed, of_prompts
from oppo_sim.workload.lengths import Constant, Lengths, Replay
from oppo_sim.workload.rewards import Rewards
from oppo_sim.workload.streams import (
    BLOCK,
    BLOCK_BITS,
    MAX_SEED,
    WITHIN,
    Blocks,
    Purpose,
    normals,
    uniforms,
)

StopReason = Literal["stop", "cap"]
Source = Lengths | Replay
NO_EFFECTS = Effects()


@dataclass(frozen=True)
class Summary:
    """The lengths of a workload under its cap, in tokens; `max_tokens` is the longest possible."""

    mean_tokens: float
    p50_tokens: float
    p99_tokens: float
    max_tokens: int
    share_at_cap: float
    prompt_mean_tokens: float


class Workload:
    """Lengths and rewards of rollouts 0, 1, 2, ...: functions of (seed, rollout), drawn lazily.

    A raw length above `cap_tokens` is censored: the response has cap_tokens tokens and the reason
    is "cap"; one of exactly cap_tokens stops by itself. `prompts` is a source, a constant number of
    tokens, or None for the prompts that `lengths` itself has; they are drawn from their own stream,
    so independently of the response (in maths data the two are correlated, 0.4-0.55). `effects`
    makes rollouts depend on each other, by prompt and by step; each effect has its own stream, so
    that without them everything is drawn as if they did not exist.

    Raises ValueError for a cap above what the source knows, a replayed length above the cap, no
    prompts anywhere, effects on a replay, and a replay asked for more rollouts than it holds.
    """

    def __init__(
        self,
        lengths: Source,
        *,
        cap_tokens: int,
        rewards: Rewards,
        seed: int,
        prompts: Source | int | None = None,
        effects: Effects = NO_EFFECTS,
    ) -> None:
        self.lengths = lengths
        self.cap_tokens = whole("cap_tokens", cap_tokens)
        self.rewards = rewards
        self.seed = whole("seed", seed, least=0, most=MAX_SEED)
        self.prompts = _prompts_of(lengths) if prompts is None else _source(prompts)
        self.effects = effects
        _refuse_unknown(lengths, self.cap_tokens)
        _refuse_effects(lengths, self.prompts, effects)
        course = None if effects.drift is None else Course(effects.drift, self.seed)
        self._raw: Blocks[int] = Blocks(partial(_responses, lengths, self.seed, effects, course))
        self._prompt: Blocks[int] = Blocks(partial(_prompts, self.prompts, self.seed, effects))
        self._noise: Blocks[float] = Blocks(partial(_draw_noise, rewards.noise, self.seed))

    def response_tokens(self, rollout: int) -> int:
        """Tokens of the response when it ends, by itself or at the cap."""
        try:
            raw = self._raw[rollout >> BLOCK_BITS][rollout & WITHIN]
        except IndexError:
            raise _past_end(self.lengths, rollout) from None
        return raw if raw < self.cap_tokens else self.cap_tokens

    def stop_reason(self, rollout: int) -> StopReason:
        """Why the response ends: "cap" if it would have gone on."""
        try:
            raw = self._raw[rollout >> BLOCK_BITS][rollout & WITHIN]
        except IndexError:
            raise _past_end(self.lengths, rollout) from None
        return "cap" if raw > self.cap_tokens else "stop"

    def prompt_tokens(self, rollout: int) -> int:
        """Tokens of the prompt."""
        try:
            return self._prompt[rollout >> BLOCK_BITS][rollout & WITHIN]
        except IndexError:
            raise _past_end(self.prompts, rollout) from None

    def reward(self, rollout: int, updates: float) -> float:
        """The reward of a rollout decoded by the weights after so many (fresh) updates."""
        noise = self._noise[rollout >> BLOCK_BITS][rollout & WITHIN]
        return self.rewards.mean(updates) + noise

    def responses(self, rollouts: range) -> list[int]:
        """`response_tokens` of rollouts in a row at once."""
        if rollouts.step != 1:
            raise ValueError(f"rollouts must be in a row, not {rollouts!r}")
        raw: list[int] = []
        for block in range(rollouts.start >> BLOCK_BITS, (rollouts.stop + WITHIN) >> BLOCK_BITS):
            first = block << BLOCK_BITS
            raw += self._raw[block][max(rollouts.start - first, 0) : rollouts.stop - first]
        if len(raw) < len(rollouts):
            raise _past_end(self.lengths, rollouts.stop - 1)
        cap = self.cap_tokens
        return [tokens if tokens < cap else cap for tokens in raw]

    def describe(self) -> Summary:
        """Exact for a replay; otherwise of the law without drift, on 65,536 probabilities."""
        raw = _population(self.lengths)
        capped = np.minimum(raw, self.cap_tokens)
        p50, p99 = np.quantile(capped, (0.5, 0.99)).tolist()
        return Summary(
            mean_tokens=float(capped.mean()),
            p50_tokens=p50,
            p99_tokens=p99,
            max_tokens=min(_longest(self.lengths), self.cap_tokens),
            share_at_cap=float((raw > self.cap_tokens).mean()),
            prompt_mean_tokens=float(_population(self.prompts).mean()),
        )


def _source(prompts: Source | int) -> Source:
    if isinstance(prompts, int):
        return Constant(whole("prompts", prompts))
    return prompts


def _prompts_of(lengths: Source) -> Source:
    if lengths.prompts is None:
        raise ValueError(
            f"{lengths!r} has no prompt_tokens of its own: give prompts, a number of tokens or the"
            " prompts of another table"
        )
    return lengths.prompts


def _refuse_unknown(lengths: Source, cap_tokens: int) -> None:
    if isinstance(lengths, Replay):
        lengths.refuse_above(cap_tokens)
    elif lengths.known_tokens is not None and cap_tokens > lengths.known_tokens:
        raise ValueError(
            f"cap_tokens must be <= {lengths.known_tokens} with {lengths!r}, not {cap_tokens}: the"
            f" source cut its responses at {lengths.known_tokens} tokens, so how long they would"
            " have been is not known; lower cap_tokens or take lengths with a higher cap"
        )


def _refuse_effects(lengths: Source, prompts: Source, effects: Effects) -> None:
    changed = effects.prompt_effect > 0 or effects.drift is not None
    for source, is_changed in ((lengths, changed), (prompts, effects.share_prompts)):
        if is_changed and isinstance(source, Replay):
            raise ValueError(
                f"{source.name} is replayed as it was recorded: a prompt effect, a drift, groups"
                " and a set of prompts go with lengths that are drawn"
            )


def _responses(
    source: Source, seed: int, effects: Effects, course: Course | None, block: int
) -> list[int]:
    if isinstance(source, Replay):
        return _recorded(source, block)
    u = uniforms(seed, Purpose.RESPONSE, block)
    if effects.prompt_effect:
        of_block = partial(normals, seed, Purpose.PROMPT_EFFECT)
        u = mixed(u, of_prompts(effects.prompts(block), of_block), effects.prompt_effect)
    raw = source.ppf(u)
    if course is not None:
        raw = drifted(raw, course.log_factors(effects.steps(block)), source.known_tokens)
    tokens: list[int] = raw.tolist()
    return tokens


def _prompts(source: Source, seed: int, effects: Effects, block: int) -> list[int]:
    if isinstance(source, Replay):
        return _recorded(source, block)
    of_block = partial(uniforms, seed, Purpose.PROMPT)
    u = of_prompts(effects.prompts(block), of_block) if effects.share_prompts else of_block(block)
    tokens: list[int] = source.ppf(u).tolist()
    return tokens


def _recorded(source: Replay, block: int) -> list[int]:
    return list(source.response_tokens[block * BLOCK : (block + 1) * BLOCK])


def _draw_noise(scale: float, seed: int, block: int) -> list[float]:
    drawn: list[float] = (scale * normals(seed, Purpose.REWARD, block)).tolist()
    return drawn


def _past_end(source: Source, rollout: int) -> Exception:
    return source.too_short(rollout) if isinstance(source, Replay) else IndexError(rollout)


def _population(source: Source) -> NDArray[np.int64]:
    if isinstance(source, Replay):
        return np.asarray(source.response_tokens, dtype=np.int64)
    return source.ppf((np.arange(65536) + 0.5) / 65536)


def _longest(source: Source) -> int:
    if isinstance(source, Replay):
        return max(source.response_tokens)
    return int(source.ppf(np.array([1 - 2.0**-53]))[0])

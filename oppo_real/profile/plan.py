"""Which points of each task are measured: what the schedules of a scenario can ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oppo_sim.config import Scenario
from oppo_sim.engine import Limits
from oppo_sim.policies import FixedChunk, ProbedChunk, Schedule

TINY = 4  # tokens of rows that show what an update costs besides its tokens
MOST_BATCHES = 4  # in flight: what is measured, whatever a schedule may have


@dataclass(frozen=True)
class Plan:
    """`prompt` and `longest` in tokens of a row; `chunks` are those that schedules stream."""

    batch: int
    most: int  # rollouts in flight
    prompt: int
    longest: int
    chunks: tuple[int, ...]
    micro_rows: int  # of one micro-batch
    minis: int

    @property
    def batches(self) -> list[int]:
        """Of decoding: doubling up to the most."""
        found = {self.batch, self.most}
        size = 1
        while size < self.most:
            found.add(size)
            size *= 2
        return sorted(found, reverse=True)

    @property
    def between(self) -> list[int]:
        """Batches of decoding besides, an eighth apart: kernels suit some better than others."""
        found, size = [], 1
        while size < self.most:
            found.append(size)
            size += max(1, size // 8)
        return sorted({*found} - {*self.batches}, reverse=True)

    @property
    def contexts(self) -> list[int]:
        first, last = self.prompt + 1, self.longest - 12
        return sorted({first, (first + last) // 2, last}) if last > first + 8 else [first]

    @property
    def decoding(self) -> list[tuple[int, int]]:
        """Batches and contexts; of small batches the ends, between which times hardly bend, and
        one in the middle of those between: they have the slopes of their neighbours."""
        longest = sorted(self.contexts, reverse=True)
        ends = [
            (rows, context)
            for rows in self.batches
            for context in (longest if rows >= self.batch else [longest[0], longest[-1]])
        ]
        return ends + [(rows, longest[len(longest) // 2]) for rows in self.between]

    @property
    def widths(self) -> list[int]:
        """Of whole rows, doubling down from the longest."""
        found: list[int] = []
        width = self.longest
        while width > self.prompt and len(found) < 4:
            found.append(width)
            width //= 2
        return sorted({*found, self.prompt + min(self.chunks, default=8)})

    @property
    def opening(self) -> list[tuple[int, int]]:
        """Rows and width of scores that open rows; not all rows are the longest at once."""
        most, widths = 0.6 * self.batch * self.longest, [self.prompt + 1, *self.widths]
        return [(n, w) for n in self._some for w in widths if n == 1 or n * w <= most]

    @property
    def going_on(self) -> list[tuple[int, int, int]]:
        """Rows, tokens and context of scores that go on with rows."""
        found = []
        for chunk in self.chunks:
            sizes = [(rows, tokens) for tokens in (chunk // 4, chunk) for rows in self._some]
            # the end of a response; what has waited for a scorer that was busy
            sizes += [(1, 1), (self.batch, 2 * chunk), (self.most, 2 * chunk)]
            for rows, tokens in sizes:
                for context in (self.prompt + chunk, self.longest - 3 * tokens):
                    if tokens and context > self.prompt:
                        found.append((rows, tokens, context))
        return [*dict.fromkeys(found)]

    @property
    def _some(self) -> list[int]:
        return sorted({1, max(1, self.batch // 4), self.batch})


def plan_of(scenario: Scenario, schedules: Sequence[Schedule], limits: Limits) -> Plan:
    batch = max(schedule.batch for schedule in schedules)
    flights = [(1 + s.ahead) * s.batch + s.overcommit_policy.most for s in schedules]
    chunks: set[int] = set()
    for schedule in schedules:
        match schedule.chunk_policy:
            case FixedChunk(tokens=tokens):
                chunks.add(tokens)
            case ProbedChunk(candidates=candidates):
                chunks.update(candidates)
    real = scenario.real
    assert real is not None
    minis = real.ppo.num_mini_batches
    part = -(-batch // minis)
    cap = limits.response_tokens
    return Plan(
        batch=batch,
        most=min(max(flights), MOST_BATCHES * batch, scenario.cluster.slots or max(flights)),
        prompt=limits.prompt_tokens,
        longest=limits.prompt_tokens + cap,
        chunks=tuple(sorted([chunk for chunk in chunks if chunk < cap])),
        micro_rows=min(real.ppo.micro_batch or part, part),
        minis=minis,
    )

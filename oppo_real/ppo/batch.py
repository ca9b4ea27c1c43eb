"""What a trainer is given: finished rollouts, checked, and laid out as tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from oppo_real.networks.logprobs import Targets
from oppo_sim.engine.contract import EngineError


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Sequences run along `rollouts`, inner ones along a response of any length.

    `values[r][t]` is the critic's at the token before response token t. How a row ended is carried,
    never read off its tokens: a pad token may be sampled, and a row cut at the cap may end in EOS.
    """

    rollouts: Sequence[int]
    prompts: Sequence[Sequence[int]]
    responses: Sequence[Sequence[int]]
    logprobs: Sequence[Sequence[float]]  # as sampled
    rewards: Sequence[float]
    ended: Sequence[Literal["stop", "cap"]]
    versions: Sequence[Sequence[int]]  # of the weights that decoded each token
    reference: Sequence[Sequence[float]] | None = None  # None: not streamed
    values: Sequence[Sequence[float]] | None = None


def check(batch: Batch, update: int) -> None:
    """Refuse a batch that must not be trained on, naming the rollout."""
    if not batch.rollouts or len(set(batch.rollouts)) < len(batch.rollouts):
        raise EngineError(
            f"update {update} needs different rollouts, at least one: {batch.rollouts}"
        )
    for row, rollout in enumerate(batch.rollouts):
        problem = _problem(batch, row, update)
        if problem:
            raise EngineError(f"rollout {rollout}: {problem}; update {update} trained nothing")


def _problem(batch: Batch, row: int, update: int) -> str | None:
    tokens = len(batch.responses[row])
    if not len(batch.prompts[row]):
        return "its prompt is empty"
    if not tokens:
        return "its response is empty"
    if not math.isfinite(batch.rewards[row]):
        return f"its reward is {batch.rewards[row]}"
    if batch.ended[row] not in ("stop", "cap"):
        return f"it ended by {batch.ended[row]!r}, not by 'stop' or 'cap'"
    if max(batch.versions[row], default=update) > update:
        return f"its tokens' versions {batch.versions[row]} are ahead of the weights"
    along = {"logprobs": batch.logprobs, "reference": batch.reference, "values": batch.values}
    for name, rows in along.items():
        if rows is None:
            continue
        if len(rows[row]) != tokens:
            return f"{len(rows[row])} {name} for {tokens} tokens"
        bad = [t for t, value in enumerate(rows[row]) if not math.isfinite(value)]
        if bad:
            return f"{name}[{bad[0]}] is {rows[row][bad[0]]}"
    return None


class Piece(NamedTuple):
    """Some rows, for one forward: what to feed, and where the N tokens' states are then found."""

    ids: Tensor  # [b, W] prompt and response, padded on the right
    at: tuple[Tensor, Tensor]  # [N] each: row of `ids`, position of the token before
    place: tuple[Tensor, Tensor]  # [N] each: row and token in the batch's [B, T]
    targets: Targets


class Rows:
    """A batch as tensors, its rows sorted by rollout, so that their order of arrival is no matter.

    `width` is T, the longest response. Numbers are of `dtype`, rounded to float32: so in float64,
    rows that were scored in other chunks, which moves their last bits, train to the same weights.
    """

    def __init__(self, batch: Batch, device: torch.device, dtype: torch.dtype) -> None:
        order = sorted(range(len(batch.rollouts)), key=batch.rollouts.__getitem__)
        self._device, self._dtype, self._order = device, dtype, order
        self.rollouts = [int(batch.rollouts[row]) for row in order]
        self._prompts = [len(batch.prompts[row]) for row in order]
        self.counts = [len(batch.responses[row]) for row in order]
        self.width = max(self.counts)
        self._ids = [
            torch.tensor([*batch.prompts[row], *batch.responses[row]], dtype=torch.long)
            for row in order
        ]
        self.lengths = torch.tensor(self.counts, device=device)
        self.rewards = self._numbers([batch.rewards[row] for row in order])
        stopped = [batch.ended[row] == "stop" for row in order]
        self.stopped = torch.tensor(stopped, device=device)
        self.logprobs = self._padded(batch.logprobs)
        self.reference = None if batch.reference is None else self._padded(batch.reference)
        self.values = None if batch.values is None else self._padded(batch.values)

    def __len__(self) -> int:
        return len(self.rollouts)

    def by_length(self, rows: Sequence[int], at_a_time: int | None) -> list[list[int]]:
        """Rows cut into parts of like length: short rows are not padded to the longest's width."""
        if at_a_time is None or at_a_time >= len(rows):
            return [list(rows)]
        ordered = sorted(rows, key=lambda row: len(self._ids[row]))
        return [ordered[i : i + at_a_time] for i in range(0, len(ordered), at_a_time)]

    def piece(self, rows: Sequence[int], counts: Sequence[int]) -> Piece:
        """These rows of the batch with the first `counts[row]` places of each.

        A place one past the last token (`ppo.value_lengths`) has no target: its token reads 0.
        """
        ids = pad_sequence([self._ids[row] for row in rows], batch_first=True)
        taken = torch.tensor([counts[row] for row in rows])
        inside = torch.repeat_interleave(torch.arange(len(rows)), taken)
        t = torch.arange(len(inside)) - torch.repeat_interleave(taken.cumsum(0) - taken, taken)
        before = torch.tensor([self._prompts[row] - 1 for row in rows])[inside] + t
        last = torch.tensor([self._prompts[row] + self.counts[row] - 1 for row in rows])[inside]
        tokens = torch.where(before < last, ids[inside, (before + 1).clamp(max=last)], 0)
        row = torch.tensor(list(rows))[inside]
        rollouts = torch.tensor(self.rollouts)[row]
        to = self._device
        return Piece(
            ids.to(to),
            (inside.to(to), before.to(to)),
            (row.to(to), t.to(to)),
            Targets(tokens.to(to), rollouts.to(to), t.to(to)),
        )

    def _numbers(self, numbers: Sequence[float]) -> Tensor:
        return torch.as_tensor(numbers, dtype=torch.float32).to(self._device, self._dtype)

    def _padded(self, rows: Sequence[Sequence[float]]) -> Tensor:
        tensors = [torch.as_tensor(rows[row], dtype=torch.float32) for row in self._order]
        return pad_sequence(tensors, batch_first=True).to(self._device, self._dtype)

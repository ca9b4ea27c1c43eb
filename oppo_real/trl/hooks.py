"""The four hooks by which TRL's unmodified `PPOTrainer.train()` trains on rollouts of another's.

`train()` asks its dataloader for queries, and three functions of its module for what belongs to
them: `batch_generation` for responses, `selective_log_softmax` for their log-probabilities,
`get_reward` for scores. While it runs, these four answer with a batch that was made elsewhere;
whatever else they are asked - the reference, the values, the update's own log-probabilities - goes
to TRL's own functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from oppo_real.ppo.batch import Batch
from oppo_sim.engine.contract import EngineError

HOOKED = ("batch_generation", "selective_log_softmax", "get_reward")


def train_on(trainer: Any, module: ModuleType, batches: Iterator[Batch]) -> None:
    """`trainer.train()`, an update on each batch, its rows in the batch's order.

    `module` is TRL's; it and the trainer are left as they were, whatever happens.
    """
    hooks = _Hooks(module, trainer.reward_model)
    dataloader = trainer.dataloader
    pad, device = trainer.processing_class.pad_token_id, trainer.accelerator.device
    dtype = next(trainer.reward_model.parameters()).dtype
    loader = _Loader(dataloader, batches, hooks, lambda batch: lay(batch, pad, device, dtype))
    kept = {name: getattr(module, name) for name in HOOKED}
    try:
        for name in HOOKED:
            setattr(module, name, getattr(hooks, name))
        trainer.dataloader = loader
        trainer.train()
        hooks.settle()
    finally:
        trainer.dataloader = dataloader
        for name, function in kept.items():
            setattr(module, name, function)
        loader.end()


class Laid(NamedTuple):
    """A batch as TRL has it: queries padded on the left, responses on the right."""

    queries: Tensor  # [B, Q]
    query_responses: Tensor  # [B, Q + T]
    logprobs: Tensor  # [B, T]; TRL masks what lies beyond a response
    scores: Tensor  # [B]


def lay(batch: Batch, pad: int, device: torch.device, score_dtype: torch.dtype) -> Laid:
    """`score_dtype`: the reward model's; TRL takes penalties off scores of that precision."""
    queries = torch.tensor(_filled(batch.prompts, pad, left=True), device=device)
    responses = torch.tensor(_filled(batch.responses, pad), device=device)
    return Laid(
        queries,
        torch.cat((queries, responses), 1),
        torch.tensor(_filled(batch.logprobs, 0.0), dtype=torch.float32, device=device),
        torch.tensor(list(batch.rewards), dtype=score_dtype, device=device),
    )


def _filled(rows: Sequence[Sequence[Any]], value: Any, *, left: bool = False) -> list[list[Any]]:
    width = max(map(len, rows))
    fill = [[value] * (width - len(row)) for row in rows]
    return [[*f, *row] if left else [*row, *f] for f, row in zip(fill, rows, strict=True)]


class _Hooks:
    """Stands in for three functions of TRL's module; each knows by its arguments who asks."""

    def __init__(self, module: ModuleType, reward_model: Any) -> None:
        self._generation, self._softmax, self._reward = (getattr(module, n) for n in HOOKED)
        self._reward_model = reward_model
        self._laid: Laid | None = None
        self._asked = dict.fromkeys(HOOKED, 0)  # rows of the batch that TRL has asked for

    def give(self, laid: Laid) -> None:
        self._laid = laid
        self._asked = dict.fromkeys(HOOKED, 0)

    def settle(self) -> None:
        """The update is done. Were its rollouts ours?"""
        rows = 0 if self._laid is None else len(self._laid.scores)
        for name, asked in self._asked.items():
            if asked != rows:
                raise EngineError(
                    f"TRL asked {name} for {asked} rows of a batch of {rows}: it has trained on "
                    "something else; use the PPOTrainer of trl 1.12 as it is"
                )
        self._laid = None
        self._asked = dict.fromkeys(HOOKED, 0)

    def batch_generation(
        self, model: Any, queries: Tensor, rows: int, pad_token_id: int, config: Any
    ) -> tuple[Tensor, Tensor]:
        """Log-probabilities in the place of logits: they pass by `selective_log_softmax` next."""
        laid = self._laid
        if laid is None or queries is not laid.queries:  # a sample for the log
            return self._generation(model, queries, rows, pad_token_id, config)
        self._asked["batch_generation"] += len(queries)
        return laid.query_responses, laid.logprobs

    def selective_log_softmax(self, logits: Tensor, index: Tensor) -> Tensor:
        if logits.ndim > index.ndim:
            return self._softmax(logits, index)
        self._asked["selective_log_softmax"] += len(index)
        return logits  # no vocabulary: these are the log-probabilities that were recorded

    def get_reward(
        self, model: Any, query_responses: Tensor, pad_token_id: int, context_length: int
    ) -> tuple[Any, Tensor, Any]:
        laid, start = self._laid, self._asked["get_reward"]
        if model is not self._reward_model or laid is None or start == len(laid.scores):
            return self._reward(model, query_responses, pad_token_id, context_length)
        end = start + len(query_responses)
        if not torch.equal(query_responses, laid.query_responses[start:end]):
            raise EngineError(
                f"TRL asks for the rewards of other responses than rows {start} to {end - 1} have: "
                "use the PPOTrainer of trl 1.12 as it is"
            )
        self._asked["get_reward"] = end
        return None, laid.scores[start:end].clone(), None


class _Loader:
    """Stands in for the trainer's dataloader: a batch's queries, when its rollouts are there.

    Epochs are as long as the dataloader's own, which is told of their ends: accelerate closes a
    gradient accumulation there, and TRL's run would do so at the same updates.
    """

    def __init__(
        self,
        dataloader: Any,
        batches: Iterator[Batch],
        hooks: _Hooks,
        lay: Callable[[Batch], Laid],
    ) -> None:
        self._dataloader, self._batches, self._hooks, self._lay = dataloader, batches, hooks, lay
        self._has_begun = False

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        left = len(self._dataloader)
        self._dataloader.begin()
        self._has_begun = True
        while left:
            left -= 1
            batch = next(self._batches, None)
            if batch is None:
                raise EngineError("TRL goes on to another update, and there is no batch for it")
            laid = self._lay(batch)
            self._hooks.give(laid)
            self._dataloader.end_of_dataloader = not left
            yield {"input_ids": laid.queries}
            self._hooks.settle()
        self.end()

    def end(self) -> None:
        """Of the epoch, or of a run that ends within it."""
        if self._has_begun:
            self._has_begun = False
            self._dataloader.end()

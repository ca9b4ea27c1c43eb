"""Forwards over finished rollouts: a causal model's log-probabilities, a critic's values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from oppo_real.networks.logprobs import LogitRule, TokenLogprobs, head_of, token_logprobs
from oppo_real.ppo.batch import Piece, Rows
from oppo_sim.engine.contract import EngineError


class Forward:
    """How an update runs its models: temperature, rule on logits, autocast, rows at a time."""

    def __init__(
        self,
        device: torch.device,
        *,
        temperature: float,
        rule: LogitRule | None,
        autocast: bool,
        micro_batch: int | None,
    ) -> None:
        self._device, self._temperature, self._rule = device, temperature, rule
        self._autocast, self._micro_batch = autocast, micro_batch

    def logprobs(self, model: nn.Module, piece: Piece) -> TokenLogprobs:
        """Of a piece's tokens; `[N]`."""
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._autocast):
            states = _states(model, piece)
            return token_logprobs(
                states, head_of(model), piece.targets, self._temperature, self._rule
            )

    def values(self, critic: nn.Module, piece: Piece) -> Tensor:
        """The critic's score at the token before each place of a piece; `[N]`."""
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._autocast):
            values: Tensor = critic.score(_states(critic, piece)).squeeze(-1)  # type: ignore[operator]
        return values if values.dtype == torch.float64 else values.float()

    @torch.no_grad()
    def along(
        self, rows: Rows, counts: Sequence[int], what: str, numbers: Callable[[Piece], Tensor]
    ) -> Tensor:
        """Numbers of the first `counts` places of all rows, `[B, T]`; 0 beyond.

        They are rounded to float32 as those of a batch are: it does not matter to an update, not
        even in float64, whether they were streamed or are computed here.
        """
        along = rows.rewards.new_zeros(len(rows), rows.width)
        for part in rows.by_length(range(len(rows)), self._micro_batch):
            piece = rows.piece(part, counts)
            along[piece.place] = numbers(piece).float().to(along.dtype)
        bad = (~along.isfinite()).nonzero().tolist()
        if bad:
            row, token = bad[0]
            raise EngineError(
                f"rollout {rows.rollouts[row]}: the {what} of token {token} is"
                f" {along[row, token].item()}; nothing was trained"
            )
        return along


def _states(model: nn.Module, piece: Piece) -> Tensor:
    """The last layer's states at a piece's places, `[N, H]`.

    Rows begin at position 0 and are padded behind, where no real token looks: the causal mask is
    mask enough, and attention can take the kernels that want no other.
    """
    backbone = getattr(model, model.base_model_prefix)  # type: ignore[call-overload]
    states: Tensor = backbone(input_ids=piece.ids, use_cache=False).last_hidden_state
    return states[piece.at]


def checkpoint_layers(model: nn.Module) -> None:
    """Keep layers' inputs only, and compute them again in the backward pass.

    transformers does so in training mode alone, so dropout, which PPO must not have, is taken out.
    """
    newer = getattr(model, "activation_checkpointing_enable", None)  # transformers 5.24
    enable: Callable[[], None] = newer or model.gradient_checkpointing_enable  # type: ignore[assignment]
    enable()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if hasattr(module, "attention_dropout"):  # some models' layers keep a bare number
            setattr(module, "attention_dropout", 0.0)  # noqa: B010


@contextmanager
def training(*models: nn.Module) -> Iterator[None]:
    """In training mode for the while; decoding and scoring are in evaluation mode."""
    try:
        for model in models:
            model.train()
        yield
    finally:
        for model in models:
            model.eval()

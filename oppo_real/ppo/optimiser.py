"""AdamW as TRL sets it up, which refuses gradients that are not finite."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from oppo_sim.config.real import Ppo


class NotFinite(ArithmeticError):
    """A gradient is NaN or infinite; nothing was changed."""


class Optimiser:
    """Over the weights that want a gradient; matrices decay, biases and norms do not.

    Weights of two bytes are updated through a copy in float32: at learning rates of RLHF, a step is
    below what bfloat16 can resolve, and would be lost.
    """

    def __init__(self, weights: Iterable[Parameter], settings: Ppo) -> None:
        self._weights = [weight for weight in weights if weight.requires_grad]
        self._masters = [_master(weight) for weight in self._weights]
        self._max_norm = settings.max_grad_norm
        groups: list[dict[str, Any]] = [
            {"params": [m for m in self._masters if m.ndim >= 2]},
            {"params": [m for m in self._masters if m.ndim < 2], "weight_decay": 0.0},
        ]
        self._adamw = torch.optim.AdamW(
            groups,
            lr=settings.learning_rate,
            eps=settings.adam_epsilon,
            weight_decay=settings.weight_decay,
            fused=True,
        )

    def step(self, lr: float) -> float:
        """Apply the gradients and clear them; `-> ` their norm before clipping."""
        for master, weight in zip(self._masters, self._weights, strict=True):
            if master is not weight and weight.grad is not None:
                master.grad = weight.grad.to(master.dtype)
        grads = [master.grad for master in self._masters if master.grad is not None]
        norm = torch.nn.utils.get_total_norm(grads)
        if not torch.isfinite(norm):
            self.clear()
            raise NotFinite(f"the gradient's norm is {norm.item()}")
        if self._max_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(self._masters, self._max_norm, norm)
        for group in self._adamw.param_groups:
            group["lr"] = lr
        self._adamw.step()
        self._copy_back()
        self.clear()
        return norm.item()

    def clear(self) -> None:
        for tensor in (*self._weights, *self._masters):
            tensor.grad = None

    def state_dict(self) -> dict[str, Any]:
        masters = [master.detach() for master in self._own_masters()]
        return {"adamw": self._adamw.state_dict(), "masters": masters}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._adamw.load_state_dict(state["adamw"])
        with torch.no_grad():
            for master, saved in zip(self._own_masters(), state["masters"], strict=True):
                master.copy_(saved)
        self._copy_back()

    def _own_masters(self) -> list[Tensor]:
        pairs = zip(self._masters, self._weights, strict=True)
        return [master for master, weight in pairs if master is not weight]

    @torch.no_grad()
    def _copy_back(self) -> None:
        for master, weight in zip(self._masters, self._weights, strict=True):
            if master is not weight:
                weight.copy_(master)


def _master(weight: Parameter) -> Parameter:
    if weight.dtype.itemsize >= 4:
        return weight
    return Parameter(weight.detach().float().clone())

"""Token log-probabilities in chunks: the same numbers and slopes as from all logits at once."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from oppo_real.errors import ModelError
from oppo_real.networks.logprobs import Targets, TokenLogprobs, head_of, token_logprobs
from oppo_real.networks.logprobs import entropy as entropy_of
from tests.real import tiny

TOKENS, HIDDEN, VOCABULARY = 23, 8, 50


def drawn(dtype: torch.dtype = torch.float64) -> tuple[Tensor, nn.Linear, Targets]:
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(TOKENS, HIDDEN, generator=generator).to(dtype).requires_grad_()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        head = nn.Linear(HIDDEN, VOCABULARY).to(dtype)
    tokens = torch.randint(VOCABULARY, (TOKENS,), generator=generator)
    index = torch.arange(TOKENS)
    return hidden, head, Targets(tokens, 100 + index // 4, index % 4)


def at_once(hidden: Tensor, head: nn.Linear, targets: Targets, temperature: float) -> Tensor:
    logprobs = (head(hidden) / (temperature + 1e-7)).log_softmax(1)
    return logprobs[torch.arange(TOKENS), targets.tokens]


@pytest.mark.parametrize("rows", [1, 4, 23, 100])
@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_chunks_change_neither_values_nor_gradients(rows: int, temperature: float) -> None:
    hidden, head, targets = drawn()
    weights = torch.linspace(-1, 1, TOKENS, dtype=torch.float64)
    got = token_logprobs(hidden, head, targets, temperature, at_a_time=rows * VOCABULARY)
    expected = at_once(hidden, head, targets, temperature)
    torch.testing.assert_close(got.logprobs, expected, atol=1e-12, rtol=0)
    inputs = (hidden, head.weight, head.bias)
    ours = torch.autograd.grad((weights * got.logprobs).sum(), inputs)
    theirs = torch.autograd.grad((weights * expected).sum(), inputs)
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=0)


def test_entropy_is_of_the_distribution_sampled_from() -> None:
    hidden, head, targets = drawn()
    got = token_logprobs(hidden, head, targets, 0.7)
    sampled = torch.distributions.Categorical(logits=head(hidden) / 0.7)
    torch.testing.assert_close(got.entropies, sampled.entropy(), atol=1e-6, rtol=0)
    assert not got.entropies.requires_grad


def test_small_floats_are_read_in_float32() -> None:
    hidden, head, targets = drawn(torch.bfloat16)
    got = token_logprobs(hidden, head, targets)
    exact = head(hidden).float().log_softmax(1)[torch.arange(TOKENS), targets.tokens]
    assert got.logprobs.dtype == torch.float32
    torch.testing.assert_close(got.logprobs, exact, atol=1e-5, rtol=0)


def forced(logits: Tensor, rollouts: Tensor, index: Tensor) -> Tensor:
    """Rollout 102 may say nothing but 7 at its third token; nobody may say 7 elsewhere."""
    here = (rollouts == 102) & (index == 2)
    seven = torch.arange(VOCABULARY) == 7
    return logits.masked_fill(seven != here[:, None], -torch.inf)


@pytest.mark.parametrize("rows", [3, 100])
def test_a_rule_changes_the_distribution_where_it_applies(rows: int) -> None:
    hidden, head, targets = drawn()
    place = 2 * 4 + 2  # rollout 102, index 2
    targets.tokens[targets.tokens == 7] = 8
    targets.tokens[place] = 7
    got = token_logprobs(hidden, head, targets, 1.0, forced, at_a_time=rows * VOCABULARY)
    assert got.logprobs[place] == 0
    assert got.entropies[place] == 0
    others = [i for i in range(VOCABULARY) if i != 7]
    without = (head(hidden) / (1 + 1e-7))[:, others].log_softmax(1)
    for n in range(TOKENS):
        if n != place:
            token = others.index(int(targets.tokens[n]))
            assert got.logprobs[n].item() == pytest.approx(without[n, token].item(), abs=1e-12)
    got.logprobs.sum().backward()
    assert hidden.grad is not None
    assert hidden.grad.isfinite().all()
    assert not hidden.grad[place].any()


class Largest(TorchDispatchMode):
    """The largest tensor that any operation makes in the while."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, (tuple, list)) else (made,):
            if isinstance(tensor, Tensor):
                self.elements = max(self.elements, tensor.numel())
        return made


@contextmanager
def largest() -> Iterator[Largest]:
    with Largest() as seen:
        yield seen


def test_logits_of_all_tokens_never_exist_together() -> None:
    tokens, vocabulary = 400, 1000
    hidden = torch.randn(tokens, 4, requires_grad=True)
    head = nn.Linear(4, vocabulary, bias=False)
    zeros = torch.zeros(tokens, dtype=torch.long)
    with largest() as seen:
        got: TokenLogprobs = token_logprobs(
            hidden, head, Targets(zeros, zeros, zeros), at_a_time=20 * vocabulary
        )
        got.logprobs.sum().backward()
    assert seen.elements == 20 * vocabulary


def test_models_that_change_logits_after_the_head_are_refused() -> None:
    model = tiny.actor()
    assert head_of(model) is model.lm_head
    model.config.final_logit_softcapping = 30.0
    with pytest.raises(ModelError, match=r"final_logit_softcapping = 30\.0"):
        head_of(model)
    with pytest.raises(ModelError, match="no head"):
        head_of(tiny.reward())


def test_entropy_counts_forbidden_tokens_for_nothing() -> None:
    logits = torch.randn(3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(22))
    logits[1, 2:] = -torch.inf
    logits[2, 1:] = -torch.inf
    for row, entropy in zip(logits, entropy_of(logits), strict=True):
        likely = [p for p in row.softmax(0).tolist() if p > 0]
        assert entropy.item() == pytest.approx(-sum(p * math.log(p) for p in likely))

"""Given lengths: the same ones here, in transformers' `generate` and in a full forward."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
import torch
from transformers import GenerationConfig

from oppo_real.errors import ModelError
from oppo_real.networks.decoding import ContinuousBatch
from oppo_real.networks.lengths import ForcedLengths, force_lengths
from oppo_real.networks.scoring import ScoreChunk, Scorer
from tests.real import tiny

CAP = 20
STOPS = (tiny.EOS, 7)
NEVER = (tiny.PAD,)
LENGTHS = (1, 2, 5, 19, 20, 21, 400)  # of the cap and beyond, too


def prompts() -> list[list[int]]:
    """Of 2 to 9 tokens, each beginning with a token of its own."""
    drawn = random.Random(3)
    return [
        [20 + rollout, *[drawn.randrange(3, 64) for _ in range(1 + rollout)]]
        for rollout in range(len(LENGTHS))
    ]


def decoded(model: Any, rule: ForcedLengths) -> dict[int, tuple[list[int], list[float], str]]:
    batch = ContinuousBatch(model, stop_ids=STOPS, cap_tokens=CAP, seed=2, rule=rule)
    for rollout, prompt in enumerate(prompts()):
        batch.join(rollout, prompt)
    batch.prefill()
    found: dict[int, tuple[list[int], list[float], str]] = {}
    while batch.rollouts:
        for rollout, token, logprob, end in zip(*batch.decode(), strict=True):
            tokens, logprobs, _ = found.setdefault(rollout, ([], [], ""))
            tokens.append(token)
            logprobs.append(logprob)
            found[rollout] = tokens, logprobs, end or ""
    return found


def rule() -> ForcedLengths:
    return ForcedLengths(LENGTHS.__getitem__, STOPS, NEVER)


def left_padded() -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(map(len, prompts()))
    rows = [[tiny.PAD] * (longest - len(prompt)) + prompt for prompt in prompts()]
    masks = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts()]
    return torch.tensor(rows), torch.tensor(masks)


def forced_model(seed: int = 0) -> Any:
    model = tiny.actor(seed)
    lengths = {tuple(prompt): n for prompt, n in zip(prompts(), LENGTHS, strict=True)}
    force_lengths(model, lengths, STOPS, NEVER)
    return model


def generated(model: Any, seed: int) -> list[list[int]]:
    """Responses up to their first stop id, by transformers' own sampling."""
    ids, mask = left_padded()
    torch.manual_seed(seed)
    given = GenerationConfig(
        max_new_tokens=CAP,
        do_sample=True,
        top_k=0,
        eos_token_id=list(STOPS),
        pad_token_id=tiny.PAD,
    )
    out = model.generate(ids, attention_mask=mask, generation_config=given)
    responses = []
    for row in out[:, ids.shape[1] :].tolist():
        ends = [place for place, token in enumerate(row) if token in STOPS]
        responses.append(row[: ends[0] + 1] if ends else row)
    return responses


def test_responses_are_as_long_as_told_up_to_the_cap() -> None:
    for rollout, (tokens, logprobs, end) in decoded(tiny.actor(), rule()).items():
        assert len(tokens) == min(LENGTHS[rollout], CAP)
        assert end == ("stop" if LENGTHS[rollout] <= CAP else "cap")
        assert not {*STOPS, *NEVER} & {*tokens[:-1]}
        if end == "stop":
            assert tokens[-1] == tiny.EOS
            assert logprobs[-1] == 0.0, "it was certain"


@pytest.mark.parametrize("seed", range(3))
def test_generate_gives_the_same_lengths(seed: int) -> None:
    here = [len(tokens) for tokens, _, _ in (decoded(tiny.actor(), rule()).values())]
    assert sorted(here) == sorted(min(length, CAP) for length in LENGTHS)
    responses = generated(forced_model(), seed)
    assert [len(response) for response in responses] == [min(n, CAP) for n in LENGTHS]
    assert not any({*STOPS, *NEVER} & {*response[:-1]} for response in responses)


def test_generate_gives_the_same_lengths_to_prompts_without_padding() -> None:
    """transformers leaves a mask out that hides nothing."""
    model, rows = tiny.actor(), torch.tensor([[20, 5, 6], [21, 7, 8], [22, 9, 9]])
    wanted = {tuple(row): length for row, length in zip(rows.tolist(), (1, 4, 9), strict=True)}
    force_lengths(model, wanted, (tiny.EOS,), NEVER)
    given = GenerationConfig(
        max_new_tokens=CAP, do_sample=True, top_k=0, eos_token_id=tiny.EOS, pad_token_id=tiny.PAD
    )
    torch.manual_seed(1)
    out = model.generate(rows, attention_mask=torch.ones_like(rows), generation_config=given)
    responses = out[:, rows.shape[1] :].tolist()
    assert [response.index(tiny.EOS) + 1 for response in responses] == [1, 4, 9]


def test_a_copy_is_forced_alike_and_without_the_hook_nothing_is() -> None:
    model = forced_model()
    responses = generated(copy.deepcopy(model), 0)
    assert [len(response) for response in responses] == [min(n, CAP) for n in LENGTHS]
    assert torch.equal(model.state_dict()["lm_head.weight"], tiny.actor().lm_head.weight)
    plain = tiny.actor()
    lengths = {tuple(prompt): n for prompt, n in zip(prompts(), LENGTHS, strict=True)}
    force_lengths(plain, lengths, STOPS, NEVER).remove()
    assert [len(response) for response in generated(plain, 0)] != [min(n, CAP) for n in LENGTHS]


def test_log_probabilities_are_one_rules_everywhere() -> None:
    """Decoded here, streamed as a reference, and by the forced model on rows padded left."""
    model, found = tiny.actor(), decoded(tiny.actor(), rule())
    ids, mask = left_padded()
    width = max(len(tokens) for tokens, _, _ in found.values())
    responses = [found[rollout][0] for rollout in range(len(LENGTHS))]
    behind = [row + [tiny.PAD] * (width - len(row)) for row in responses]
    real = [[1] * len(row) + [0] * (width - len(row)) for row in responses]
    both, seen = torch.cat((ids, torch.tensor(behind)), 1), torch.cat((mask, torch.tensor(real)), 1)
    places = (seen.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        logits = forced_model()(both, attention_mask=seen, position_ids=places).logits
    assert torch.equal(
        logits[:, : ids.shape[1] - 1][mask[:, 1:] == 1],
        model(both, attention_mask=seen, position_ids=places).logits[:, : ids.shape[1] - 1][
            mask[:, 1:] == 1
        ],
    ), "prompts are none of its business"
    logprobs = (logits[:, ids.shape[1] - 1 : -1] / (1 + 1e-7)).log_softmax(-1)
    for rollout, (tokens, here, _) in found.items():
        there = logprobs[rollout, : len(tokens)].gather(1, torch.tensor(tokens)[:, None])[:, 0]
        assert here == pytest.approx(there.tolist(), abs=2e-5)
        chunk = ScoreChunk(rollout, prompts()[rollout], tokens, 0, False)
        streamed = Scorer(None, model, rule=rule()).score([chunk])[0].reference
        assert streamed is not None
        assert here == pytest.approx(streamed.tolist(), abs=2e-5)


def test_gradients_pass_where_a_token_was_free_and_stop_where_it_was_certain() -> None:
    logits = torch.randn(3, tiny.VOCAB, requires_grad=True)
    ruled = ForcedLengths(lambda _: 2, STOPS)(logits, torch.zeros(3).long(), torch.arange(3))
    entropy = -(ruled.softmax(-1) * ruled.log_softmax(-1)).sum(-1)
    (gradient,) = torch.autograd.grad(entropy.sum(), logits)
    assert gradient.isfinite().all()
    assert gradient[0].abs().sum() > 0
    assert gradient[1].abs().sum() == 0
    assert gradient[0, list(STOPS)].abs().sum() == 0
    assert torch.equal(ruled[2], logits[2]), "behind the end the rule has nothing to say"


def test_prompts_that_cannot_be_told_apart_are_refused() -> None:
    with pytest.raises(ModelError, match=r"\[5, 6\] is the beginning of another"):
        force_lengths(tiny.actor(), {(5, 6): 3, (5, 6, 7): 4}, STOPS)
    with pytest.raises(ModelError, match="no length for a row"):
        forced_model()(torch.tensor([[60, 61, 62]]))


def test_trls_own_generation_and_forward_obey() -> None:
    """What its generation scores and what its forward over the whole gives are the same."""
    from trl.experimental.ppo import ppo_trainer
    from trl.experimental.ppo.ppo_trainer import first_true_indices, truncate_response

    ids, _ = left_padded()
    model = forced_model()
    torch.manual_seed(0)
    given = GenerationConfig(max_new_tokens=CAP, temperature=1 + 1e-7, top_k=0, do_sample=True)
    with torch.no_grad():
        both, scores = ppo_trainer.batch_generation(model, ids, 3, tiny.PAD, given)
        output = ppo_trainer.forward(model, both, tiny.PAD)
    responses = truncate_response(tiny.EOS, tiny.PAD, both[:, ids.shape[1] :])
    told = [min(length, CAP) for length in LENGTHS]
    assert first_true_indices(responses == tiny.PAD).tolist() == told
    logits = output.logits[:, ids.shape[1] - 1 : -1] / (1 + 1e-7)
    for row, length in enumerate(told):
        ours, theirs = (some[row, :length].log_softmax(-1) for some in (logits, scores))
        assert torch.allclose(ours, theirs, atol=2e-5)

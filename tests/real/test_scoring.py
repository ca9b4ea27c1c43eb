"""Streamed scores against forwards over whole responses, without cache, mask or padding."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification

from oppo_real.errors import ModelError
from oppo_real.networks import cache as caches
from oppo_real.networks.rules import RuleReward
from oppo_real.networks.scoring import ScoreChunk, Scorer
from tests.real import tiny

Rows = dict[int, tuple[list[int], list[int]]]
FLOAT32 = 2e-5


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def ragged_rows(seed: int = 0, longest: int = 160) -> Rows:
    """Prompts of 1 to 30 tokens, responses of 1 to 160: from shorter to longer than a chunk."""
    drawn = random.Random(seed)

    def tokens(most: int) -> list[int]:
        return [drawn.randrange(tiny.VOCAB) for _ in range(drawn.randint(1, most))]

    return {rollout: (tokens(30), tokens(longest)) for rollout in range(7)}


class Streamed:
    """What a scorer said of each row, fed by chunks of all or some of the rows."""

    def __init__(
        self, scorer: Scorer, rows: Rows, chunk: int, seed: int = 0, start_anew: bool = False
    ) -> None:
        self.rewards: dict[int, float] = {}
        self.reference: dict[int, Tensor] = {}
        self.values: dict[int, Tensor] = {}
        drawn, at = random.Random(seed), dict.fromkeys(rows, 0)
        while at:
            some = [rollout for rollout in at if drawn.random() < 0.6] or list(at)
            if start_anew and drawn.random() < 0.2:
                scorer.drop(some[:2])
                at |= dict.fromkeys(some[:2], 0)
            chunks = []
            for rollout in some:
                prompt, response = rows[rollout]
                start, end = at[rollout], min(at[rollout] + chunk, len(response))
                last = end == len(response)
                chunks.append(ScoreChunk(rollout, prompt, response[start:end], start, last))
                at[rollout] = end
                if last:
                    del at[rollout]
            for sent, said in zip(chunks, scorer.score(chunks), strict=True):
                assert said.rollout == sent.rollout
                assert (said.reward is None) == (not sent.last)
                if said.reward is not None:
                    self.rewards[said.rollout] = said.reward
                for found, more in (
                    (self.reference, said.reference),
                    (self.values, said.values),
                ):
                    if more is not None:
                        assert len(more) == len(sent.tokens)
                        before = found.get(said.rollout, more[:0])[: sent.start]
                        found[said.rollout] = torch.cat((before, more))

    def worst(self, whole: dict[int, tuple[float, Tensor, Tensor]]) -> float:
        """The largest difference to what forwards over the whole rows gave."""
        worst = 0.0
        for rollout, (reward, reference, values) in whole.items():
            worst = max(
                worst,
                abs(self.rewards[rollout] - reward),
                (self.reference[rollout] - reference).abs().max().item(),
                (self.values[rollout] - values).abs().max().item(),
            )
        return worst


@torch.no_grad()
def whole(
    rows: Rows, reward: Any, reference: Any, critic: Any, temperature: float = 1.0
) -> dict[int, tuple[float, Tensor, Tensor]]:
    """transformers' own forwards, one row each."""
    found = {}
    for rollout, (prompt, response) in rows.items():
        ids = torch.tensor([[*prompt, *response]])
        # a batch of one: transformers' pooling takes the last token if none is padding
        states = reward.model(ids, use_cache=False).last_hidden_state
        logits = reference(ids, use_cache=False).logits[0, len(prompt) - 1 : -1]
        logprobs = (logits / (temperature + 1e-7)).log_softmax(-1)
        values = critic.score(critic.model(ids, use_cache=False).last_hidden_state)
        found[rollout] = (
            reward.score(states)[0, -1, 0].item(),
            logprobs.gather(1, torch.tensor(response)[:, None])[:, 0],
            values[0, len(prompt) - 1 : -1, 0],
        )
    return found


def networks(dtype: torch.dtype = torch.float32) -> tuple[Any, Any, Any]:
    return tiny.reward(1, dtype), tiny.actor(5, dtype), tiny.critic(2, dtype)


@pytest.mark.parametrize("coalesce", [True, False])
@pytest.mark.parametrize("chunk", [1, 8, 32, 128])
@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, FLOAT32), (torch.float64, 1e-12)])
def test_streamed_scores_are_those_of_whole_responses(
    dtype: torch.dtype, most: float, chunk: int, coalesce: bool
) -> None:
    rows, models = ragged_rows(chunk, longest=min(30 * chunk, 160)), networks(dtype)
    streamed = Streamed(Scorer(*models, coalesce=coalesce), rows, chunk)
    assert streamed.worst(whole(rows, *models)) <= most
    assert next(iter(streamed.reference.values())).dtype == dtype


def test_so_are_a_llamas_at_a_temperature() -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=tiny.VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=8,
        num_key_value_heads=2,
        initializer_range=0.2,
        num_labels=1,
        pad_token_id=0,
    )
    scorers = [LlamaForSequenceClassification(config).eval() for _ in range(2)]
    models = scorers[0], LlamaForCausalLM(config).eval(), scorers[1]
    rows = ragged_rows(3)
    streamed = Streamed(Scorer(*models, temperature=0.7), rows, 8)
    assert streamed.worst(whole(rows, *models, temperature=0.7)) <= FLOAT32


def test_bfloat16_is_as_near_as_its_rounding() -> None:
    rows, models = ragged_rows(4), networks(torch.bfloat16)
    streamed = Streamed(Scorer(*models), rows, 8)
    assert streamed.worst(whole(rows, *models)) <= 0.25


def test_padding_tokens_in_a_response_are_read_like_any_other() -> None:
    """Nothing is inferred from ids: rows end where they end, though they are all padding."""
    rows = {0: ([tiny.PAD, 5], [tiny.PAD] * 20), 1: ([6], [7, tiny.EOS, tiny.PAD, 8, tiny.EOS])}
    models = networks()
    assert Streamed(Scorer(*models), rows, 3).worst(whole(rows, *models)) <= FLOAT32


def test_rows_that_were_dropped_start_anew_in_any_slot() -> None:
    rows, models = ragged_rows(5), networks()
    streamed = Streamed(Scorer(*models), rows, 16, start_anew=True)
    assert streamed.worst(whole(rows, *models)) <= FLOAT32


def test_without_coalescing_company_changes_nothing_to_the_last_bit() -> None:
    rows, models = ragged_rows(6), networks()
    together = Streamed(Scorer(*models, coalesce=False), rows, 8, seed=1)
    for rollout, row in rows.items():
        alone = Streamed(Scorer(*models, coalesce=False), {rollout: row}, 8, seed=2)
        assert alone.rewards[rollout] == together.rewards[rollout]
        assert torch.equal(alone.reference[rollout], together.reference[rollout])
        assert torch.equal(alone.values[rollout], together.values[rollout])


@pytest.mark.parametrize("what", ["mask", "positions", "padding"])
def test_the_tolerance_notices_what_could_go_wrong(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A mask or positions off by one, a reward read behind a row's end: a hundredfold."""
    rows, models = ragged_rows(7), networks()
    expected = whole(rows, *models)
    match what:
        case "mask":
            right = caches.SlotCache._mask
            monkeypatch.setattr(caches.SlotCache, "_mask", lambda self, at: right(self, at + 1))
        case "positions":
            for model in models:
                rotate = model.model.rotary_emb.forward
                monkeypatch.setattr(
                    model.model.rotary_emb,
                    "forward",
                    lambda x, ids, rotate=rotate: rotate(x, ids + (ids[:, :1] > 0)),
                )
        case "padding":
            forward = caches.SlotCache._forward
            monkeypatch.setattr(
                caches.SlotCache, "_forward", lambda *args: forward(*args).roll(1, 1)
            )
    assert Streamed(Scorer(*models), rows, 8).worst(expected) > 100 * FLOAT32


def test_nothing_is_fed_twice_or_behind_a_rows_end() -> None:
    """Tokens that each network reads, padding aside: the row's, less the last where it predicts."""
    rows, models = ragged_rows(8), networks()
    fed = [0, 0, 0]
    for place, model in enumerate(models):

        def count(_: Any, __: Any, inputs: Any, place: int = place) -> None:
            fed[place] += inputs["input_ids"].numel()

        model.model.register_forward_pre_hook(count, with_kwargs=True)
    Streamed(Scorer(*models, coalesce=False), rows, 8)
    total = sum(len(prompt) + len(response) for prompt, response in rows.values())
    assert fed == [total, total - len(rows), total - len(rows)]


def test_no_tensor_of_all_tokens_by_vocabulary_is_kept_and_memory_stays() -> None:
    rows, models = ragged_rows(9), networks()
    scorer, sizes = Scorer(*models), []
    for seed in range(4):
        Streamed(scorer, rows, 32, seed)
        sizes.append(len(scorer._rows))
    assert sizes == [0] * 4, "a last chunk ends its row"
    assert len(scorer._free) <= len(rows)


def test_a_rule_is_called_once_with_the_whole_text() -> None:
    rows, calls = ragged_rows(2), []

    def function(prompt: str, response: str) -> int:
        calls.append((prompt, response))
        return len(response.split())

    tokenizer = tiny.tokenizer()
    scorer = Scorer(RuleReward(function, tokenizer.decode), tiny.actor(5))
    streamed = Streamed(scorer, rows, 32)
    expected = {r: (tokenizer.decode(p), tokenizer.decode(a)) for r, (p, a) in rows.items()}
    assert sorted(calls) == sorted(expected.values())
    assert streamed.rewards == {r: float(len(response)) for r, (_, response) in rows.items()}
    assert streamed.reference.keys() == rows.keys()
    by_ids = Scorer(RuleReward(lambda prompt, response: sum(prompt) + sum(response)))
    assert Streamed(by_ids, rows, 8).rewards == {r: sum(p) + sum(a) for r, (p, a) in rows.items()}


def raises(prompt: str, response: str) -> float:
    raise KeyError(response)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (raises, "rollout 4: the reward function failed with KeyError"),
        (lambda prompt, response: None, "rollout 4: the reward function returned None"),
        (lambda prompt, response: math.nan, "rollout 4: its reward is nan"),
        (lambda prompt, response: math.inf, "rollout 4: its reward is inf"),
    ],
)
def test_a_function_that_fails_is_an_error_that_names_the_rollout(
    function: Any, words: str
) -> None:
    scorer = Scorer(RuleReward(function))
    assert scorer.score([ScoreChunk(4, [3], [5], 0, False)])[0].reward is None
    with pytest.raises(ModelError, match=words):
        scorer.score([ScoreChunk(4, [3], [6], 1, True)])


def test_so_is_a_model_that_gives_nan() -> None:
    model = tiny.reward()
    model.score.weight.data.fill_(torch.nan)
    with pytest.raises(ModelError, match="rollout 7: its reward is nan"):
        Scorer(model).score([ScoreChunk(3, [3], [5], 0, False), ScoreChunk(7, [3], [5], 0, True)])


def test_models_that_do_not_score_by_one_number_are_refused() -> None:
    with pytest.raises(ModelError, match="num_labels = 2: must be 1"):
        Scorer(tiny.reward(num_labels=2))
    with pytest.raises(ModelError, match="no score head"):
        Scorer(tiny.actor())


@pytest.mark.parametrize(
    ("chunk", "words"),
    [
        (ScoreChunk(1, [3], [5], 2, False), "from token 2 on, but 1 has been scored"),
        (ScoreChunk(2, [3], [5], 1, False), "but nothing has been scored"),
        (ScoreChunk(2, [], [5], 0, False), "rollout 2: its prompt is empty"),
        (ScoreChunk(2, [3], [], 0, True), "rollout 2: its chunk is empty"),
    ],
)
def test_chunks_that_do_not_continue_their_rows_are_refused(chunk: ScoreChunk, words: str) -> None:
    scorer = Scorer(tiny.reward())
    scorer.score([ScoreChunk(1, [3], [4], 0, False)])
    with pytest.raises(ValueError, match=words):
        scorer.score([chunk])

"""Roofline and launch: each term against arithmetic by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from oppo_sim.costs import (
    HF,
    VLLM,
    Actor,
    Efficiency,
    Engine,
    Hosted,
    Roofline,
    Scorer,
    Trainer,
    attention_pairs,
    card,
    model,
)
from oppo_sim.costs.parts import engine

Pipeline = Callable[..., Roofline]
QWEN = model("Qwen2.5-7B")
FLOP = 2 * 6_525_621_760  # per token of a forward pass without the vocabulary
LOGITS = 2 * 152_064 * 3584
PAIR = 4 * 28 * 3584
PEAK = 989e12  # H200


def test_scoring_a_batch_is_its_flops(pipeline: Pipeline) -> None:
    tokens, pairs = 112 * 700, 112 * 700**2 / 2
    expected = 0.001 + (tokens * FLOP + pairs * PAIR) / (0.5 * PEAK)
    assert pipeline().score_s(112, tokens, pairs, 112) == pytest.approx(expected, rel=1e-12)


def test_three_models_on_a_scorer_take_turns(pipeline: Pipeline) -> None:
    reward, reference, critic = Hosted(QWEN), Hosted(QWEN, "vocab"), Hosted(QWEN)
    costs = pipeline(scorer=Scorer(models=(reward, reference, critic), call_s=0.0))
    tokens, pairs = 4096, 1e6
    expected = (tokens * (3 * FLOP + LOGITS) + 3 * pairs * PAIR) / (0.5 * PEAK)
    assert costs.score_s(16, tokens, pairs, 0) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("chunk", [2048, 4096, 10_000])
def test_streaming_costs_the_same_flops_and_attention_plus_the_calls(
    pipeline: Pipeline, chunk: int
) -> None:
    """phi = 1: compute-bound chunks add up to the whole row."""
    costs, length = pipeline(), 40_960
    bounds = [(start, min(start + chunk, length)) for start in range(0, length, chunk)]
    streamed = sum(
        costs.score_s(1, end - start, attention_pairs(start, end), int(end == length))
        for start, end in bounds
    )
    whole = costs.score_s(1, length, attention_pairs(0, length), 1)
    assert streamed == pytest.approx(whole + 0.001 * (len(bounds) - 1), rel=1e-12)


def test_tiny_chunks_pay_launches_or_weights_again_and_again(pipeline: Pipeline) -> None:
    eager = pipeline().score_s(1, 8, attention_pairs(0, 8), 0)
    assert eager == pytest.approx(0.001 + 28 * 0.894e-3)
    graphs = pipeline(scorer=Scorer(models=(Hosted(QWEN),), engine=VLLM))
    weights_s = 2 * 6_525_621_760 / (0.8 * 4.8e12)
    expected = 0.001 + 28 * 0.113e-3 + weights_s
    assert graphs.score_s(1, 8, attention_pairs(0, 8), 0) == pytest.approx(expected)


def test_a_rule_reward_costs_seconds_per_response_and_needs_no_model(pipeline: Pipeline) -> None:
    costs = pipeline(scorer=Scorer(rule_s=0.02, call_s=0.001))
    assert costs.score_s(5, 3000, 1e6, 4) == pytest.approx(0.001 + 4 * 0.02)
    assert costs.score_s(5, 3000, 1e6, 0) == 0.001


def test_a_judge_decodes_its_answer_when_a_response_has_ended(pipeline: Pipeline) -> None:
    judge = Hosted(QWEN, answer_tokens=64)
    silent = pipeline(scorer=Scorer(models=(Hosted(QWEN),)))
    costs = pipeline(scorer=Scorer(models=(judge,)))
    pairs = 8 * attention_pairs(512, 768)
    running = costs.score_s(8, 8 * 256, pairs, 0)
    assert running == silent.score_s(8, 8 * 256, pairs, 0)
    ended = costs.score_s(8, 8 * 256, pairs, 3)
    # three answers decoded together, each behind 768 tokens; HF is launch-bound there
    assert ended - running == pytest.approx(costs.decode.span_s(3, 3 * 768, 64))
    assert ended - running == pytest.approx(64 * 28 * 0.894e-3)


def test_prefill_of_prompts(pipeline: Pipeline) -> None:
    tokens, pairs = 16 * 500, 16 * attention_pairs(0, 500)
    expected = (tokens * FLOP + pairs * PAIR) / (0.5 * PEAK)
    assert pipeline().prefill_s(tokens, pairs) == pytest.approx(expected, rel=1e-12)
    assert pipeline().prefill_s(1, 0.5) == pytest.approx(28 * 0.894e-3)


def test_training_is_forward_and_backward_of_actor_and_critic(pipeline: Pipeline) -> None:
    gang = Trainer(trained=(Hosted(QWEN, "vocab"), Hosted(QWEN)), devices=7, padded=False)
    tokens, rows = 112 * 700, 112
    pairs = rows * 700**2 / 2
    flop = 4 * 3 * (tokens * (2 * FLOP + LOGITS) + 2 * pairs * PAIR)  # 4 epochs, 3 passes' worth
    params = 7_615_616_512 + (7_615_616_512 - 152_064 * 3584)
    adam_s = 30 * params / (7 * 0.8 * 4.8e12)
    expected = flop / (7 * 0.30 * PEAK) + 4 * adam_s
    costs = pipeline(trainer=gang)
    assert costs.train_s(rows, tokens, 700) == pytest.approx(expected, rel=1e-12)
    assert costs.train_s(0, 0, 0) == 0.0

    # padding: every row is as long as the longest, whatever the tokens
    padded = pipeline(trainer=replace(gang, padded=True))
    assert padded.train_s(rows, tokens, 700) == pytest.approx(expected, rel=1e-12)
    assert padded.train_s(rows, 123, 2000) == costs.train_s(rows, rows * 2000, 2000)

    # recomputation: four passes' worth instead of three
    again = pipeline(trainer=replace(gang, recomputes=True))
    expected = flop * 4 / 3 / (7 * 0.30 * PEAK) + 4 * adam_s
    assert again.train_s(rows, tokens, 700) == pytest.approx(expected, rel=1e-12)


def test_models_that_are_not_streamed_read_the_batch_before_the_update(pipeline: Pipeline) -> None:
    gang = Trainer(trained=(Hosted(QWEN, "vocab"),), devices=7, padded=False)
    reading = replace(gang, forwards=(Hosted(QWEN, "vocab"), Hosted(QWEN)))
    tokens, pairs = 112 * 700, 112 * 700**2 / 2
    more = pipeline(trainer=reading).train_s(112, tokens, 700)
    more -= pipeline(trainer=gang).train_s(112, tokens, 700)
    flop = tokens * (2 * FLOP + LOGITS) + 2 * pairs * PAIR
    assert more == pytest.approx(flop / (7 * 0.5 * PEAK), rel=1e-9)


def test_two_nodes_reduce_gradients_over_the_network(pipeline: Pipeline) -> None:
    gang = Trainer(trained=(Hosted(QWEN, "vocab"),), devices=8, epochs=1, minibatches=3)
    one = pipeline(card=card("A100-40"), trainer=gang)
    two = pipeline(card=card("A100-40"), trainer=replace(gang, nodes=2))
    reduce_s = 2 * 7 / 8 * 2 * 7_615_616_512 / (4 * 0.8 * 25e9)
    assert two.train_s(112, 0, 700) - one.train_s(112, 0, 700) == pytest.approx(3 * reduce_s)
    gathering = pipeline(card=card("A100-40"), trainer=replace(gang, nodes=2, gathers=2))
    assert gathering.train_s(112, 0, 700) - one.train_s(112, 0, 700) == pytest.approx(6 * reduce_s)


def test_weights_travel_only_between_different_devices(pipeline: Pipeline) -> None:
    weights = 2 * 7_615_616_512
    assert pipeline().sync_s() == 0.0
    assert pipeline(sync_over="nvlink").sync_s() == pytest.approx(weights / (0.8 * 450e9))
    assert pipeline(sync_over="network").sync_s() == pytest.approx(weights / (0.8 * 50e9))
    halves = pipeline(sync_over="network", actor=Actor(model=QWEN, devices=2))
    assert halves.sync_s() == pytest.approx(weights / 2 / (0.8 * 50e9))


def test_chunks_travel_to_the_scorer(pipeline: Pipeline) -> None:
    assert pipeline(handoff_over="same").handoff_s(4096) == 0.0
    over_network = pipeline(handoff_over="network")
    assert over_network.handoff_s(4096) == pytest.approx(1e-3 + 4096 * 12 / (0.8 * 50e9))
    assert over_network.handoff_s(0) == 0.0


def test_tensor_parallel_divides_weights_and_flops_but_not_launches(pipeline: Pipeline) -> None:
    at = Efficiency(tensor_parallel=0.75)
    one = pipeline(actor=Actor(model=QWEN, engine=VLLM), efficiency=at)
    two = pipeline(actor=Actor(model=QWEN, engine=VLLM, devices=2), efficiency=at)
    launch_s = 28 * 0.113e-3
    ratio = (one.decode.token_s(8, 8000) - launch_s) / (two.decode.token_s(8, 8000) - launch_s)
    assert ratio == pytest.approx(2 * 0.75)
    ratio = (one.prefill_s(10**5, 1e9) - launch_s) / (two.prefill_s(10**5, 1e9) - launch_s)
    assert ratio == pytest.approx(2 * 0.75)


def test_a_faster_host_launches_faster(pipeline: Pipeline) -> None:
    slow, fast = pipeline(), pipeline(card=replace(card("H200"), launch_scale=0.5))
    assert fast.decode.token_s(1, 1) == 0.5 * slow.decode.token_s(1, 1)


def test_engines_have_names() -> None:
    assert engine("hf") is HF
    with pytest.raises(ValueError, match=r"unknown engine 'vlm'; did you mean 'vllm'\?"):
        engine("vlm")


@pytest.mark.parametrize("bad", [math.nan, math.inf, -0.1])
@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda x: replace(HF, launch_per_layer_s=x), "engine hf.launch_per_layer_s"),
        (lambda x: replace(HF, hbm=x), "engine hf.hbm"),
        (lambda x: replace(VLLM, fixed_s=x), "engine vllm.fixed_s"),
        (lambda x: Efficiency(train_mfu=x), "efficiency.train_mfu"),
        (lambda x: Efficiency(network=x), "efficiency.network"),
        (lambda x: Hosted(QWEN, "scalar", x), "hosted Qwen2.5-7B.answer_tokens"),
        (lambda x: Actor(model=QWEN, devices=x), "actor.devices"),
        (lambda x: Scorer(rule_s=x), "scorer.rule_s"),
        (lambda x: Scorer(call_s=x), "scorer.call_s"),
        (lambda x: Trainer(trained=(Hosted(QWEN),), epochs=x), "trainer.epochs"),
        (lambda x: Trainer(trained=(Hosted(QWEN),), gathers=x), "trainer.gathers"),
    ],
)
def test_parts_refuse_impossible_numbers(
    build: Callable[[Any], object], name: str, bad: float
) -> None:
    with pytest.raises(ValueError, match=rf"{name} is {bad!r}; it must be"):
        build(bad)


def test_parts_refuse_what_makes_no_sense(pipeline: Pipeline) -> None:
    with pytest.raises(ValueError, match=r"handoff_over is 'wifi'; .* same, nvlink, network"):
        pipeline(handoff_over="wifi")
    with pytest.raises(ValueError, match="handoff_call_s is nan"):
        pipeline(handoff_call_s=math.nan)
    with pytest.raises(ValueError, match=r"efficiency.hbm is 1.1; .* at most 1"):
        Efficiency(hbm=1.1)
    with pytest.raises(ValueError, match="head is 'lm'; it must be one of vocab, scalar"):
        Hosted(QWEN, "lm")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="terms is 'min'; it must be one of max, sum"):
        Engine(name="mine", launch_per_layer_s=0.0, terms="min")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"trainer.trained is empty"):
        Trainer(trained=())
    with pytest.raises(ValueError, match=r"devices is 7; it must be a multiple of nodes \(2\)"):
        Trainer(trained=(Hosted(QWEN),), devices=7, nodes=2)

"""What a tail costs and what overcommitment gains: known laws, and ten measured sets simulated."""

import math

import numpy as np
import pytest

from oppo_sim.costs import Constant as ConstantCosts
from oppo_sim.engine import Lane, Limits, run
from oppo_sim.policies import Schedule
from oppo_sim.simulator import SimPyMachine
from oppo_sim.workload import Constant, Endless, Exponential, Lognormal, RewardCurve, Workload, load
from oppo_sim.workload.samples import Sample
from oppo_sim.workload.tail import generation_tokens, tail, verdict

BATCH = 112
STEPS, WARM_UP = 600, 20
# From no tail to speak of, over tails that overcommitment cuts off, to caps that bind so much that
# it cannot: 0, 0.1, 0.7, 1, 2.8, 2.9, 7.1, 7.9 and 19 % of the responses were cut.
SETS = [
    "alpacaeval_Qwen1.5-1.8B-Chat",
    "alpacaeval_alpaca-farm-ppo-human",
    "alpacaeval_llama-2-7b-chat-hf",
    "crux_Meta-Llama-3.1-8B-Instruct_greedy",
    "gsm8k_Qwen2-7B-Instruct_seal_baseline",
    "gsm8k_reference_train",
    "mathL5_Meta-Llama-3.1-8B-Instruct_greedy",
    "mathL5_Qwen2.5-3B-Instruct_greedy",
    "mathL5_Qwen2.5-7B-Instruct_greedy",
    "mathL5_gemma-2-2b-it_greedy",
]


def harmonic(n: int) -> float:
    return math.fsum(1 / k for k in range(1, n + 1))


@pytest.mark.parametrize("overcommit", [0, 4, 8, 32])
def test_without_memory_the_harmonic_numbers_say_it(overcommit: int) -> None:
    """Exponential lengths: (H(B + D) - H(D)) / rate per step."""
    law = Exponential(20_000)
    expected = (harmonic(BATCH + overcommit) - harmonic(overcommit)) / law.rate_per_token
    found = generation_tokens(law, BATCH, overcommit, 10**8)
    assert found == pytest.approx(expected, rel=0.015)


def test_a_tail_of_the_exponential() -> None:
    found = tail(Exponential(20_000), BATCH, overcommits=(8,))
    assert found.idle_share == pytest.approx(1 - 1 / harmonic(BATCH), abs=0.002)
    assert found.gains[8] == pytest.approx(
        harmonic(BATCH) / (harmonic(BATCH + 8) - harmonic(8)), rel=0.02
    )
    assert found.ceiling == pytest.approx(harmonic(BATCH) * 120 / 112, rel=0.01)


def test_two_rollouts_that_never_idle_are_twice_as_fast_as_one() -> None:
    """B = 1 and D = 1: both places always decode, and no more can be gained."""
    found = tail(Exponential(20_000), 1, overcommits=(1,))
    assert found.gains[1] == pytest.approx(2, rel=0.02)
    assert found.gains[1] <= found.ceiling == pytest.approx(2, rel=1e-3)
    assert "x if none of 2 ever idled). A step gains less" in verdict(found)


@pytest.mark.parametrize("batch", [1000, 100_000])
def test_large_batches_take_fewer_steps_to_the_same_answer(batch: int) -> None:
    """By D of a twentieth of the batch: log(B) against log(21), for exponential lengths."""
    found = tail(Exponential(20_000), batch, overcommits=(batch // 20,))
    assert found.gains[batch // 20] == pytest.approx(harmonic(batch) / math.log(21), rel=0.02)


def test_equal_lengths_idle_nothing_and_gain_nothing() -> None:
    found = tail(Constant(300), BATCH, cap_tokens=512)
    assert (found.idle_share, found.share_at_cap) == (0, 0)
    assert set(found.gains.values()) == {1.0}
    assert "No response reaches a cap. Overcommitment will hardly help" in verdict(found)


def test_loops_at_the_cap_take_the_gain_away() -> None:
    """With more loops per batch than places beyond it, every step waits for a loop."""
    body = Lognormal(5.0, 0.3)
    few, many = (tail(Endless(body, share), BATCH, 4096, (8,)) for share in (0.01, 0.2))
    assert few.gains[8] > 3
    assert many.gains[8] == pytest.approx(1, abs=0.01)
    assert many.share_at_cap == pytest.approx(0.2, abs=0.001)
    assert "The cap binds: 20.0% of the responses" in verdict(many)
    assert "will hardly help" in verdict(many)


def test_the_longest_of_a_batch_of_a_sample() -> None:
    """The mean over u^(1/B) is the exact order statistic."""
    rng = np.random.default_rng(0)
    sample = Sample.of(Lognormal(6, 1).ppf(rng.random(805)), 3000)
    longest = float(sample.under_cap @ np.diff(sample.cdf() ** 32, prepend=0.0))
    assert tail(sample, 32).longest_tokens == pytest.approx(longest, rel=1e-4)


def test_a_verdict_is_plain() -> None:
    said = verdict(tail(load("mathL5_Qwen2.5-7B-Instruct_greedy"), BATCH, 4096, (8,)))
    assert said.startswith("At B = 112, 83% of the decode capacity idles: a response has 68")
    assert "The cap binds: 2.8% of the responses reach it, 3.1 of a batch on average." in said
    assert "Overcommitment will help: generation 2.4" in said or "generation 2.5" in said


@pytest.mark.parametrize("batch", [0, -1, 2.5])
def test_a_batch_is_a_whole_number(batch: int) -> None:
    with pytest.raises(ValueError, match="batch must be a whole number >= 1"):
        tail(Constant(3), batch)


def simulated(name: str, overcommit: int, cap_tokens: int) -> float:
    """Mean generation time of a step, in iterations, on the SimPy machine."""
    lengths = Workload(
        load(name), cap_tokens=cap_tokens, prompts=1, rewards=RewardCurve(0, 1, 10, 0), seed=3
    )
    lanes = [
        Lane("actor0", "actor", ("gpu0",), 4096, None),
        Lane("scorer0", "scorer", ("gpu1",)),
        Lane("trainer", "trainer", ("gpu0",)),
    ]
    costs = ConstantCosts(decode_token_s=1.0, score_call_s=3.0, train_call_s=5.0, sync_call_s=1.0)
    schedule = Schedule(name="flat", batch=BATCH, overcommit=overcommit, stop="taken")
    machine = SimPyMachine(lanes, costs, lengths)
    records = run(machine, schedule, Limits(1, cap_tokens), STEPS)
    return float(np.mean([r.taken_s - r.start_s for r in records if r.step >= WARM_UP]))


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_the_predicted_gain_is_the_simulated_one(name: str) -> None:
    """D = 8 against D = 0, within 5 %."""
    table = load(name)
    cap = table.known_tokens or int(max(table.response_tokens))
    gain = simulated(name, 0, cap) / simulated(name, 8, cap)
    assert tail(table, BATCH, cap, (8,)).gains[8] == pytest.approx(gain, rel=0.05)

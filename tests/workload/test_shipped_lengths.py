"""The shipped tables say what the samples behind them said."""

from importlib.resources import files

import numpy as np
import pytest

from oppo_sim.workload import RewardCurve, Workload, load, provenance, shipped

# mean, p50, p99 and max of the samples behind the tables, computed per sample: a response cut
# at 4096 tokens counts as 4097, also one whose text has more tokens when tokenised again.
MEASURED = [
    ("alpacaeval_FuseChat-Llama-3.2-3B-Instruct", 440.0, 440.0, 1213.7, 1920),
    ("alpacaeval_FuseChat-Qwen-2.5-7B-Instruct", 490.02, 501.0, 1133.8, 4054),
    ("alpacaeval_Meta-Llama-3-8B-Instruct", 418.87, 444.0, 978.56, 1669),
    ("alpacaeval_Meta-Llama-3.1-8B-Instruct-Turbo", 517.57, 448.0, 4096.6, 4097),
    ("alpacaeval_Mistral-7B-Instruct-v0.2", 367.72, 325.0, 1739.4, 4045),
    ("alpacaeval_Mistral-7B-ReMax-v0.1", 319.14, 311.0, 892.68, 1631),
    ("alpacaeval_Qwen1.5-1.8B-Chat", 593.31, 490.0, 3501.0, 3501),
    ("alpacaeval_Qwen1.5-14B-Chat", 352.48, 376.0, 824.8, 3500),
    ("alpacaeval_Qwen1.5-72B-Chat", 340.76, 343.0, 855.48, 3501),
    ("alpacaeval_Qwen1.5-7B-Chat", 346.98, 368.0, 866.16, 1473),
    ("alpacaeval_Qwen2-0.5B-Instruct_greedy", 316.3, 196.0, 4097.0, 4097),
    ("alpacaeval_Qwen2-0.5B-Instruct_sampling", 228.61, 193.0, 898.72, 4097),
    ("alpacaeval_Qwen2-1.5B-Instruct_greedy", 247.4, 205.0, 1176.3, 4097),
    ("alpacaeval_Qwen2-1.5B-Instruct_sampling", 218.5, 203.0, 735.48, 4097),
    ("alpacaeval_Qwen2-72B-Instruct", 352.42, 338.0, 920.92, 2351),
    ("alpacaeval_alpaca-farm-ppo-human", 173.04, 143.0, 1069.6, 1784),
    ("alpacaeval_alpaca-farm-ppo-sim-gpt4-20k", 107.15, 104.0, 285.0, 804),
    ("alpacaeval_gemma-2b-it", 225.04, 205.0, 614.84, 805),
    ("alpacaeval_gpt-4o-2024-05-13", 411.79, 405.0, 1179.8, 1807),
    ("alpacaeval_llama-2-7b-chat-hf", 305.75, 277.0, 860.0, 1206),
    ("alpacaeval_zephyr-7b-beta", 316.38, 285.0, 1480.1, 1838),
    ("arenahard_v0.1_gpt-3.5-turbo-0125", 334.64, 302.5, 865.73, 3980),
    ("arenahard_v0.1_gpt-4-0314", 430.89, 398.0, 1130.5, 1514),
    ("arenahard_v2.0_o3-mini-2025-01-31", 984.86, 775.5, 4008.9, 6487),
    ("azure2023_code", 27.883, 13.0, 251.46, 1899),
    ("azure2023_conv", 211.13, 129.0, 601.0, 1000),
    ("crux_Meta-Llama-3.1-8B-Instruct_greedy", 188.07, 151.0, 465.06, 4097),
    ("crux_Qwen2.5-3B-Instruct_greedy", 236.05, 165.0, 4070.3, 4097),
    ("gsm8k_Llama-3-8B-Instruct_greedy", 162.71, 150.0, 354.92, 1674),
    ("gsm8k_Qwen2-72B-Instruct_greedy", 142.72, 135.0, 277.82, 677),
    ("gsm8k_Qwen2-7B-Instruct_greedy", 159.69, 148.0, 338.82, 4097),
    ("gsm8k_Qwen2-7B-Instruct_seal_baseline", 279.51, 266.0, 544.07, 1001),
    ("gsm8k_gemma-2-2b-it_greedy", 172.45, 150.0, 411.38, 4097),
    ("gsm8k_gpt3_175b_finetuning", 91.396, 80.0, 224.0, 1503),
    ("gsm8k_gpt3_175b_verification", 96.788, 91.0, 228.0, 287),
    ("gsm8k_gpt3_6b_finetuning", 91.696, 83.0, 228.28, 774),
    ("gsm8k_reference_test", 93.073, 87.0, 217.82, 300),
    ("gsm8k_reference_train", 91.278, 83.0, 217.0, 342),
    ("humanevalX_Llama-3-Instruct_8langs", 287.36, 262.5, 690.25, 4097),
    ("humanevalX_Qwen2-Instruct_8langs", 159.93, 120.0, 525.47, 4097),
    ("livecodebench_o1-mini_visible_output", 256.97, 190.5, 1111.2, 1853),
    ("livecodebench_o1-preview_visible_output", 271.9, 190.0, 1187.8, 3027),
    ("mathL5_Meta-Llama-3.1-8B-Instruct_greedy", 1241.3, 540.0, 5380.0, 4097),
    ("mathL5_Qwen2-7B-Instruct_greedy", 493.46, 309.0, 4097.0, 4097),
    ("mathL5_Qwen2.5-3B-Instruct_greedy", 939.99, 611.0, 4097.0, 4097),
    ("mathL5_Qwen2.5-7B-Instruct_greedy", 684.08, 526.0, 4097.0, 4097),
    ("mathL5_gemma-2-2b-it_greedy", 902.07, 314.0, 4356.6, 4097),
    ("math_qwen2.5math_sampled_n8x100", 391.5, 347.0, 1570.1, 2110),
    ("mooncake_synthetic", 149.12, 69.0, 768.08, 893),
    ("servegen_deepseek-r1", 1521.0, 787.0, 12676.0, 32768),
    ("vidur_arxiv_summarization", 291.43, 167.0, 3271.3, 4056),
]
# Traces keep the token counts of the service that wrote them.
TRACES = {
    "azure2023_code",
    "azure2023_conv",
    "mooncake_synthetic",
    "servegen_deepseek-r1",
    "vidur_arxiv_summarization",
}
FLAT = RewardCurve(start=0, plateau=0, tau_steps=1, noise=0)


def workload(name: str, cap_tokens: int | None = None) -> Workload:
    lengths = load(name)
    cap = cap_tokens or lengths.known_tokens or 32768
    prompts = None if lengths.prompts else 36
    return Workload(lengths, cap_tokens=cap, rewards=FLAT, seed=0, prompts=prompts)


def test_every_table_has_a_provenance_and_the_other_way_round() -> None:
    folder = files("oppo_sim") / "data" / "lengths"
    tables = {file.name.removesuffix(".csv") for file in folder.iterdir()} - {"provenance"}
    assert tables == set(shipped()) == {name for name, *_ in MEASURED}


@pytest.mark.parametrize("name", shipped())
def test_every_provenance_is_complete(name: str) -> None:
    source = provenance(name)
    assert all((source.about, source.repository, source.commit, source.path, source.licence))
    assert (source.tokenizer == "Qwen2.5") == (name not in TRACES)
    assert source.n >= 500
    assert (source.source_cap_tokens is None) == (source.at_cap == 0) == (not source.cap_basis)


@pytest.mark.parametrize(("name", "mean", "p50", "p99", "longest"), MEASURED)
def test_a_table_agrees_with_its_samples(
    name: str, mean: float, p50: float, p99: float, longest: int
) -> None:
    found = workload(name).describe()
    cap = load(name).known_tokens or longest
    assert found.mean_tokens == pytest.approx(mean, rel=0.02)
    assert found.p50_tokens == pytest.approx(p50, rel=0.005)
    assert found.p99_tokens == pytest.approx(min(p99, cap), rel=0.005)
    assert found.max_tokens == min(longest, cap)


@pytest.mark.parametrize(("name", "mean", "p50", "p99", "longest"), MEASURED)
def test_what_is_drawn_has_the_measured_mean(
    name: str, mean: float, p50: float, p99: float, longest: int
) -> None:
    drawn = workload(name).responses(range(100_000))
    assert np.mean(drawn) == pytest.approx(mean, rel=0.03)


@pytest.mark.parametrize(
    ("name", "share"),
    [  # 57 and 20 of 721 responses
        ("mathL5_Qwen2.5-3B-Instruct_greedy", 0.079),
        ("mathL5_Qwen2.5-7B-Instruct_greedy", 0.028),
    ],
)
def test_the_mass_at_the_cap_is_the_measured_one(name: str, share: float) -> None:
    a_workload = workload(name, 4096)
    assert a_workload.describe().share_at_cap == pytest.approx(share, abs=0.0005)
    reasons = [a_workload.stop_reason(i) for i in range(50_000)]
    assert reasons.count("cap") / 50_000 == pytest.approx(share, abs=0.004)


@pytest.mark.parametrize(
    ("cap_tokens", "idle"), [(4096, 0.83), (2048, 0.69), (1024, 0.44), (512, 0.14)]
)
def test_the_cap_sets_what_a_batch_waits_for_its_longest(cap_tokens: int, idle: float) -> None:
    """1 - mean / E[max of 112] on MATH level 5, 7B, of the samples."""
    lengths = load("mathL5_Qwen2.5-7B-Instruct_greedy")
    u = (np.arange(100_000) + 0.5) / 100_000
    mean = np.minimum(lengths.ppf(u), cap_tokens).mean()
    longest_of_112 = np.minimum(lengths.ppf(u ** (1 / 112)), cap_tokens).mean()
    assert 1 - mean / longest_of_112 == pytest.approx(idle, abs=0.01)


def test_almost_nothing_lies_just_below_the_cap() -> None:
    """The curve must not climb to the mass: MATH level 5, 3B has no sample from 3512 to 4095."""
    drawn = np.array(workload("mathL5_Qwen2.5-3B-Instruct_greedy").responses(range(100_000)))
    assert not np.any((drawn > 3511) & (drawn < 4096))


def test_prompts_come_from_the_table_itself() -> None:
    """Mean prompt of the MATH level 5 set: 190.9 tokens, of the samples."""
    found = workload("mathL5_Qwen2.5-7B-Instruct_greedy").describe()
    assert found.prompt_mean_tokens == pytest.approx(190.9, rel=0.01)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    nearest = "did you mean 'mathL5_Qwen2.5-7B-Instruct_greedy'"
    with pytest.raises(ValueError, match=nearest):
        load("mathL5_Qwen2.5-7b-instruct")
    with pytest.raises(ValueError, match="did you mean"):
        provenance("../provenance")

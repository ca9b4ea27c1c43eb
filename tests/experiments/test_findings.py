"""What each experiment makes of numbers that are made up for it."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from experiments import (
    best_chunk_and_d,
    binding_cap,
    chunk_cost,
    chunk_size,
    data_parallel,
    deferrals,
    fixed_or_dynamic_d,
    lateness,
    learning,
    micro_batches,
    runaways,
    scarce_kv,
    scoring_share,
    stale_caches,
    two_nodes,
    whole_responses,
)
from experiments.best_chunk_and_d import Case
from experiments.micro_batches import IN_STEP, OWN, SHORT
from experiments.scoring_share import Needed
from experiments.stale_caches import Cost
from experiments.two_nodes import Curves
from oppo_sim.analysis.intervals import Mean
from oppo_sim.config import load_scenario
from oppo_sim.records import StepRecord
from oppo_sim.simulate import workload


class TestWholeResponses:
    @pytest.mark.parametrize(
        ("ratios", "verdict"),
        [
            ([0.9, 0.95], "confirmed"),
            ([0.995, 1.2], "corrected"),
            ([0.9, 1.2], "undecided"),
            ([], "undecided"),
        ],
    )
    def test_the_verdict_needs_all_scenarios(self, ratios: list[float], verdict: str) -> None:
        assert whole_responses.verdict(ratios) == verdict

    def test_level_lies_on_the_line_between_two_costs(self) -> None:
        assert whole_responses.crossing([(0.0, 0.9), (0.5, 0.98), (1.0, 1.06)]) == pytest.approx(
            0.5 + 0.5 * 0.02 / 0.08
        )
        assert whole_responses.crossing([(0.0, 1.1), (2.0, 1.3)]) is None


class TestTwoNodes:
    OVERLAP = Curves({0.0: 1.5, 0.1: 3.49, 0.2: 5.49}, {0.0: 1.5, 0.1: 2.0, 0.2: 2.5})

    def test_the_gather_that_reaches_the_paper_lies_on_the_line(self) -> None:
        assert self.OVERLAP.reached_s() == pytest.approx(0.15)

    def test_confirmed_where_only_a_gather_in_the_baseline_gets_there(self) -> None:
        assert two_nodes.judged(self.OVERLAP, 0.2, {}).verdict == "confirmed"

    def test_undecided_where_a_gather_in_both_comes_near_or_none_gets_there(self) -> None:
        both = self.OVERLAP._replace(both={0.0: 1.5, 0.1: 3.0, 0.2: 4.2})
        assert two_nodes.judged(both, 0.2, {}).verdict == "undecided"
        none = self.OVERLAP._replace(only={0.0: 1.5, 0.1: 2.0, 0.2: 2.5})
        assert two_nodes.judged(none, 0.2, {}).verdict == "undecided"

    def test_corrected_where_overlap_alone_comes_near(self) -> None:
        overlap = self.OVERLAP._replace(only={0.0: 4.0, 0.2: 9.0}, both={0.0: 4.0, 0.2: 5.0})
        assert two_nodes.judged(overlap, 0.2, {}).verdict == "corrected"


class TestStaleCaches:
    @pytest.mark.parametrize(
        ("slower", "verdict"),
        [((0.0, 0.01), "confirmed"), ((0.03, 0.05), "corrected"), ((0.0, 0.05), "undecided")],
    )
    def test_the_stressed_set_up_does_not_count(
        self, slower: tuple[float, float], verdict: str
    ) -> None:
        costs = {
            ("a", "made again at the update"): Cost(slower[0], 0.1, 0.2),
            ("b", "made again at the update"): Cost(slower[1], 0.1, 0.2),
            (stale_caches.STRESS, "made again at the update"): Cost(0.5, 1.0, 0.7),
        }
        assert stale_caches.judged(costs).verdict == verdict


def step(number: int, trained: list[tuple[int, int, int]], admitted: int) -> StepRecord:
    """A step of 10 s that trained these (rollout, tokens, deferrals)."""
    ids, tokens, deferrals = zip(*trained, strict=True)
    start_s = 10.0 * number
    times = dict.fromkeys(("taken_s", "scored_s", "train_start_s", "train_end_s"), start_s)
    counts = dict.fromkeys(
        ("overcommit", "running", "carried", "finished", "queued", "kv_used", "stale_tokens",
         "dropped", "carried_tokens", "wasted_tokens", "reprefilled_tokens", "kv_peak_tokens",
         "score_s", "hidden_score_s"), 0,
    )  # fmt: skip
    return StepRecord(
        step=number, start_s=start_s, end_s=start_s + 10, chunk_tokens=None, trained=ids,
        tokens=tokens, staleness=deferrals, deferrals=deferrals, rewards=(0.0,) * len(ids),
        admitted=admitted, **times, **counts,
    )  # fmt: skip


class TestDeferrals:
    def test_a_run_in_numbers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Rollout 1, of 9 tokens, comes a step late, and rollout 5 never."""
        monkeypatch.setattr(deferrals, "WINDOW", 1)
        monkeypatch.setattr(deferrals, "WARMUP", 0)
        monkeypatch.setattr(deferrals, "DECILES", 2)
        records = [
            step(0, [(0, 1, 0), (2, 2, 0)], 3),
            step(1, [(1, 9, 1), (3, 3, 0)], 5),
            step(2, [(4, 4, 0), (6, 6, 0)], 7),
        ]
        seen = deferrals.seen_in(records, [1, 9, 2, 3, 4, 50, 6])
        assert seen.course == pytest.approx((3 / 10 - 1, 12 / 5 - 1, 10 / 54 - 1))
        assert seen.late_course == pytest.approx(25 / 69 - 1)
        assert seen.by_decile == (0, 1 / 3)
        assert (seen.most, seen.never, seen.step_s) == (1, 0, 10.0)

    def test_what_is_never_trained_counts_if_it_came_early(self) -> None:
        records = [step(n, [(2 * n + 1, 5, 0), (2 * n + 2, 5, 0)], 2 * n + 3) for n in range(40)]
        seen = deferrals.seen_in(records, [700] + [5] * 90)
        assert (seen.never, seen.never_tokens) == (1, 700)

    @pytest.mark.parametrize(
        ("never", "bias", "verdict"),
        [(0, -0.01, "corrected"), (1, 0.0, "confirmed"), (0, -0.05, "confirmed")],
    )
    def test_the_verdict(self, never: int, bias: float, verdict: str) -> None:
        seen = deferrals.Seen(10.0, (bias,), bias, 3, (0.0, 1.0), never, 100.0)
        assert deferrals.judged({"D = 16": seen}).verdict == verdict
        lost = deferrals.Seen(10.0, (-0.1,), -0.1, 99, (0.0, 9.0), 5, 100.0)
        others = {"D = 16": seen, "D = 16, tokens thrown away": lost}
        assert deferrals.judged(others).verdict == verdict


class TestRunaways:
    CASE = runaways.Case("as the scenario has it", 2048, 0.001, "D = 32", 7.0, 0.3, 2.9)

    @pytest.mark.parametrize(
        ("changes", "verdict"),
        [
            ({}, "confirmed"),
            ({"gain": 2.7}, "corrected"),
            ({"share": 0.0}, "corrected"),
            ({"cap": 1024}, "corrected"),
            ({"longest": 5.0}, "corrected"),
            ({"longest": 5.0, "gain": 2.0}, "confirmed"),
            ({"longest": 5.0, "training": "cheaper"}, "confirmed"),
        ],
    )
    def test_one_case_that_takes_less_corrects(self, changes: dict[str, Any], verdict: str) -> None:
        """Where it is the only case as well as beside one that needs what is said."""
        plain = self.CASE._replace(share=0.0, longest=4.0, gain=1.5)
        other = self.CASE._replace(**changes)
        cases = [plain, other] if changes in ({"gain": 2.7}, {}) else [plain, self.CASE, other]
        assert runaways.judged(cases).verdict == verdict

    def test_the_longest_of_a_batch(self) -> None:
        """All but a hundredth end before 1,000 tokens: 1 - 0.99**112 of the batches run away."""
        cap = 100_000
        away = 1 - 0.99**112
        longest = runaways.longest_over_mean(0.01, cap)
        mean = 0.99 * 160 + 0.01 * cap
        assert longest == pytest.approx((away * cap + (1 - away) * 600) / mean, rel=0.05)


FREE = {64: 10.0, 500: 10.5, 2048: 12.0}
INSIDE = {64: 12.0, 500: 10.0, 2048: 12.0}


class TestChunkCost:
    def test_the_optimum_is_inside_only_where_both_ends_are_slower(self) -> None:
        assert chunk_cost.near({64: 10.0, 500: 10.09, 2048: 10.2}) == [64, 500]
        assert chunk_cost.is_inside(INSIDE)
        assert not chunk_cost.is_inside({64: 10.05, 500: 10.0, 2048: 12.0})

    @pytest.mark.parametrize(
        ("price_s", "free", "verdict"),
        [
            (0.5, FREE, "confirmed"),
            (0.1, FREE, "corrected"),
            (0.5, {64: 11.0, 500: 10.0, 2048: 10.0}, "corrected"),
            (None, FREE, "undecided"),
        ],
    )
    def test_the_verdict(self, price_s: float | None, free: dict[int, float], verdict: str) -> None:
        curves: dict[tuple[str, float, float], dict[int, float]] = {("intra", 1.0, 0.0): free}
        if price_s is not None:
            curves["intra", 1.0, price_s] = INSIDE
        assert chunk_cost.judged(curves).verdict == verdict


class TestDataParallel:
    CURVE: ClassVar = {1.0: 1.5, 0.7: 1.2, 0.5: 1.0}

    def test_the_ratio_that_gives_the_papers_lies_on_the_line(self) -> None:
        assert data_parallel.reached(self.CURVE) == pytest.approx(0.76)

    @pytest.mark.parametrize(
        ("curve", "at_vllm", "verdict"),
        [
            (CURVE, (0.4, 0.9), "confirmed"),
            (CURVE, (0.4, 1.1), "corrected"),
            ({1.0: 2.0, 0.5: 1.2}, (0.4, 0.9), "corrected"),
            ({1.0: 1.2, 0.5: 1.0}, (0.4, 0.9), "undecided"),
        ],
    )
    def test_the_verdict(
        self, curve: dict[float, float], at_vllm: tuple[float, float], verdict: str
    ) -> None:
        assert data_parallel.judged(curve, at_vllm, 1.2).verdict == verdict

    def test_vllm_is_faster_by_its_cost_model(self) -> None:
        """0.113 ms a layer and a roofline beside 0.894 ms a layer."""
        assert 0.113 / 0.894 < data_parallel.vllm_ratio() < 1


class TestScoringShare:
    def test_scoring_that_overlap_hides_whole(self) -> None:
        """100 s of other stages: a fifth more makes 120 s, of which a sixth is scoring."""
        assert scoring_share.scoring_s(100.0, 1.2) / 120 == pytest.approx(1 - 1 / 1.2)

    def test_the_flops_of_a_forward(self) -> None:
        """2 FLOPs per weight and token; attention adds little at such lengths, padding a lot."""
        scenario = load_scenario("stackexchange-7b")
        load = workload(scenario, 0)
        count = scoring_share.BATCHES * 112
        responses = load.responses(range(count))
        prompts = [load.prompt_tokens(rollout) for rollout in range(count)]
        tokens = (sum(responses) + sum(prompts)) / scoring_share.BATCHES
        seconds = scoring_share.at_peak_s("stackexchange-7b", 1, padded=False)
        assert seconds == pytest.approx(2 * 6.526e9 * tokens / 989e12, rel=0.05)
        longest = [max(responses[at : at + 112]) for at in range(0, count, 112)]
        padded = scoring_share.at_peak_s("stackexchange-7b", 1, padded=True)
        rows = (max(prompts) + sum(longest) / len(longest)) * 112
        assert padded / seconds == pytest.approx(rows / tokens, rel=0.1)

    @pytest.mark.parametrize(
        ("one", "three", "verdict"),
        [(0.05, 0.5, "confirmed"), (0.4, 0.9, "corrected"), (0.2, 0.9, "undecided")],
    )
    def test_the_verdict(self, one: float, three: float, verdict: str) -> None:
        needed = {
            ("a", 1, False): Needed(1.0, 1 / one, one),
            ("a", 3, True): Needed(1.0, 1 / three, three),
        }
        assert scoring_share.judged(needed).verdict == verdict


class TestMicroBatches:
    @pytest.mark.parametrize(
        ("two", "four", "gain", "verdict"),
        [
            (1.6, 2.5, 1.9, "confirmed"),
            (1.1, 1.3, 1.9, "corrected"),
            (1.6, 3.5, 1.9, "corrected"),
            (1.6, 2.5, 1.25, "corrected"),
        ],
    )
    def test_the_verdict(self, two: float, four: float, gain: float, verdict: str) -> None:
        """The longer tail takes inter from 1.2 to 1.8; micro-batches take it to `gain`."""
        longer = {(OWN, IN_STEP, 1): 1.0, (OWN, IN_STEP, 2): two, (OWN, IN_STEP, 4): four}
        gains = {
            (OWN, IN_STEP, 1): 1.8,
            (SHORT, IN_STEP, 1): 1.2,
            (SHORT, IN_STEP, 4): gain,
        }
        share = micro_batches.replaced(gains, IN_STEP)
        assert share is not None
        assert 1.2 * 1.5**share == pytest.approx(gain)
        assert micro_batches.judged(longer, gains).verdict == verdict


class TestController:
    def test_a_coin_keeps_the_constant_step_in_the_middle(self) -> None:
        """Up and down are alike, so D is uniform on 0 ... D_max, whatever the window."""
        for over in (1, 5, 20):
            assert fixed_or_dynamic_d.long_run("constant", over, 0, 8) == pytest.approx(
                0.5, abs=0.02
            )

    def test_small_steps_are_alike(self) -> None:
        """With D_max = 2 the proportional step is the constant one."""
        long_run = fixed_or_dynamic_d.long_run
        assert long_run("proportional", 5, 0, 2) == long_run("constant", 5, 0, 2)

    @pytest.mark.parametrize(
        ("constant", "proportional", "quiet", "verdict"),
        [(0.5, 0.6, 0.0, "confirmed"), (0.5, 0.25, 0.0, "corrected"), (0.5, 0.6, 0.3, "corrected")],
    )
    def test_the_verdict(
        self, constant: float, proportional: float, quiet: float, verdict: str
    ) -> None:
        flat = {"constant": constant, "proportional": proportional}
        key = fixed_or_dynamic_d.Key("constant", "flat", 0.0)
        assert fixed_or_dynamic_d.judged(flat, {key: quiet}).verdict == verdict


class TestEarlierOnes:
    @pytest.mark.parametrize(
        ("curve", "verdict"),
        [
            ({32: 12.0, 256: 10.0, 2048: 11.0}, "confirmed"),
            ({32: 12.0, 256: 10.0, 2048: 10.05}, "corrected"),
            ({32: 12.0, 128: 10.0, 2048: 11.0}, "corrected"),
        ],
    )
    def test_the_fastest_chunk(self, curve: dict[int, float], verdict: str) -> None:
        assert chunk_size.judged({("intra", 0): curve, ("oppo", 0): curve}).verdict == verdict

    @pytest.mark.parametrize(
        ("other", "verdict"),
        [
            ({0: 0.9, 1: 0.095, 2: 0.005}, "confirmed"),
            ({0: 0.9, 1: 0.08, 2: 0.02}, "corrected"),
            ({0: 0.4, 1: 0.6}, "corrected"),
            ({0: 1.0}, "confirmed"),
        ],
    )
    def test_lateness_holds_on_every_scenario(self, other: dict[int, float], verdict: str) -> None:
        shares = {("a", "staleness"): {0: 0.9, 1: 0.1}, ("b", "staleness"): other,
                  ("b", "deferrals"): {0: 0.1, 3: 0.9}}  # fmt: skip
        assert lateness.judged(shares).verdict == verdict

    @pytest.mark.parametrize(
        ("at_cap", "gain", "verdict"),
        [(8.0, 1.05, "confirmed"), (8.0, 1.2, "corrected"), (2.0, 1.2, "undecided")],
    )
    def test_a_cap_that_binds(self, at_cap: float, gain: float, verdict: str) -> None:
        found = binding_cap.judged({("a", 512, 4): gain}, {("a", 512): at_cap})
        assert found.verdict == verdict

    def test_scarce_memory_counts_the_regimes_that_reverse(self) -> None:
        gains = {(0, 100, 4): 1.2, (0, 10, 4): 0.9, (1, 100, 4): 1.2, (1, 10, 4): 1.1}
        assert scarce_kv.judged(gains).verdict == "corrected"
        assert scarce_kv.judged({**gains, (1, 10, 4): 0.9}).verdict == "confirmed"

    @pytest.mark.parametrize(
        ("seeds", "final", "apart", "verdict"),
        [
            (2, 0.9, 0.0, "confirmed"),
            (2, 0.7, 0.0, "corrected"),
            (2, 0.9, 0.05, "undecided"),
            (1, 0.9, 0.0, "undecided"),
        ],
    )
    def test_learning(self, seeds: int, final: float, apart: float, verdict: str) -> None:
        curve = np.full((seeds, 40), final)
        assert learning.judged({"trl": curve, "oppo": curve + apart}).verdict == verdict


class TestBestChunkAndD:
    @pytest.mark.parametrize(
        ("low", "high", "verdict"),
        [(0.99, 1.04, "confirmed"), (1.06, 1.3, "corrected"), (0.9, 1.3, "undecided")],
    )
    def test_the_verdict(self, low: float, high: float, verdict: str) -> None:
        leads = {"a": Mean(1.0, 0.99, 1.01), "b": Mean((low + high) / 2, low, high)}
        cells = dict.fromkeys(leads, (500, "8"))
        assert best_chunk_and_d.judged(leads, cells).verdict == verdict

    def test_the_best_with_and_without_a_bound_and_what_is_as_good(self) -> None:
        """Step times by seed: B is the fastest, C cannot be told from it, the paper's A is calm."""
        times = {(1, "A"): (5, 5), (1, "B"): (2, 3), (1, "C"): (3, 2.01), (1, "D"): (4, 4.01)}
        late = {"A": 0.1, "B": 0.9, "C": 0.8, "D": 0.1}
        case = Case("x", list(times), (1, "A"), 0, range(2), range(2, 4))
        for seed in range(2):
            case.found[None, seed] = {"step_s": 10.0}
            for cell, seconds in times.items():
                case.found[cell, seed] = {"step_s": seconds[seed], "staleness": late[cell[1]]}
        assert case.fastest == (1, "B")
        assert case.no_staler == (1, "D")
        assert (1, "C") in case.as_fast()
        assert case.gain((1, "A"), [0, 1], (1, "B")).mean == pytest.approx(6**0.5 / 5)

"""What each experiment makes of numbers that are made up for it."""

from __future__ import annotations

import pytest

from experiments import stale_caches, two_nodes, whole_responses
from experiments.stale_caches import Cost
from experiments.two_nodes import Curves


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

"""The pure choices between policies and engine: admission, release, routing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oppo_sim.policies.admission import admissible
from oppo_sim.policies.release import complete_groups, due_first, first_finished, oldest
from oppo_sim.policies.routing import least_loaded

# admission


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        ({}, 112),  # trl: a batch, and another with each version
        ({"version": 1, "admitted": 112}, 112),
        ({"admitted": 112}, 0),
        ({"overcommit": 16}, 128),  # oppo: D more, once
        ({"overcommit": 16, "version": 1, "admitted": 128}, 112),
        ({"overcommit": 12, "version": 2, "admitted": 240}, 108),  # D fell by 4
        ({"overcommit": 0, "version": 2, "admitted": 352}, 0),  # it fell below what is in flight
        ({"ahead": 1}, 224),  # one-step-off
        ({"ahead": 4, "version": 3, "admitted": 784}, 112),  # AReaL, eta = 4
        ({"group": 8, "overcommit": 112}, 224),  # APRIL
        ({"group": 8, "overcommit": 5}, 112),  # whole groups only
        ({"dropped": 3, "admitted": 112}, 3),  # what is dropped is made up for
        ({"group": 4, "dropped": 7, "admitted": 112}, 4),
    ],
)
def test_admission_by_hand(system: dict[str, int], expected: int) -> None:
    plain = {"version": 0, "batch": 112, "group": 1, "ahead": 0, "overcommit": 0}
    assert admissible(**{**plain, "admitted": 0, "dropped": 0, **system}) == expected


@given(
    version=st.integers(0, 9),
    group=st.integers(1, 8),
    groups=st.integers(1, 20),
    ahead=st.integers(0, 5),
    overcommit=st.integers(0, 200),
    admitted_groups=st.integers(0, 200),
    dropped_groups=st.integers(0, 200),
)
def test_admission_fills_the_formula_with_whole_groups(
    version: int,
    group: int,
    groups: int,
    ahead: int,
    overcommit: int,
    admitted_groups: int,
    dropped_groups: int,
) -> None:
    """admitted - dropped <= (version + 1 + ahead) * B + D, and one group more would break it."""
    admitted, dropped = admitted_groups * group, min(dropped_groups, admitted_groups) * group
    batch = groups * group
    more = admissible(
        version=version,
        batch=batch,
        group=group,
        ahead=ahead,
        overcommit=overcommit,
        admitted=admitted,
        dropped=dropped,
    )
    bound = (version + 1 + ahead) * batch + overcommit
    live = admitted - dropped
    assert more >= 0
    assert more % group == 0
    assert more == 0 or live + more <= bound
    assert live + more + group > bound


# release


def test_the_first_to_finish_make_the_batch() -> None:
    assert first_finished([7, 2, 9], batch=4, group=1) is None
    assert first_finished([7, 2, 9, 1, 5], batch=4, group=1) == (7, 2, 9, 1)


def test_a_group_counts_when_all_of_it_is_there() -> None:
    """Groups of two: {6, 7} is complete at the third finish, {2, 3} at the fifth."""
    finished = [7, 2, 6, 9, 3]
    assert complete_groups(finished, 2) == (6, 7, 2, 3)
    assert first_finished(finished, batch=4, group=2) == (6, 7, 2, 3)
    assert first_finished(finished, batch=2, group=2) == (6, 7)
    assert first_finished(finished[:4], batch=4, group=2) is None
    assert first_finished([1, 3, 5, 7], batch=4, group=2) is None


@given(st.permutations(range(24)), st.integers(0, 24), st.sampled_from([1, 2, 3, 4]))
def test_a_batch_of_groups_is_whole_and_the_earliest_to_be_complete(
    order: list[int], count: int, group: int
) -> None:
    """Complete means: the last member has finished; earlier ones of it are taken first."""
    finished = order[:count]
    place = {rollout: n for n, rollout in enumerate(finished)}
    groups = [range(g * group, (g + 1) * group) for g in range(24 // group)]
    complete = [g for g in groups if all(r in place for r in g)]
    complete.sort(key=lambda g: max(place[r] for r in g))
    expected = tuple(r for g in complete for r in g)[:12]
    assert first_finished(finished, 12, group) == (expected if len(expected) == 12 else None)


def test_the_oldest_are_waited_for() -> None:
    live = [3, 4, 5, 6]
    assert oldest(live, [6, 5, 4], batch=3) is None
    assert oldest(live, [6, 5, 4, 3], batch=3) == (3, 4, 5)
    assert oldest([3], [3], batch=2) is None


def test_what_falls_due_goes_first_and_is_waited_for() -> None:
    finished = [9, 4, 8, 2]
    assert due_first([], finished, batch=3, group=1) == (9, 4, 8)
    assert due_first([2, 8], finished, batch=3, group=1) == (2, 8, 9)
    assert due_first([2, 3], finished, batch=3, group=1) is None  # 3 has not finished
    assert due_first([2], finished[:2], batch=3, group=1) is None
    assert due_first([2], [2, 9], batch=3, group=1) is None  # too few others
    assert due_first([2, 4, 8, 9], finished, batch=3, group=1) == (2, 4, 8)


def test_a_group_with_one_member_due_goes_as_a_whole() -> None:
    finished = [9, 8, 5, 4, 3, 2]
    assert due_first([2], finished, batch=4, group=2) == (2, 3, 8, 9)
    assert due_first([6], finished, batch=4, group=2) is None
    assert due_first([2, 5], finished, batch=4, group=2) == (2, 3, 4, 5)


# routing


def test_the_least_loaded_lane_and_on_a_tie_the_earlier_one() -> None:
    assert least_loaded(5, load=[0, 0, 0], room=[9, 9, 9]) == [0, 1, 2, 0, 1]
    assert least_loaded(5, load=[3, 0, 1], room=[9, 9, 9]) == [1, 1, 2, 1, 2]


def test_a_full_lane_is_passed_over_and_when_all_are_full_it_ends_early() -> None:
    assert least_loaded(5, load=[0, 4], room=[2, 1]) == [0, 0, 1]
    assert least_loaded(5, load=[0, 0], room=[0, -1]) == []
    assert least_loaded(0, load=[0], room=[9]) == []


@given(
    st.integers(0, 40),
    st.lists(st.tuples(st.integers(0, 20), st.integers(-1, 20)), min_size=1, max_size=7),
)
def test_routing_is_the_greedy_choice_and_keeps_the_balance(
    rollouts: int, lanes: list[tuple[int, int]]
) -> None:
    """One rollout after the other to the lane with the least, by trying them all."""
    load, room = [lane[0] for lane in lanes], [lane[1] for lane in lanes]
    chosen = least_loaded(rollouts, load, room)
    now, left = list(load), list(room)
    for lane in chosen:
        open_lanes = [n for n in range(len(lanes)) if left[n] > 0]
        assert lane == min(open_lanes, key=lambda n: (now[n], n))
        now[lane] += 1
        left[lane] -= 1
    assert len(chosen) == min(rollouts, sum(max(0, r) for r in room))
    got_some = [now[lane] for lane in set(chosen)]
    still_open = [now[n] for n in range(len(lanes)) if left[n] > 0]
    assert not got_some or not still_open or max(got_some) <= min(still_open) + 1

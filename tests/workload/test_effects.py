"""Prompts and steps make lengths alike; without them everything is drawn as before."""

import time
from random import Random

import numpy as np
import pytest

from oppo_sim.workload import (
    Drift,
    Effects,
    Endless,
    Exponential,
    Lengths,
    Lognormal,
    QuantileTable,
    Replay,
    RewardCurve,
    Workload,
)

FLAT = RewardCurve(start=0, plateau=0, tau_steps=1, noise=0.5)
LAW = Lognormal(5.9, 0.4)
CAP = 10**6


def workload(lengths: Lengths | Replay = LAW, seed: int = 1, **effects: object) -> Workload:
    return Workload(
        lengths,
        cap_tokens=CAP,
        rewards=FLAT,
        seed=seed,
        prompts=Exponential(90),
        effects=Effects(**effects),  # type: ignore[arg-type]
    )


def logs(a_workload: Workload, count: int) -> np.ndarray:
    return np.log(a_workload.responses(range(count)))


def between(lengths: np.ndarray) -> float:
    """The share of variance between the rows, by one-way analysis of variance."""
    size = lengths.shape[1]
    within = lengths.var(axis=1, ddof=1).mean()
    among = lengths.mean(axis=1).var(ddof=1) - within / size
    return float(among / (among + within))


def test_without_effects_everything_is_drawn_as_before() -> None:
    """What the same seed gave before effects existed, of the law and of the streams."""
    before = [297, 551, 244, 173, 610]
    plain = Workload(LAW, cap_tokens=CAP, rewards=FLAT, seed=1, prompts=Exponential(90))
    assert plain.responses(range(5)) == before
    off = workload(prompt_effect=0.0, group=1)
    ids = range(5000)
    assert off.responses(ids) == plain.responses(ids)
    assert [off.prompt_tokens(i) for i in ids] == [plain.prompt_tokens(i) for i in ids]
    assert [off.reward(i, 0) for i in ids] == [plain.reward(i, 0) for i in ids]


def test_an_effect_leaves_the_streams_of_the_others_alone() -> None:
    plain = workload()
    for effects in ({"prompt_effect": 0.8}, {"drift": Drift(per_step=0.1), "batch": 7}):
        changed = workload(**effects)
        ids = range(3000)
        assert changed.responses(ids) != plain.responses(ids)
        assert [changed.prompt_tokens(i) for i in ids] == [plain.prompt_tokens(i) for i in ids]
        assert [changed.reward(i, 0) for i in ids] == [plain.reward(i, 0) for i in ids]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.79, 1.0])
def test_siblings_share_what_lies_between_prompts(share: float) -> None:
    lengths = logs(workload(prompt_effect=share, group=8), 80_000)
    assert between(lengths.reshape(-1, 8)) == pytest.approx(share, abs=0.01)
    assert (lengths.mean(), lengths.std()) == pytest.approx((5.9, 0.4), rel=0.02)


def test_a_group_has_one_prompt() -> None:
    a_workload = workload(group=8)
    prompts = np.array([a_workload.prompt_tokens(i) for i in range(8000)]).reshape(-1, 8)
    assert np.all(prompts == prompts[:, :1])
    assert len(np.unique(prompts[:, 0])) > 100
    assert prompts[:, 0].mean() == pytest.approx(90, rel=0.1)


def test_a_set_of_prompts_starts_over() -> None:
    """1,500 prompts, so that a pass ends within a block: the next pass has the same ones."""
    a_workload = workload(prompt_effect=0.79, group=2, prompt_set=1500)
    lengths = logs(a_workload, 12_000).reshape(4, 1500, 2)
    assert between(lengths.transpose(1, 0, 2).reshape(1500, 8)) == pytest.approx(0.79, abs=0.02)
    prompts = [a_workload.prompt_tokens(i) for i in range(6000)]
    assert prompts[:3000] == prompts[3000:]


def test_a_trend_and_an_autoregression_move_the_steps() -> None:
    """Slope, lag-1 correlation and spread of the step means of log length come back."""
    drift, batch, steps = Drift(per_step=-0.001, ar=0.9, noise=0.05), 64, 2000
    means = logs(workload(drift=drift, batch=batch), batch * steps).reshape(steps, batch).mean(1)
    slope, level = np.polyfit(np.arange(steps), means, 1)
    rest = means - slope * np.arange(steps) - level
    assert slope == pytest.approx(-0.001, abs=0.0001)
    sampling = 0.4**2 / batch
    walk = rest.var() - sampling
    assert walk == pytest.approx(0.05**2 / (1 - 0.9**2), rel=0.15)
    assert np.mean(rest[1:] * rest[:-1]) / walk == pytest.approx(0.9, abs=0.02)


def test_the_first_step_has_not_drifted() -> None:
    drift = Drift(per_step=0.5, ar=0.9, noise=1.0)
    ids = range(64)
    assert workload(drift=drift, batch=64).responses(ids) == workload().responses(ids)


def test_the_order_of_asking_does_not_matter() -> None:
    effects = {"prompt_effect": 0.5, "group": 3, "prompt_set": 700, "batch": 10}
    effects["drift"] = Drift(per_step=0.01, ar=0.5, noise=0.1)  # type: ignore[assignment]
    one, other = workload(**effects), workload(**effects)
    ids = list(range(0, 40_000, 37))
    in_order = {i: one.response_tokens(i) for i in ids}
    Random(0).shuffle(ids)
    assert {i: other.response_tokens(i) for i in ids} == in_order


def test_what_was_cut_stays_cut() -> None:
    """Nobody knows how long it would have been, so no drift can bring it below the cap."""
    cut = QuantileTable("t", (0, 1), (10, 90), cap_tokens=100, cap_share=0.25)
    for lengths, cap in ((cut, 100), (Endless(LAW, 0.25), CAP)):
        shrinking = Workload(
            lengths,
            cap_tokens=cap,
            rewards=FLAT,
            seed=1,
            prompts=9,
            effects=Effects(drift=Drift(per_step=-0.01), batch=10),
        )
        reasons = [shrinking.stop_reason(i) for i in range(4000)]
        assert reasons.count("cap") / 4000 == pytest.approx(0.25, abs=0.03)
        assert min(shrinking.responses(range(4000))) >= 1


def test_effects_cost_little_per_rollout() -> None:
    drift = Drift(per_step=1e-5, ar=0.9, noise=0.01)
    a_workload = workload(prompt_effect=0.8, group=8, drift=drift, batch=112)
    start_s = time.process_time()
    for i in range(50_000):
        a_workload.response_tokens(i)
    assert time.process_time() - start_s < 50_000 * 5e-6


@pytest.mark.parametrize(
    ("effects", "message"),
    [
        ({"prompt_effect": 1.5}, "prompt_effect must be a number from 0 to 1, not 1.5"),
        ({"prompt_effect": float("nan")}, "prompt_effect must be a finite number"),
        ({"group": 0}, "group must be a whole number >= 1, not 0"),
        ({"prompt_set": 0}, "prompt_set must be a whole number >= 1, not 0"),
        ({"drift": Drift()}, "batch must be a whole number >= 1, not None"),
    ],
)
def test_effects_refuse_bad_numbers(effects: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        workload(**effects)


def test_a_drift_refuses_bad_numbers() -> None:
    with pytest.raises(ValueError, match=r"drift.ar must be a number from -1 to 1, not 1.1"):
        Drift(ar=1.1)
    with pytest.raises(ValueError, match=r"drift.noise must be a finite number >= 0, not -1"):
        Drift(noise=-1)


@pytest.mark.parametrize("effects", [{"prompt_effect": 0.5}, {"drift": Drift(), "batch": 4}])
def test_a_replay_is_not_changed(effects: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="is replayed as it was recorded"):
        workload(Replay((3, 4, 5)), **effects)

"""Training logs: known laws are found, steps and columns that do not count are named."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from oppo_sim.calibration.laws import Law
from oppo_sim.calibration.log_costs import log_costs
from oppo_sim.calibration.logs import FittedLog, fit_log
from oppo_sim.calibration.shipped import shipped_log, shipped_logs
from oppo_sim.config import load_scenario, parse_scenario
from oppo_sim.simulate import simulate

STEPS = 60
Row = dict[str, float]


def verl_rows(steps: int = STEPS, seed: int = 0) -> list[Row]:
    """Generation of 2 + 0.1 * mean + 0.02 * longest, unpadded training, a padded reference."""
    rng = np.random.default_rng(seed)
    rows = []
    for step in range(steps):
        mean, longest, prompt = rng.uniform(100, 200), rng.uniform(300, 500), rng.uniform(80, 90)
        rows.append(
            {
                "step": step,
                "timing_s/gen": 2 + 0.1 * mean + 0.02 * longest,
                "timing_s/ref": 5.0,
                "timing_s/update_critic": 4 + 0.01 * (mean + prompt),
                "timing_s/update_actor": 6 + 0.02 * (mean + prompt),
                "timing_s/step": 19 + 0.13 * mean + 0.02 * longest + 0.03 * prompt,
                "response_length/mean": mean,
                "response_length/max": longest,
                "prompt_length/mean": prompt,
            }
        )
    return rows


def written(folder: Path, rows: Iterable[Row], name: str = "log.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def law_of(log: FittedLog, stage: str) -> Law:
    law = log.law(stage)
    assert law is not None
    return law


def test_known_laws_are_found_from_the_first_steps(tmp_path: Path) -> None:
    log = fit_log(written(tmp_path, verl_rows()))
    assert (log.framework.name, log.steps, log.fitted) == ("verl", 60, 18)
    generation, training = law_of(log, "generation"), law_of(log, "training")
    assert generation.constant == pytest.approx(2, rel=1e-3)
    assert generation.value("mean response token") == pytest.approx(0.1, rel=1e-3)
    assert generation.value("longest response token") == pytest.approx(0.02, rel=1e-3)
    assert training.constant == pytest.approx(10, rel=1e-3)
    assert training.value("mean token") == pytest.approx(0.03, rel=1e-3)
    assert law_of(log, "reference").constant == pytest.approx(5)
    assert law_of(log, "whole step").held_out.median.value < 1e-3
    assert all(one.law.held_out.rows == 42 for one in log.stages)


def test_validations_checkpoints_and_missing_columns_are_named(tmp_path: Path) -> None:
    rows = verl_rows()
    for row in rows[9::10]:
        row["timing_s/testing"] = 30.0
    rows[4] |= {"timing_s/save_checkpoint": 9.0, "timing_s/gen": 500.0}
    del rows[5]["response_length/max"]
    log = fit_log(written(tmp_path, rows))
    assert log.steps == 60 - 6 - 1 - 1
    assert "6 steps with validation (timing_s/testing)" in log.left_out
    assert "1 steps with a checkpoint (timing_s/save_checkpoint)" in log.left_out
    assert any(
        said.startswith("1 steps without a credible response_length/mean") for said in log.left_out
    )
    assert "no timing_s/reward in the log" in log.left_out
    assert law_of(log, "generation").value("mean response token") == pytest.approx(0.1, rel=1e-3)


def test_a_printed_log_gives_what_its_table_gives(tmp_path: Path) -> None:
    rows = verl_rows()
    lines = [
        f"step:{row['step']} - " + " - ".join(f"{k}:{v!r}" for k, v in row.items() if k != "step")
        for row in rows
    ]
    (tmp_path / "run.log").write_text("loading\n" + "\n".join(lines) + "\n")
    printed, table = fit_log(tmp_path / "run.log"), fit_log(written(tmp_path, rows))
    assert printed.stages == table.stages


def test_numbers_that_cannot_be_do_not_count(tmp_path: Path) -> None:
    rows = verl_rows()
    rows[2]["timing_s/gen"] = 1e300
    rows[3]["response_length/max"] = 1e300
    rows[4]["response_length/mean"] = 600.0  # above the longest
    for row in rows:
        row["timing_s/adv"] = 0.0
    del rows[6]["prompt_length/mean"], rows[7]["timing_s/step"]
    log = fit_log(written(tmp_path, rows))
    assert log.steps == 57
    assert law_of(log, "generation").held_out.median.value < 1e-3
    assert law_of(log, "training").held_out.median.value < 1e-3
    assert law_of(log, "training").fitted == law_of(log, "generation").fitted - 1
    assert "advantages: 0 steps with a time above 0 for timing_s/adv" in log.left_out


def test_lengths_that_leave_what_was_fitted_are_a_doubt(tmp_path: Path) -> None:
    rows = verl_rows()
    for row in rows[30:]:
        row["response_length/mean"] *= 3
        row["response_length/max"] *= 3
    log = fit_log(written(tmp_path, rows))
    assert any(doubt.startswith("lengths drift") for doubt in log.doubts)
    assert not fit_log(written(tmp_path, verl_rows())).doubts


def test_what_cannot_be_fitted_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"20 steps to use, 6 of them fitted.*longer log"):
        fit_log(written(tmp_path, verl_rows(20)))
    lengths = [{"step": s, "completions/mean_length": 9.0} for s in range(99)]
    with pytest.raises(ValueError, match="no step with the stage times of a known framework"):
        fit_log(written(tmp_path, lengths))
    with pytest.raises(ValueError, match="cannot be read"):
        fit_log(tmp_path / "none.csv")


def test_costs_of_a_simulated_step_come_back_from_its_log(tmp_path: Path) -> None:
    """A sequential run on one lane, written as verl would log it: the prices that made it."""
    known = {
        "decode_token_s": 0.02,
        "decode_rollout_s": 0.001,
        "score_call_s": 0.5,
        "score_token_s": 0.0003,
        "train_call_s": 2.0,
        "train_token_s": 0.0005,
        "sync_call_s": 0.7,
    }
    document = load_scenario("tiny").document()
    document["costs"] = {"model": "linear", **known}
    document["cluster"] = {"devices": 2, "actors": 1, "scorers": 1}
    scenario = parse_scenario(document)
    rows = []
    for record in simulate(scenario, scenario.schedule("trl"), steps=200):
        rows.append(
            {
                "step": record.step,
                "timing_s/gen": record.taken_s - record.start_s,
                "timing_s/reward": record.scored_s - record.taken_s,
                "timing_s/update_actor": record.train_end_s - record.train_start_s,
                "timing_s/update_weights": record.end_s - record.train_end_s,
                "response_length/mean": float(np.mean(record.tokens)),
                "response_length/max": max(record.tokens),
                "prompt_length/mean": 20.0,
            }
        )
    path = written(tmp_path, rows)
    found = log_costs(path, fit_log(path), batch=8, lanes=1)
    assert found is not None
    assert found.costs == pytest.approx(known, rel=0.01)
    assert found.scenario is not None
    again = parse_scenario(found.scenario)
    records = simulate(again, steps=300)
    assert np.mean([r.seconds for r in records]) == pytest.approx(
        np.mean([sum(v for k, v in row.items() if k.startswith("timing_s/")) for row in rows]),
        rel=0.1,  # its lengths are exponential, and a lognormal stands for them
    )


@pytest.mark.parametrize("name", shipped_logs())
def test_public_logs_are_predicted_within_ten_percent(
    public: Callable[[str], FittedLog], name: str
) -> None:
    """But for the generation of the log whose lengths triple, and that says so itself."""
    log = public(name)
    assert law_of(log, "training").held_out.median.value <= 0.10
    error = law_of(log, "generation").held_out.median.value
    drifts = any(doubt.startswith("lengths drift") for doubt in log.doubts)
    assert drifts == (name == "verl-gpg-qwen2-7b-math")
    assert error <= 0.10 or drifts


def test_of_a_padded_log_every_stage_is_constant(public: Callable[[str], FittedLog]) -> None:
    """By the log's own medians, which are 2.5 and 1.0 s; its e2e is the sum of its stages."""
    log = public("deepspeed-chat-opt-1.3b")
    assert log.framework.name == "DeepSpeed-Chat"
    assert all(len(one.law.estimates) == 1 for one in log.stages)
    assert law_of(log, "generation").constant == pytest.approx(2.5, abs=0.05)
    assert law_of(log, "whole step").held_out.median.value < 0.02
    with shipped_log("deepspeed-chat-opt-1.3b") as path:
        assert log_costs(path, log, batch=64, lanes=16) is None


def test_unpadded_training_is_linear_in_tokens(public: Callable[[str], FittedLog]) -> None:
    """Three times as long responses cost what the first steps say, within 1 %."""
    training = law_of(public("verl-gpg-qwen2-7b-math"), "training")
    assert training.held_out.median.value < 0.01 < training.held_out.null_error

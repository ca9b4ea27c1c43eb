"""What verl, TRL and DeepSpeed-Chat log of lengths, and the law behind it."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oppo_sim.workload import Lognormal
from oppo_sim.workload.steplogs import StepLog, TimeLog, framework_of, read_log
from oppo_sim.workload.tabular import first_columns

# Rows of a verl run (deepseek 7B on GSM8K, 8 x MI300) as they were logged, the last one made up: a
# step that was only validated. Columns that other runs have are missing.
VERL = """log,step,timing_s/gen,critic/score/mean,response_length/mean,response_length/max,\
response_length/min,prompt_length/mean,timing_s/testing,response_length/clip_ratio
run.log,1,32.337,0.268,191.186,512,5,83.496,,0.019
run.log,2,29.313,0.252,197.018,512,17,81.428,,0.013
run.log,3,28.258,0.293,192.021,512,44,82.732,,0.015
run.log,4,,,,,,,31.2,
"""
PRINTED = """(main_task pid=1) loading
step:1 - timing_s/gen:32.337 - response_length/mean:191.186 - response_length/max:512.000 - \
response_length/clip_ratio:0.019
(main_task pid=1) saving a checkpoint, step: 1
step:1 - val/test_score:0.31
step:2 - timing_s/gen:29.313 - response_length/mean:197.018 - response_length/max:512.000 - \
response_length/clip_ratio:0.013
"""
DEEPSPEED = """|E2E latency=7.99s |Gather latency=0.00s (0.00%) |Generate time=5.26s (65.83%) \
|Training time=2.52s (31.54%) |Others=0.22 (2.73%)|CurSamplesPerSec=4.0
Epoch: 0 | Step: 1
|E2E latency=3.73s |Gather latency=0.00s (0.00%) |Generate time=2.78s (74.53%) \
|Training time=0.74s (19.84%) |Others=0.21 (5.63%)|CurSamplesPerSec=8.6
"""


def lengths_of(folder: Path, name: str, text: str) -> StepLog:
    (folder / name).write_text(text)
    log = read_log(folder / name)
    assert isinstance(log, StepLog)
    return log


def test_a_verl_log_is_read_as_it_comes(tmp_path: Path) -> None:
    log = lengths_of(tmp_path, "verl.csv", VERL)
    assert framework_of(first_columns(tmp_path / "verl.csv")) == "verl"
    assert (log.framework, len(log.steps), log.skipped) == ("verl", 3, 1)
    assert log.means.tolist() == [191.186, 197.018, 192.021]
    assert log.cap_tokens == 512
    assert log.share_at_cap(256) == pytest.approx(0.047 / 3)
    assert log.idle_share == pytest.approx(1 - (191.186 + 197.018 + 192.021) / (3 * 512))


def test_a_verl_log_as_printed(tmp_path: Path) -> None:
    log = lengths_of(tmp_path, "verl.log", PRINTED)
    assert (log.steps.tolist(), log.skipped) == ([1, 2], 0)
    validated = PRINTED.replace("step:1 - val", "step:0 - kl:nan - val")
    again = validated + validated.replace("191.186", "200.5").replace("step:2", "step:3")
    log = lengths_of(tmp_path, "verl.log", again)
    assert (log.steps.tolist(), log.skipped) == ([1, 2, 3], 1)
    assert log.means.tolist() == [200.5, 197.018, 197.018]  # what the run that went on says
    log = lengths_of(tmp_path, "verl.log", PRINTED)
    assert log.clipped is not None
    assert log.clipped.tolist() == [0.019, 0.013]


def test_a_trl_log_and_a_tracker_prefix(tmp_path: Path) -> None:
    rows = [
        {"step": s, "train/completions/mean_length": 23.65, "train/completions/max_length": 41.8}
        for s in range(3)
    ]
    text = "".join(json.dumps(row) + "\n" for row in [*rows, {"step": 4, "eval_loss": 0.1}])
    log = lengths_of(tmp_path, "trl.jsonl", text)
    assert framework_of(first_columns(tmp_path / "trl.jsonl")) == "TRL"
    assert (log.framework, len(log.steps), log.skipped) == ("TRL", 3, 1)
    assert log.clipped is None


def test_a_trl_log_as_printed(tmp_path: Path) -> None:
    """A dict a step, behind a progress bar; transformers 5 prints its numbers as texts."""
    text = (
        "{'loss': 0.02, 'completions/mean_length': 23.5, 'completions/max_length': 41.0, "
        "'completions/clipped_ratio': 0.0, 'epoch': 0.1}\n"
        "  7%|7  | 2/30 [00:12<02:50]{'eval_loss': '0.1', 'eval_completions/mean_length': '9'}\n"
        "{'loss': '1e-05', 'completions/mean_length': '1.5e+02', 'completions/max_length': '256', "
        "'completions/clipped_ratio': '0.25'}\n"
    )
    log = lengths_of(tmp_path, "trl.log", text)
    assert (log.framework, log.means.tolist(), log.skipped) == ("TRL", [23.5, 150.0], 0)
    assert log.longest.tolist() == [41.0, 256.0]
    assert log.share_at_cap(4) == pytest.approx(0.125)


def test_a_verl_log_from_its_file_logger_and_with_names_of_numpy(tmp_path: Path) -> None:
    data = {"response_length/mean": 191.5, "response_length/max": 512}
    text = json.dumps({"step": 3, "data": data}) + "\n"
    log = lengths_of(tmp_path, "verl.jsonl", text)
    assert framework_of(first_columns(tmp_path / "verl.jsonl")) == "verl"
    assert (log.steps.tolist(), log.means.tolist()) == ([3], [191.5])
    printed = "step:3 - response_length/mean:np.float64(191.5) - response_length/max:512.0\n"
    assert lengths_of(tmp_path, "verl.log", printed).means.tolist() == [191.5]


def test_the_longest_of_steps_is_a_cap_only_where_something_says_so(tmp_path: Path) -> None:
    """One step shows nothing, nor does a length that no response was clipped at."""
    row = "{},150.0,300.0{}\n"
    for text in (
        "step,response_length/mean,response_length/max\n" + row.format(1, ""),
        "step,response_length/mean,response_length/max,response_length/clip_ratio\n"
        + "".join(row.format(step, ",0.0") for step in range(9)),
    ):
        log = lengths_of(tmp_path, "verl.csv", text)
        assert (log.cap_tokens, log.share_at_cap(64)) == (None, 0.0)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("d.csv", "step,e2e,gather,generate,training\n0,7.99,0,5.26,2.52\n1,3.73,0,2.78,0.74\n"),
        ("d.log", DEEPSPEED),
    ],
)
def test_a_deepspeed_chat_log_holds_seconds(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    log = read_log(tmp_path / name)
    assert isinstance(log, TimeLog)
    assert (log.framework, log.steps) == ("DeepSpeed-Chat", 2)
    assert log.generation_share == pytest.approx((5.26 + 2.78) / (7.99 + 3.73))


def logged(law: Lognormal, batch: int, cap: int | None, steps: int = 300) -> StepLog:
    """What a framework would log of such responses."""
    lengths = law.ppf(np.random.default_rng(0).random((steps, batch)))
    cut = lengths if cap is None else np.minimum(lengths, cap)
    clipped = None if cap is None else (lengths > cap).mean(axis=1)
    return StepLog(
        "verl", np.arange(steps, dtype=float), cut.mean(axis=1), cut.max(axis=1), clipped, 0
    )


@pytest.mark.parametrize("cap", [None, 900, 600])
def test_the_law_behind_a_log_is_found_again(cap: int | None) -> None:
    law = Lognormal(5.5, 0.6)
    found = logged(law, 128, cap).law(128)
    assert found is not None
    assert (found.mu, found.sigma) == pytest.approx((5.5, 0.6), rel=0.02)


def test_without_a_clip_ratio_the_longest_of_the_steps_say_how_many_were_cut() -> None:
    log = logged(Lognormal(5.5, 0.6), 128, 1024)
    silent = StepLog("verl", log.steps, log.means, log.longest, None, 0)
    assert silent.cap_tokens == 1024
    assert silent.share_at_cap(128) == pytest.approx(log.share_at_cap(128), rel=0.2)


def test_no_lognormal_has_a_mean_above_its_longest() -> None:
    ones = np.full(10, 100.0)
    log = StepLog("verl", np.arange(10.0), ones, ones, None, 0)
    assert log.law(64) is None
    drift = log.drift(64)
    assert drift is not None
    assert drift.per_step == pytest.approx(0, abs=1e-12)
    assert log.idle_share == 0


def test_a_trend_of_the_means_is_the_drift() -> None:
    steps = np.arange(400.0)
    means = 300 * np.exp(-0.002 * steps)
    drift = StepLog("verl", steps, means, 3 * means, None, 0).drift(10**6)
    assert drift is not None
    assert drift.per_step == pytest.approx(-0.002, rel=1e-6)
    assert math.isclose(drift.noise, 0, abs_tol=1e-3)


NUMBERS = st.sampled_from(["0", "1", "-3", "1e308", "nan", "inf", "512", "0.5", "x", ""])
METRICS = st.sampled_from(
    ["response_length/mean", "response_length/max", "response_length/clip_ratio", "step", "e2e"]
)
LINES = st.lists(st.tuples(METRICS, NUMBERS), max_size=5).map(
    lambda pairs: "step:1 - " + " - ".join(f"{name}:{value}" for name, value in pairs)
)
TEXTS = st.lists(st.one_of(LINES, st.text(max_size=30)), max_size=8).map("\n".join)
ROWS = st.lists(st.lists(NUMBERS, min_size=4, max_size=4).map(",".join), max_size=8).map(
    lambda rows: "\n".join(["step,response_length/mean,response_length/max,e2e", *rows])
)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.one_of(TEXTS.map(lambda t: (".log", t)), ROWS.map(lambda t: (".csv", t))))
def test_malformed_logs_are_refused_in_one_line(tmp_path: Path, file: tuple[str, str]) -> None:
    """Whatever a log holds: steps, or a ValueError that names the file; nothing else."""
    path = tmp_path / f"some{file[0]}"
    path.write_text(file[1], encoding="utf-8", errors="replace")
    try:
        log = read_log(path)
    except ValueError as error:
        said = str(error)
    else:
        said = str(path)
        if isinstance(log, StepLog):
            assert 0 <= log.idle_share < 1
            log.law(64)
            log.drift(64)
    assert said.startswith(str(path))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.log", "nothing here\nstep:1 - loss:0.3\n"),
        ("a.txt", ""),
        ("a.csv", "step,response_length/mean,response_length/max\n1,,\n2,nan,5\n3,9,5\n"),
    ],
)
def test_a_log_without_lengths_is_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=f"{name}: no step with the mean and the longest"):
        read_log(tmp_path / name)
    with pytest.raises(ValueError, match="cannot be read"):
        read_log(tmp_path / "none.log")

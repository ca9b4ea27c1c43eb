"""A scenario whose costs are a table of measured times."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from oppo_sim.config import ConfigError, load_scenario
from oppo_sim.costs import Measured
from oppo_sim.simulate import costs, simulate

TABLE = """\
# machine = "one H200"
# versions = "an engine, 1.0"
# date = "2026-01-01"
# source = "made up for a test"
task,batch,context_tokens,tokens,seconds
decode,1,0,,0.02
decode,1,2000,,0.02
decode,8,0,,0.03
decode,8,16000,,0.06
prefill,1,0,1,0.01
prefill,1,0,10000,0.4
score,1,0,1,0.02
score,1,0,10000,0.9
train,1,0,1,1.0
train,1,0,100000,50.0
"""
SCENARIO = """
name = "mine"
steps = 3
[workload]
lengths = { exponential = 60 }
max_response_tokens = 200
prompt_tokens = 20
reward = { start = 0.0, plateau = 1.0, tau_steps = 10, noise = 0.1 }
[cluster]
devices = 3
actors = 2
[costs]
model = "table"
file = "times.csv"
[schedule]
name = "oppo"
batch = 4
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "times.csv").write_text(TABLE)
    file = tmp_path / "mine.toml"
    file.write_text(SCENARIO)
    return file


def test_the_file_is_found_beside_the_scenario_and_runs(mine: Path) -> None:
    scenario = load_scenario(mine)
    priced = costs(scenario)
    assert isinstance(priced, Measured)
    assert priced.decode.token_s(8, 8000) == pytest.approx(0.045)
    assert priced.measurements.provenance["machine"] == "one H200"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert len(list(simulate(scenario))) == 3


def test_a_step_of_a_table_is_the_sum_of_its_stages(tmp_path: Path) -> None:
    """Two rollouts of 100 tokens: prefill 40, then 100 iterations of 2 from a context of 40."""
    (tmp_path / "times.csv").write_text(TABLE)
    file = tmp_path / "mine.toml"
    text = SCENARIO.replace("exponential = 60", "constant = 100").replace("batch = 4", "batch = 2")
    file.write_text(text.replace("devices = 3\nactors = 2", "devices = 2\nactors = 1"))
    scenario = load_scenario(file, {"schedule.name": "trl", "steps": 1})
    priced = costs(scenario)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (record,) = list(simulate(scenario))
        decode_s = sum(
            # at 2 rollouts a seventh of the way from 1 to 8: 0.02 + (0.01 + 0.015 x / 1000) / 7
            0.02 + (0.01 + 0.03 * x / 2000) / 7
            for x in range(20, 120)
        )
        prefill_s = 0.01 + (0.4 - 0.01) * 39 / 9999
        score_s = 0.02 + (0.9 - 0.02) * 239 / 9999
        train_s = 1 + 49 * 239 / 99999
        assert priced.train_s(2, 240, 120) == pytest.approx(train_s)
        stages = prefill_s + decode_s + score_s + train_s
        assert record.end_s == pytest.approx(stages, rel=1e-3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"costs.file": "none.csv"}, r"costs\.file: .*none\.csv: cannot be read: No such file"),
        ({"costs.file": "spltwise"}, r"unknown table of times 'spltwise'; .*or give the path"),
        (
            {"costs.train_call_s": 1.0},
            r"costs\.train_call_s = 1\.0: times has rows of train; leave",
        ),
        (
            {"costs.file": "splitwise-llama2-70b-h100-tp8"},
            r"no row of score; measure it, or set costs\.score_token_s or score_call_s \(0\.0",
        ),
        ({"costs.fil": 1}, r"unknown key 'fil'; did you mean 'file'"),
        ({"costs.score_token_s": -1}, r"costs\.score_token_s = -1: must be at least 0"),
    ],
)
def test_mistakes(mine: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        costs(load_scenario(mine, changes))


def test_splitwise_runs_with_what_it_did_not_measure(mine: Path) -> None:
    changes = {
        "costs.file": "splitwise-llama2-70b-h100-tp8",
        "costs.score_token_s": 1e-4,
        "costs.train_call_s": 5.0,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert len(list(simulate(load_scenario(mine, changes), steps=2))) == 2

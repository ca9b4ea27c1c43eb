"""A scenario of one's own, and the shipped one that is quick."""

from __future__ import annotations

from pathlib import Path

import pytest

from oppo_sim.config import Scenario, load_scenario

SCENARIO = """
name = "mine"
steps = 4
[workload]
lengths = { constant = 30 }
max_response_tokens = 40
prompt_tokens = 5
reward = { start = 0.0, plateau = 1.0, tau_steps = 10, noise = 0.1 }
[cluster]
devices = 2
actors = 1
[costs]
model = "constant"
decode_token_s = 0.01
[schedule]
name = "oppo"
batch = 4
"""


@pytest.fixture
def scenario_file(tmp_path: Path) -> Path:
    file = tmp_path / "mine.toml"
    file.write_text(SCENARIO)
    return file


@pytest.fixture
def tiny() -> Scenario:
    return load_scenario("tiny")

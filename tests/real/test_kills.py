"""A run that was killed at any moment goes on; what of it is the same to the last bit.

OPPO_KILLS=20 asks for more kills than a test should take.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oppo_real.build import build_scorer
from oppo_real.networks.scoring import ScoreChunk
from oppo_sim.config import load_scenario
from oppo_sim.costs import layout
from oppo_sim.engine import Limits, restore
from oppo_sim.engine.contract import Entry
from oppo_sim.engine.spans import SpanRecorder
from oppo_sim.runs import read_run
from tests.real import tiny
from tests.real.short_runs import assert_same, scenario, train, weights

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
KILLS = int(os.environ.get("OPPO_KILLS", "4"))
STEPS = 10 + 7 * KILLS


@pytest.mark.parametrize(
    ("schedule", "sets"),
    [
        ("trl", ["real.workers=inline"]),
        ("trl", ["real.workers=threads"]),
        ("oppo", ["real.workers=inline", "real.coalesce=false"]),
    ],
)
def test_the_weights_are_those_of_a_run_that_was_not_killed(
    schedule: str, sets: list[str], tmp_path: Path
) -> None:
    config = scenario(tmp_path)
    whole = trained(config, tmp_path / "whole", schedule, sets, kills=0)
    killed = trained(config, tmp_path / "killed", schedule, sets, kills=KILLS)
    assert_same(weights(whole), weights(killed))
    one, other = read_run(whole), read_run(killed)
    assert [r.trained for r in one.steps] == [r.trained for r in other.steps]
    assert [r.rewards for r in one.steps] == [r.rewards for r in other.steps]
    assert [r.staleness for r in one.steps] == [r.staleness for r in other.steps]


def test_with_time_in_play_no_rollout_is_lost_trained_twice_or_scored_otherwise(
    tmp_path: Path,
) -> None:
    """Schedule oppo on threads. Each reward is met by one forward over the whole response."""
    config = scenario(tmp_path)
    out = trained(config, tmp_path / "killed", "oppo", ["real.workers=threads"], kills=KILLS)
    steps = read_run(out).steps
    assert len(steps) == STEPS
    ids = [rollout for record in steps for rollout in record.trained]
    assert len(ids) == len(set(ids))
    in_flight = steps[-1].admitted - steps[-1].dropped - len(ids)
    assert 0 <= in_flight <= steps[-1].overcommit
    lines = [json.loads(line) for line in out.with_suffix(".jsonl").read_text().splitlines()]
    batches = {tuple(sorted(line["rollouts"])): line for line in lines}
    scorer = build_scorer(load_scenario(config), 0, (tiny.EOS,))
    for record in steps:
        batch = batches[tuple(sorted(record.trained))]
        rewards = dict(zip(record.trained, record.rewards, strict=True))
        lengths = dict(zip(record.trained, record.tokens, strict=True))
        for rollout, prompt, response in rows(batch):
            chunk = ScoreChunk(rollout, prompt, response, start=0, last=True)
            (scored,) = scorer.score([chunk])
            assert len(response) == lengths[rollout]
            assert rewards[rollout] == pytest.approx(scored.reward, abs=1e-5)


def test_what_a_run_that_goes_on_trains_follows_from_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On threads: its log, folded on the state in the checkpoint, gives the same records."""
    config, out, log = scenario(tmp_path), tmp_path / "run", list[Entry]()

    class Logged(SpanRecorder):
        def __call__(self, entry: Entry) -> None:
            log.append(entry)
            super().__call__(entry)

    assert train(config, out, "--steps", "3") == 0
    saved = json.loads((out / "checkpoints" / "step-00000003" / "state.json").read_text())
    monkeypatch.setattr("oppo_real.train.SpanRecorder", Logged)
    assert train(config, out, "--steps", "9", "--resume") == 0
    loaded = load_scenario(config)
    lanes = {lane.name: lane for lane in layout.lanes(loaded.cluster, loaded.cluster.kv_tokens)}
    limits = Limits(prompt_tokens=3, response_tokens=24)
    state, scores = restore(loaded.schedule(), lanes, limits, saved["engine"])
    records = []
    for entry in log[len(scores) :]:
        step = state.step
        state.apply(entry)
        if state.step > step:
            records.append(state.records[-1])
    assert records == [*read_run(out).steps[3:]]


def rows(batch: dict[str, Any]) -> Any:
    return zip(batch["rollouts"], batch["prompts"], batch["responses"], strict=True)


def trained(config: Path, out: Path, schedule: str, sets: list[str], *, kills: int) -> Path:
    options = ["--schedule", schedule, "--steps", str(STEPS)]
    options += [part for one in sets for part in ("--set", one)]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.real.kills",
            str(config),
            str(out),
            str(kills),
            "7",
            *options,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sum(json.loads(done.stdout).values()) == kills
    assert read_run(out).complete
    return out

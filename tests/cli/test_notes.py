"""What a command says beside its answer, on stderr: one line each."""

import json
from pathlib import Path

import pytest

from oppo_sim.cli import train
from tests.cli.conftest import Oppo

SHORT = ("--set", "workload.max_response_tokens=40")
FEW = ("--steps", 2, "--seeds", 1, "--jobs", 1)


@pytest.fixture
def long(tmp_path: Path) -> Path:
    file = tmp_path / "long.csv"
    file.write_text("response_tokens\n" + "500\n" * 10)
    return file


def warnings(err: str) -> list[str]:
    return [line for line in err.splitlines() if line.startswith("oppo: warning: ")]


def test_run_says_that_own_lengths_are_cut(oppo: Oppo, long: Path) -> None:
    lengths = ("--set", f"workload.lengths={long}")
    code, out, err = oppo("run", "tiny", "--steps", 2, *lengths, "--json")
    assert code == 0
    json.loads(out)
    (said,) = warnings(err)
    assert "100.0% of workload.lengths are longer than" in said
    assert "--set workload.max_response_tokens=500" in said


def test_run_and_compare_say_what_is_not_streamed(oppo: Oppo) -> None:
    (said,) = warnings(oppo("run", "tiny", "--steps", 2, *SHORT).err)
    assert "oppo: no chunk (50 tokens) is below workload.max_response_tokens = 40" in said
    (said,) = warnings(oppo("compare", "tiny", *FEW, *SHORT).err)
    assert "intra, oppo: no chunk (50 tokens)" in said
    assert not warnings(oppo("run", "tiny", "--steps", 2, *SHORT, "--schedule", "trl").err)


def test_run_and_compare_say_what_takes_turns(oppo: Oppo) -> None:
    (said,) = warnings(oppo("run", "tiny", "--steps", 2, "--schedule", "areal").err)
    assert "areal: generating ahead is meant to run beside training" in said
    (said,) = warnings(oppo("compare", "tiny", *FEW, "--schedules", "trl,one-step-off").err)
    assert "cluster.trainer_devices=1" in said


def test_train_says_the_same_but_draws_no_lengths(
    oppo: Oppo, long: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(name: str, what: str) -> None:
        raise ValueError("not here")

    monkeypatch.setattr(train, "real_module", nothing)
    example = Path(__file__).parents[2] / "experiments/configs/real/even-tokens.toml"
    own = ("--set", f"workload.lengths={long}", "--out", tmp_path / "run")
    chunk = ("--set", "schedule.chunk=16")
    turns = ("--schedule", "areal")
    assert not warnings(oppo("train", example, *own).err)
    assert "no chunk (16 tokens)" in warnings(oppo("train", example, *own, *chunk).err)[0]
    assert "beside training" in warnings(oppo("train", example, *own, *turns).err)[0]
    drawn = ("--set", "real.lengths='workload'")
    assert "are longer than" in warnings(oppo("train", example, *own, *drawn).err)[0]

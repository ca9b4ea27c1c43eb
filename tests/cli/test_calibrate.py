"""`oppo calibrate`: what is printed, written and refused."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Oppo

Refused = Callable[..., str]
LOG = "verl-gpg-qwen2-7b-math-megatron"


@pytest.fixture
def run(oppo: Oppo, tmp_path: Path) -> Path:
    out = tmp_path / "run"
    asked = ("run", "tiny", "--schedule", "trl", "--steps", 60, "--out", out, "--spans")
    assert oppo(*asked).code == 0
    return out


def test_a_public_log_by_its_name(oppo: Oppo) -> None:
    code, out, _ = oppo("calibrate", LOG)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    said = " ".join(out.split())
    assert "the first 25 are fitted, the other 59 predicted from their lengths" in said
    assert "21 steps with validation (timing_s/testing)" in said
    assert "no timing_s/values in the log" in said


def test_every_number_has_its_role(oppo: Oppo) -> None:
    """Coefficients are fitted, errors held out, and no row is both."""
    document = json.loads(oppo("calibrate", LOG, "--json").out)
    assert document["provenance"]["licence"].startswith("MIT")
    assert document["fitted_steps"] + document["held_out_steps"] == document["steps"] == 84
    for stage in document["stages"]:
        fitted, held = stage["fitted"], stage["held_out"]
        assert (fitted["role"], held["role"]) == ("fitted", "held_out")
        assert fitted["rows"] + held["rows"] == 84
        assert set(fitted) == {"role", "rows", "coefficients"}
        for found in fitted["coefficients"].values():
            assert found["low"] <= found["high"]
    assert document == json.loads(oppo("calibrate", LOG, "--json").out)  # the same to the last bit


def test_a_run_becomes_a_scenario_that_takes_as_long(oppo: Oppo, run: Path, tmp_path: Path) -> None:
    out = tmp_path / "fitted"
    code, said, _ = oppo("calibrate", run, "--out", out, "--date", "June\n2026")
    assert code == 0
    assert "simulated again with these costs" in " ".join(said.split())
    costs = tomllib.loads((out / "costs.toml").read_text())["costs"]
    assert costs.pop("model") == "linear"
    assert costs == json.loads((out / "calibration.json").read_text())["costs"]
    assert "# Date of the numbers: June 2026." in (out / "costs.toml").read_text()
    again = json.loads(
        oppo("run", out / "scenario.toml", "--schedule", "trl", "--steps", 60, "--json").out
    )
    whole = json.loads(oppo("run", "tiny", "--schedule", "trl", "--steps", 60, "--json").out)
    assert again["mean_step_s"] == pytest.approx(whole["mean_step_s"], rel=0.01)


def test_the_scenario_of_a_measured_run_has_its_lengths(
    oppo: Oppo, run: Path, tmp_path: Path
) -> None:
    header = (run / "run.json").read_text().replace('"simulated"', '"measured"')
    (run / "run.json").write_text(header.replace('"exponential": 100.0', '"constant": 7'))
    out = tmp_path / "fitted"
    assert oppo("calibrate", run, "--out", out).code == 0
    steps = [json.loads(line) for line in (run / "steps.jsonl").read_text().splitlines()]
    tokens = [n for step in steps for n in step["tokens"]]
    assert (out / "lengths.csv").read_text().split() == ["response_tokens", *map(str, tokens)]
    found = json.loads(
        oppo("run", out / "scenario.toml", "--schedule", "trl", "--steps", 300, "--json").out
    )
    recorded = (steps[-1]["end_s"] - steps[0]["start_s"]) / len(steps)
    assert found["mean_step_s"] == pytest.approx(recorded, rel=0.05)


def test_a_log_becomes_a_scenario_that_can_be_compared(oppo: Oppo, tmp_path: Path) -> None:
    """Its step takes what the log's do: 211 s at the median (stage times of its source)."""
    out = tmp_path / "fitted"
    asked = ("--batch", 5120, "--lanes", 4, "--out", out)
    assert oppo("calibrate", LOG, *asked).code == 0
    found = json.loads(oppo("run", out / "scenario.toml", "--steps", 5, "--json").out)
    assert found["mean_step_s"] == pytest.approx(211, rel=0.1)


def test_mistakes_are_refused_in_one_line(refused: Refused, run: Path, tmp_path: Path) -> None:
    assert "the shipped logs are" in refused("calibrate", "verl-gpg")
    assert "goes with a log" in refused("calibrate", run, "--batch", 8)
    assert "--fit-share" in refused("calibrate", LOG, "--fit-share", 1)
    assert "is not empty" in refused("calibrate", LOG, "--out", run)
    (tmp_path / "lengths.csv").write_text("response_tokens\n5\n")
    assert "needed are verl: response_length/mean" in refused("calibrate", tmp_path / "lengths.csv")
    assert "not a run folder" in refused("calibrate", tmp_path)


def test_the_papers_fits_are_shown_with_their_roles(oppo: Oppo) -> None:
    code, out, _ = oppo("calibrate", "paper")
    assert code == 0
    for words in ("32 of 134 candidates", "fitted: U1b, A1, A2, U1o, U2o", "held out: T1d, U3o"):
        assert words in " ".join(out.split())
    first = " ".join(out.split())[:200]
    assert "of one seed and 200 steps" in first
    assert "`oppo reproduce` takes more" in first
    document = json.loads(oppo("calibrate", "paper", "--json").out)
    assert len(document["chat"]) == 134
    assert {"lengths", "train_mfu", "accepted", "values"} <= document["chat"][0].keys()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("paper --resume", "--resume needs --out DIR"),
        ("verl-gpg-qwen2-7b-math --jobs 2", "--jobs goes with `oppo calibrate paper`"),
        ("paper --batch 8", "--batch goes with a log or a run"),
        ("paper --fit-share 0.5", "--fit-share goes with a log or a run"),
        ("paper --seed 1", "--seed goes with a log or a run"),
    ],
)
def test_options_of_the_papers_fit_go_with_it(oppo: Oppo, arguments: str, said: str) -> None:
    code, _, err = oppo("calibrate", *arguments.split())
    assert code == 2
    assert said in err

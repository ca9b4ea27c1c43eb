"""Run folders: the costs that made a run come back from its spans."""

from collections.abc import Callable
from pathlib import Path

import pytest

from oppo_sim.analysis.documents import schedule_document
from oppo_sim.calibration.replayed import schedule_of
from oppo_sim.calibration.run_costs import FittedRun, fit_run
from oppo_sim.calibration.written import toml
from oppo_sim.cli import main
from oppo_sim.config import load_scenario
from oppo_sim.policies import CATALOG
from oppo_sim.runs import RunError

KNOWN = {
    "decode_token_s": 0.02,
    "decode_rollout_s": 0.0015,
    "decode_context_s": 3e-6,
    "prefill_token_s": 2e-3,
    "score_call_s": 0.05,
    "score_token_s": 0.002,
    "train_call_s": 2.0,
    "train_token_s": 0.002,
    "sync_call_s": 0.3,
}
Simulated = Callable[..., Path]


@pytest.fixture
def simulated(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Simulated:
    """A run of `tiny` with these costs, by the command that a user gives."""

    def run(
        schedule: str,
        costs: dict[str, float],
        *more: object,
        steps: int = 80,
        scenario: str | Path = "tiny",
    ) -> Path:
        out = tmp_path / schedule
        sets = {"round_s": 0.0, **costs}
        changes = [
            text for key, value in sets.items() for text in ("--set", f"costs.{key}={value}")
        ]
        arguments = ("run", scenario, "--schedule", schedule, "--steps", steps, "--out", out)
        assert main([str(text) for text in (*arguments, "--spans", *changes, *more)]) == 0
        capfd.readouterr()
        return out

    return run


def doubts_of(fitted: FittedRun) -> str:
    return " ".join([*fitted.doubts, *(d for task in fitted.tasks for d in task.doubts)])


def test_a_sequential_run_gives_back_every_cost(simulated: Simulated) -> None:
    fitted = fit_run(simulated("trl", KNOWN))
    assert fitted.costs == pytest.approx(KNOWN, rel=0.01)
    assert fitted.replayed is not None
    assert fitted.replayed.error == pytest.approx(0, abs=1e-4)
    assert (fitted.role, fitted.steps, fitted.fitted_steps) == ("simulated", 80, 24)
    assert all(task.used == task.spans for task in fitted.tasks)


def test_one_lane_alone_gives_them_back_too(simulated: Simulated) -> None:
    more = ("--set", "cluster.actors=1", "--set", "cluster.devices=2")
    assert fit_run(simulated("trl", KNOWN, *more)).costs == pytest.approx(KNOWN, rel=0.01)


def test_prompts_of_different_lengths_tell_calls_and_tokens_apart(
    simulated: Simulated, tmp_path: Path
) -> None:
    known = {**KNOWN, "prefill_call_s": 0.4}
    document = load_scenario("tiny").document()
    del document["workload"]["prompt_tokens"]  # then they are those of the table
    document["workload"] |= {"lengths": {"table": "gsm8k_reference_test"}}
    document["cluster"]["kv_tokens"] = 50_000
    (tmp_path / "mine.toml").write_text(toml(document))
    found = fit_run(simulated("trl", known, scenario=tmp_path / "mine.toml")).costs
    assert found == pytest.approx(known, rel=0.01)


def test_an_overlapped_run_gives_what_its_spans_tell(simulated: Simulated) -> None:
    """Rounds in which nobody ends or joins, scores that open no row; the rest is named."""
    known = {**KNOWN, "decode_context_s": 0.0, "prefill_token_s": 0.0, "round_s": 0.05}
    fitted = fit_run(simulated("oppo", known))
    told = {name: value for name, value in known.items() if value}
    assert fitted.costs == pytest.approx(told, rel=0.01)
    assert fitted.replayed is not None
    assert fitted.replayed.error == pytest.approx(0, abs=0.005)
    assert "prefill" in doubts_of(fitted)
    assert "hand-over to the scorer: not to be seen in these spans" in doubts_of(fitted)
    used = {task.task: (task.used, task.spans) for task in fitted.tasks}
    assert 20 <= used["decode"][0] < used["decode"][1]


def test_of_a_run_without_rounds_or_dry_lanes_decoding_stays_unknown(simulated: Simulated) -> None:
    fitted = fit_run(simulated("inter", KNOWN))
    assert not any(name.startswith(("decode", "prefill")) for name in fitted.costs)
    assert fitted.costs["train_token_s"] == pytest.approx(0.002, rel=0.01)
    assert fitted.replayed is None
    assert "a run of the schedule trl says most" in doubts_of(fitted)
    assert "no cost of decoding" in doubts_of(fitted)


def test_more_than_ten_lanes_are_dealt_in_their_order(simulated: Simulated) -> None:
    lanes = ("--set", "cluster.actors=11", "--set", "cluster.devices=12")
    fitted = fit_run(simulated("trl", KNOWN, *lanes, "--set", "schedule.batch=33"))
    assert fitted.costs == pytest.approx(KNOWN, rel=0.01)
    assert all(task.used == task.spans for task in fitted.tasks)


def test_what_never_varies_is_reported_not_guessed(simulated: Simulated) -> None:
    fitted = fit_run(simulated("trl", KNOWN, "--set", "workload.lengths={ constant = 60 }"))
    said = doubts_of(fitted)
    assert "decode_rollout_s: hardly varies" in said
    assert "train_token_s: hardly varies" in said
    assert fitted.replayed is not None
    assert fitted.replayed.error == pytest.approx(0, abs=1e-3)


def test_a_measured_run_is_simulated_again_with_its_own_lengths(simulated: Simulated) -> None:
    """What says `measured` has lengths that the scenario does not know."""
    folder = simulated("trl", KNOWN)
    header = (folder / "run.json").read_text().replace('"simulated"', '"measured"')
    (folder / "run.json").write_text(header.replace('"exponential": 100.0', '"constant": 7'))
    fitted = fit_run(folder)
    assert fitted.role == "measured"
    assert fitted.replayed is not None
    assert fitted.replayed.error == pytest.approx(0, abs=1e-3)
    assert "prompts: taken as 20 tokens each" in doubts_of(fitted)


def test_a_run_without_spans_or_too_short_is_refused(
    tmp_path: Path, simulated: Simulated, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "tiny", "--steps", "3", "--out", str(tmp_path / "bare")]) == 0
    capfd.readouterr()
    with pytest.raises(RunError, match="no spans to fit costs on: run it again with --spans"):
        fit_run(tmp_path / "bare")
    with pytest.raises(RunError, match="give a longer run"):
        fit_run(simulated("trl", {}, steps=5))


@pytest.mark.parametrize("name", CATALOG)
def test_every_schedule_is_read_back_from_a_header(name: str) -> None:
    document = schedule_document(load_scenario("tiny").schedule(name))
    assert schedule_document(schedule_of(document)) == document

"""A validation of runs whose costs are known: they were simulated, and say that they are measured.

With the very table they came from the simulator is never wrong; with one a quarter too slow, it is
by a quarter; refined with one of them, it is right again about the others.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oppo_sim.analysis.documents import header_of
from oppo_sim.calibration.realruns import real_runs
from oppo_sim.calibration.twin import Recorded, again, drawing, recorded, replaying, twin
from oppo_sim.cli import main
from oppo_sim.config import Scenario, parse_scenario
from oppo_sim.costs import Measured, measurements
from oppo_sim.costs.identity import KEYS
from oppo_sim.costs.measurements import as_text, parse_measurements
from oppo_sim.runs import Run, RunError, read_run
from oppo_sim.workload.loads import workload

HERE = dict.fromkeys(KEYS, "here")
HEADER = "".join(
    f'# {key} = "{value}"\n'
    for key, value in {
        **HERE,
        "date": "2026-01-01",
        "source": "made up",
        "grouped": "yes",
        "micro_batch": "2",
        "mini_batches": "1",
        "news_s": "0.001",
    }.items()
)
ROWS = """\
task,batch,context_tokens,tokens,seconds
decode,1,10,,0.010
decode,8,80,,0.024
prefill,1,0,4,0.002
prefill,8,0,32,0.010
score,1,0,8,0.010
score,8,0,160,0.160
score,1,10,1,0.004
score,8,80,64,0.070
train,2,0,8,0.050
train,2,0,48,0.250
update,1,0,0,0.030
sync,1,0,0,0.002
decode+score,8,80,,0.036
score+decode,8,80,64,0.140
"""
DOCUMENT: dict[str, Any] = {
    "name": "known",
    "workload": {
        "lengths": {"exponential": 10.0},
        "max_response_tokens": 20,
        "prompt_tokens": 4,
        "reward": {"start": 0.0, "plateau": 1.0, "tau_steps": 5.0, "noise": 0.1},
    },
    "cluster": {
        "devices": 1,
        "placement": "colocated",
        "actors": 1,
        "scorers": 1,
        "contention": {"decode_stretch": 1.0},
    },
    "costs": {"model": "linear", "decode_token_s": 1.0},
    "schedule": {"name": "oppo", "batch": 4, "overcommit": 2, "chunk": 4},
}
STEPS = 4


@pytest.fixture
def table(tmp_path: Path) -> Path:
    file = tmp_path / "known.csv"
    file.write_text(HEADER + ROWS)
    return file


@pytest.fixture
def real(tmp_path: Path, table: Path) -> Path:
    """Folders of runs that say they were measured, on a machine that is as the table has it."""
    scenario = parse_scenario(DOCUMENT)
    for name in ("trl", "intra", "oppo"):
        for repeat in (0, 1):
            _record(scenario, name, table, tmp_path / "all" / "runs" / f"{name}-{repeat}")
    return tmp_path / "all"


def _record(scenario: Scenario, name: str, table: Path, out: Path) -> None:
    load = workload(scenario)
    lengths = [load.response_tokens(rollout) for rollout in range(60)]
    header = header_of(
        scenario, scenario.schedule(name), seed=None, steps=STEPS, spans=True, role="measured"
    )
    of = Recorded(Run(header, (None,) * STEPS, ()), lengths, [4] * 60)  # type: ignore[arg-type]
    list(again(twin(DOCUMENT, table, replaying(of)), of, out))
    head = json.loads((out / "run.json").read_text())
    head |= {"role": "measured", "scenario": DOCUMENT}
    (out / "run.json").write_text(json.dumps(head))
    rows = "".join(f"{tokens},4\n" for tokens in lengths)
    (out / "lengths.csv").write_text("response_tokens,prompt_tokens\n" + rows)
    (out / "machine.json").write_text(json.dumps({**HERE, "elsewhere": 0.0}))


def ask(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict[str, Any]:
    assert main(["validate", "--json", *map(str, arguments)]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_with_the_table_they_came_from_nothing_is_wrong(
    real: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report"
    found = ask(capsys, "--from", real, "--costs", table, "--out", out)
    assert found["median_abs_error"] == found["worst_abs_error"] == found["speedup_error"] == 0
    assert (found["tau"], found["pairs"], found["repeat_spread"]) == (1.0, 3, 0.0)
    assert found["grade"] == "A"
    assert [one["schedule"] for one in found["schedules"]] == ["trl", "intra", "oppo"]
    assert found["schedules"][2]["commands"]["decode"]["error"] == 0
    assert found["schedules"][0]["drawn"]["error"] != 0, "lengths of the law are others"
    lines = (out / "steps.csv").read_text().splitlines()
    assert lines[0] == "schedule,repeat,step,real_s,sim_s"
    assert len(lines) == 1 + 3 * 2 * (STEPS - 1), "the first step of a run does not count"
    assert {file.name for file in out.iterdir()} >= {"validation.json", "page.html", "trace.json"}
    assert json.loads((out / "validation.json").read_text()) == found


def slowed(table: Path, by: float, folder: Path) -> Path:
    """The table with all seconds so many times as long."""
    found = parse_measurements("known", table.read_text())
    rows = tuple([row._replace(seconds=by * row.seconds) for row in found.rows])
    said = {**found.provenance, "news_s": f"{by * 0.001:g}"}
    slow = folder / "slow.csv"
    slow.write_text(as_text(replace(found, rows=rows, provenance=said)))
    return slow


def test_a_table_that_is_too_slow_is_found_out_and_refined(
    real: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = slowed(table, 1.25, tmp_path)
    document = ask(capsys, "--from", real, "--costs", slow, "--refine", "trl")
    assert document["median_abs_error"] == pytest.approx(0.25)
    assert document["speedup_error"] == pytest.approx(0, abs=1e-9), "all is too slow alike"
    refined = document["refined"]
    assert refined["isolated"]["median_abs_error"] == pytest.approx(0.25)
    assert refined["refined"]["median_abs_error"] < 0.002, "news are not refined"
    assert refined["runs"] == 5


def test_a_factor_that_is_cut_says_so(
    real: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All rows three times too slow; no factor goes below 1 / 1.5."""
    slow = slowed(table, 3, tmp_path)
    refined = ask(capsys, "--from", real, "--costs", slow, "--refine", "trl")["refined"]
    assert refined["factors"] == ", ".join(
        f"{kind} x 0.667 (cut)" for kind in ("decode", "score", "train", "sync")
    )


def test_the_page_tells_the_machine_of_the_runs_from_the_tables(
    real: Path, table: Path, tmp_path: Path
) -> None:
    for run in (real / "runs").iterdir():
        (run / "machine.json").write_text(json.dumps({**HERE, "machine": "elsewhere"}))
    out = tmp_path / "out"
    assert main(["validate", "--from", str(real), "--costs", str(table), "--out", str(out)]) == 0
    page = (out / "page.html").read_text()
    assert "scenario: known<br>runs measured on: elsewhere<br>cost table: machine: here<br>" in page


def test_one_run_folder_is_enough(
    real: Path, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(table, real / "costs.csv")
    found = ask(capsys, "--from", real / "runs" / "oppo-0")
    assert found["median_abs_error"] == 0
    assert found["tau"] is None
    assert found["repeat_spread"] is None
    assert any("one run of each schedule" in note for note in found["notes"])


def test_a_table_of_another_machine_and_busy_neighbours_are_said(
    real: Path, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for run in ("oppo-0", "oppo-1"):
        file = real / "runs" / run / "machine.json"
        file.write_text(json.dumps({**HERE, "machine": "elsewhere", "elsewhere": 0.25}))
    notes = ask(capsys, "--from", real, "--costs", table)["notes"]
    assert "machine: the table is of 'here', this is 'elsewhere'" in notes
    assert any("took up to 25% of the machine" in note for note in notes)


def test_a_single_schedule_has_no_ranking(
    real: Path, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", "--from", str(real / "runs" / "oppo-0"), "--costs", str(table)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "grade A, of its steps alone: there is one schedule" in printed
    assert "Real seconds were measured on here" in printed
    assert "tau" not in printed


def test_slower_cores_are_said(real: Path, table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Half as fast in both runs of a schedule as in the others, by the same little work."""
    for run in (real / "runs").iterdir():
        probe_s = 0.002 if run.name.startswith("oppo") else 0.001
        about = {**HERE, "elsewhere": 0.0, "probe_s": probe_s}
        (run / "machine.json").write_text(json.dumps(about))
    notes = ask(capsys, "--from", real, "--costs", table)["notes"]
    assert any("cores were up to 100% slower at one time than at another" in n for n in notes)


def test_a_disturbed_run_is_left_out_where_its_schedule_has_another(
    real: Path, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cores a fifth slower in the first run of oppo, and others at work in all runs of trl."""
    slow = {"trl-0": (0.2, 1.0), "trl-1": (0.2, 1.0), "oppo-0": (0.0, 1.2)}
    for run in (real / "runs").iterdir():
        elsewhere, probe_s = slow.get(run.name, (0.0, 1.0))
        about = {**HERE, "elsewhere": elsewhere, "probe_s": probe_s}
        (run / "machine.json").write_text(json.dumps(about))
    found = ask(capsys, "--from", real, "--costs", table)
    steps = {one["schedule"]: one["speedup"] for one in found["schedules"]}
    assert any(note.startswith("oppo-0: left out") for note in found["notes"])
    assert found["steps"] == 5 * (STEPS - 1)
    assert steps["oppo"]["low"] == steps["oppo"]["high"], "of one round"


@pytest.mark.parametrize("probe", ["fast", "-1", "nan", "1e10"])
def test_seconds_of_a_header_are_seconds(
    probe: str, real: Path, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table.write_text(f'# probe_s = "{probe}"\n' + table.read_text())
    assert main(["validate", "--from", str(real), "--costs", str(table)]) == 2
    assert f"probe_s is '{probe}'; it must be seconds" in capsys.readouterr().err


def test_policies_choose_again_what_they_chose(
    real: Path, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the records alone; a record that was changed is found out."""
    notes = ask(capsys, "--from", real, "--costs", table)["notes"]
    assert not any("policies" in note for note in notes)
    file = real / "runs" / "oppo-0" / "steps.jsonl"
    file.write_text(file.read_text().replace('"overcommit":2', '"overcommit":3', 1))
    notes = ask(capsys, "--from", real, "--costs", table)["notes"]
    assert any("oppo-0: at steps [0] its policies" in note for note in notes)


def test_contention_is_the_ratio_to_what_work_takes_alone(table: Path) -> None:
    """Of 8 rows at a context of 10, 24 ms alone and 36 beside a score; 70 ms and 140."""
    costs = Measured(measurements=measurements(str(table)))
    assert costs.by_row is not None
    assert costs.by_row.sharing.stretches == pytest.approx(
        {"decode_stretch": 1.5, "score_stretch": 2.0, "decode_decode_stretch": 1.5}
    )


def test_lengths_without_a_list_are_those_of_the_steps(real: Path) -> None:
    folder = real / "runs" / "oppo-0"
    with_list = recorded(read_run(folder), folder)
    (folder / "lengths.csv").unlink()
    without = recorded(read_run(folder), folder)
    trained = [r for step in without.run.steps for r in step.trained]
    assert [without.responses[r] for r in trained] == [with_list.responses[r] for r in trained]
    assert without.prompts is None


def test_a_rollout_that_several_runs_trained_counts_once_in_the_law(real: Path) -> None:
    runs = [one.recorded for one in real_runs(real)]
    assert drawing(runs) == drawing([*runs, *runs])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("x.toml", "--from", "runs"), "one of the two"),
        ((), "one of the two"),
        (("--from", "nowhere", "--costs", "known.csv"), "no run folder, and none in it"),
        (("--from", "all"), "no such cost table; measure one with `oppo profile`"),
        (("--from", "all", "--costs", "known.csv", "--refine", "areal"), "there are trl, intra"),
        (("--from", "all", "--set", "seed=1"), "--set changes nothing of runs that are there"),
        (("--from", "all", "--steps", "2"), "--steps changes nothing of runs that are there"),
        (("--from", "all", "--schedules", "trl"), "--schedules changes nothing of runs"),
    ],
)
def test_mistakes_are_named(
    real: Path,
    tmp_path: Path,
    arguments: tuple[str, ...],
    says: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["validate", *arguments]) == 2
    assert says in " ".join(capsys.readouterr().err.split())


def test_a_simulated_run_is_no_measure(real: Path) -> None:
    folder = real / "runs" / "oppo-0"
    head = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**head, "role": "simulated"}))
    with pytest.raises(RunError, match="is simulated: there is nothing to hold it against"):
        real_runs(folder)


def test_runs_of_different_length_are_compared_by_the_step(
    real: Path, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What an interrupted run has left: nothing is wrong with the simulator on it either."""
    whole = ask(capsys, "--from", real, "--costs", table)["schedules"][0]
    for run in ("oppo-0", "oppo-1"):
        file = real / "runs" / run / "steps.jsonl"
        file.write_text("".join(file.read_text().splitlines(keepends=True)[:3]))
    found = ask(capsys, "--from", real, "--costs", table)
    trl, _, oppo = found["schedules"]
    assert trl["real_s"] == whole["real_s"]
    assert found["speedup_error"] == 0
    assert oppo["speedup"]["real"] == pytest.approx(trl["real_s"] / oppo["real_s"])
    assert oppo["commands"]["decode"]["error"] == 0, "spans of steps that are no more do not count"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[]", "is not a JSON object"),
        ('{"probe_s": null}', "probe_s = None: must be a number"),
        ('{"probe_s": 0}', "probe_s = 0: must be a number"),
        ('{"elsewhere": "x"}', "elsewhere = 'x': must be a number"),
        ('{"elsewhere": NaN}', "elsewhere = nan: must be a number"),
    ],
)
def test_what_a_run_says_of_its_machine_is_checked(
    content: str, says: str, real: Path, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (real / "runs" / "oppo-0" / "machine.json").write_text(content)
    assert main(["validate", "--from", str(real), "--costs", str(table)]) == 2
    told = capsys.readouterr().err
    assert says in told
    assert "oppo-0/machine.json" in told


def test_a_run_that_says_less_of_its_machine_is_of_another(
    real: Path, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (real / "runs" / "oppo-0" / "machine.json").write_text('{"machine": "here"}')
    notes = ask(capsys, "--from", real, "--costs", table)["notes"]
    assert "versions: the table is of 'here', this is 'nothing'" in notes


@pytest.mark.parametrize("name", ["../../evil", "", 5, None])
def test_a_schedule_is_no_path(name: object, real: Path) -> None:
    file = real / "runs" / "oppo-0" / "run.json"
    head = json.loads(file.read_text())
    file.write_text(json.dumps({**head, "schedule": {**head["schedule"], "name": name}}))
    with pytest.raises(RunError, match=r"run.json: schedule.name = .*: must be a name, no path"):
        real_runs(real)


def test_only_simulations_are_made_anew(
    real: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither real runs that lie where simulations are written, nor what is none."""
    out = tmp_path / "out"
    shutil.copytree(real / "runs", out / "simulated")
    command = ["validate", "--costs", str(table), "--out", str(out), "--resume", "--from"]
    assert main([*command, str(out / "simulated")]) == 2
    assert "is made anew, and this is no simulation: move it" in capsys.readouterr().err
    assert len(real_runs(out / "simulated")) == 6
    shutil.rmtree(out / "simulated")
    (out / "simulated").mkdir()
    (out / "simulated" / "precious").write_text("mine")
    assert main([*command, str(real)]) == 2
    assert (out / "simulated" / "precious").read_text() == "mine"
    (out / "simulated" / "precious").unlink()
    assert main([*command, str(real)]) == 0
    assert main([*command, str(real)]) == 0


@pytest.mark.parametrize(
    ("table_of", "key", "value", "says"),
    [
        ("scenario", "name", None, "scenario.name"),
        ("scenario", "cluster", [], "scenario.cluster"),
        ("scenario", "workload", {}, "scenario.workload.max_response_tokens"),
        ("scenario", "workload", [], "scenario.workload.max_response_tokens"),
        ("schedule", "batch", "8", "schedule.batch"),
    ],
)
def test_a_run_without_what_is_simulated_is_refused(
    table_of: str, key: str, value: object, says: str, real: Path
) -> None:
    file = real / "runs" / "oppo-0" / "run.json"
    head = json.loads(file.read_text())
    file.write_text(json.dumps({**head, table_of: {**head[table_of], key: value}}))
    with pytest.raises(RunError, match=rf"oppo-0/run.json: {says} is missing, or of another type"):
        real_runs(real)


def test_what_was_guessed_or_cut_is_said(
    real: Path, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (real / "runs" / "oppo-0" / "lengths.csv").unlink()
    found = ask(capsys, "--from", real, "--costs", table, "--warmup", str(STEPS))
    assert found["warmup"] == STEPS - 1
    assert any(note.startswith("oppo-0 has no lengths.csv") for note in found["notes"])
    cut = f"the first {STEPS - 1} of a run's steps do not count, not {STEPS}"
    assert any(note.startswith(cut) for note in found["notes"])


def test_runs_of_other_settings_are_said(
    real: Path, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = real / "runs" / "oppo-1" / "run.json"
    header = json.loads(file.read_text())
    header["scenario"]["about"] = "words change nothing"
    header["scenario"]["cluster"]["slots"] = 77
    file.write_text(json.dumps(header))
    notes = [n for n in ask(capsys, "--from", real, "--costs", table)["notes"] if "settings" in n]
    (said,) = notes
    assert said.startswith("oppo-1 is of other settings than trl-0 (cluster.slots: 77, not ")


def test_a_table_of_before_calls_were_cut_into_forwards_is_said(
    real: Path, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "the table does not say `grouped`"
    assert not any(words in n for n in ask(capsys, "--from", real, "--costs", table)["notes"])
    table.write_text(table.read_text().replace('# grouped = "yes"\n', ""))
    assert any(words in note for note in ask(capsys, "--from", real, "--costs", table)["notes"])

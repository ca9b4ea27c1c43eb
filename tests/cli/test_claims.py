"""A folder that was begun for one comparison takes no other, and is left as it is."""

import json
import shutil
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest

from oppo_sim.analysis.claims import claim, comparison, reproduction
from oppo_sim.config import load_scenario
from oppo_sim.runs import RunError
from tests.cli.conftest import Oppo

FEW = ("--steps", 2, "--seeds", 2, "--jobs", 1)
TWO = ("--schedules", "trl,oppo")


def contents(folder: Path) -> dict[str, bytes]:
    files = [file for file in folder.rglob("*") if file.is_file()]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


@pytest.fixture
def compared(oppo: Oppo, tmp_path: Path) -> Path:
    out = tmp_path / "out"
    assert oppo("compare", "tiny", *FEW, *TWO, "--out", out).code == 0
    return out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("bench", *FEW, *TWO), "scenario.name is 'tiny' there and 'bench' here"),
        (("tiny", *FEW), "schedules is ['trl', 'oppo'] there and ['trl', 'intra', 'inter', 'opp"),
        (("tiny", *FEW, "--schedules", "oppo,trl"), "schedules is ['trl', 'oppo'] there and ['opp"),
        (("tiny", *TWO, "--steps", 3, "--seeds", 2), "steps is 2 there and 3 here"),
        (("tiny", *TWO, "--steps", 2, "--seeds", 1), "seeds is 0 to 1 there and 0 here"),
        (("tiny", *FEW, *TWO, "--seed", 1), "seeds is 0 to 1 there and 1 to 2 here"),
        (
            ("tiny", *FEW, *TWO, "--set", "costs.train_call_s=3"),
            "scenario.costs.train_call_s is 2.0 there and 3.0 here",
        ),
        (
            ("tiny", *FEW, *TWO, "--set", "schedule.overcommit=3"),
            "scenario.schedule.overcommit.policy is 'reward-slope' there and 'fixed' here",
        ),
    ],
)
def test_another_comparison_is_refused(
    refused: Callable[..., str], compared: Path, arguments: tuple[object, ...], said: str
) -> None:
    before = contents(compared)
    message = refused("compare", *arguments, "--out", compared, "--resume")
    assert f"{compared} holds another comparison: {said}" in message
    assert "name another folder" in message
    assert contents(compared) == before


def test_a_schedule_file_of_the_same_name_is_another_comparison(
    oppo: Oppo, refused: Callable[..., str], tmp_path: Path
) -> None:
    for folder, overcommit in (("one", 2), ("two", 3)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.toml").write_text(f'base = "oppo"\novercommit = {overcommit}\n')
    arguments = ("compare", "tiny", *FEW, "--out", tmp_path / "out", "--schedules")
    assert oppo(*arguments, f"trl,{tmp_path / 'one' / 'mine.toml'}").code == 0
    said = refused(*arguments, f"trl,{tmp_path / 'two' / 'mine.toml'}", "--resume")
    assert "axes.mine.overcommit is 2 there and 3 here" in said


def test_a_file_of_the_scenario_that_has_changed_makes_another_comparison(
    oppo: Oppo, refused: Callable[..., str], tmp_path: Path
) -> None:
    shutil.copy(str(files("oppo_sim") / "data/scenarios/tiny.toml"), tmp_path / "mine.toml")
    (tmp_path / "lengths.csv").write_text("response_tokens\n5\n7\n")
    arguments = ("compare", tmp_path / "mine.toml", *FEW, *TWO, "--out", tmp_path / "out")
    lengths = ("--set", "workload.lengths=lengths.csv")
    assert oppo(*arguments, *lengths).code == 0
    assert oppo(*arguments, *lengths, "--resume").code == 0
    (tmp_path / "lengths.csv").write_text("response_tokens\n6\n7\n")
    assert "files.lengths.csv is '" in refused(*arguments, *lengths, "--resume")


def test_seeds_may_be_added_and_the_runs_that_are_there_are_kept(
    oppo: Oppo, refused: Callable[..., str], compared: Path, tmp_path: Path
) -> None:
    kept = {file: file.stat().st_mtime_ns for file in (compared / "parts").iterdir()}
    more = ("compare", "tiny", *TWO, "--steps", 2, "--seeds", 3, "--jobs", 1, "--out")
    assert oppo(*more, compared, "--resume").code == 0
    assert kept == {file: file.stat().st_mtime_ns for file in kept}
    assert oppo(*more, tmp_path / "anew").code == 0
    assert contents(compared) == contents(tmp_path / "anew")
    said = refused("compare", "tiny", *FEW, *TWO, "--out", compared, "--resume")
    assert "seeds is 0 to 2 there and 0 to 1 here" in said


def test_a_reproduction_a_comparison_and_a_run_do_not_share_a_folder(
    oppo: Oppo, refused: Callable[..., str], compared: Path, tmp_path: Path
) -> None:
    before = contents(compared)
    said = refused("reproduce", *FEW, "--out", compared, "--resume")
    assert f"{compared} holds a comparison, not a reproduction: name another folder" in said
    assert "not a run folder" in refused("run", "tiny", "--out", compared, "--resume")
    assert contents(compared) == before

    paper = tmp_path / "paper"
    claim(paper, reproduction((0, 1), 2), resume=False)
    before = contents(paper)
    said = refused("compare", "tiny", *FEW, "--out", paper, "--resume")
    assert f"{paper} holds a reproduction, not a comparison" in said
    said = refused("reproduce", "--steps", 3, "--seeds", 2, "--out", paper, "--resume")
    assert "holds another reproduction: steps is 2 there and 3 here" in said
    assert contents(paper) == before

    assert oppo("run", "tiny", "--steps", 2, "--out", tmp_path / "run").code == 0
    before = contents(tmp_path / "run")
    said = refused("compare", "tiny", *FEW, "--out", tmp_path / "run", "--resume")
    assert "holds something else than a comparison (no header.json of one)" in said
    assert contents(tmp_path / "run") == before


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", "{}", '{"schema": 1}', '{"schema": 9, "seeds": []}']
)
def test_a_damaged_header_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "header.json").write_text(text)
    with pytest.raises(RunError, match="name another folder"):
        claim(tmp_path, reproduction((0,), None), resume=True)
    assert (tmp_path / "header.json").read_text() == text


def test_what_is_refused_for_itself_leaves_no_folder(
    refused: Callable[..., str], tmp_path: Path
) -> None:
    refused("compare", "tiny", *FEW, "--schedules", "trl,trl", "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_header_says_what_it_is_of() -> None:
    tiny = load_scenario("tiny", {"steps": 7, "seed": 5})
    header = comparison(tiny, [tiny.schedule("trl"), tiny.schedule("oppo")], range(3, 5), None)
    document = json.loads(json.dumps(header, allow_nan=False))
    assert document["kind"] == "comparison"
    assert document["role"] == "simulated"
    assert (document["seeds"], document["steps"]) == ([3, 4], 7)
    assert document["schedules"] == list(document["axes"]) == ["trl", "oppo"]
    assert not {"seed", "steps"} & set(document["scenario"])

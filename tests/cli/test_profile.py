"""`oppo profile` and `oppo validate` say what they cannot do before they measure anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from oppo_sim.cli import main
from oppo_sim.config import ConfigError, load_scenario, load_schedules

SMALL = "experiments/configs/real/cpu-small.toml"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("tiny",), "has no [real] table, so there is nothing to train"),
        ((SMALL, "--out", "costs.txt"), "--out costs.txt: a cost table is a .csv file"),
        ((SMALL, "--set", "real.workers='inline'"), "real.workers = 'inline': its lanes take"),
        ((SMALL, "--schedules", "trl,opo"), "did you mean 'oppo'?"),
        ((SMALL, "--out", "tests/real/reference/costs.csv"), "costs.csv: is there already"),
        ((SMALL, "--out", "README.md/costs.csv"), "README.md"),
    ],
)
def test_mistakes_are_named(
    arguments: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", *arguments]) == 2
    assert says in " ".join(capsys.readouterr().err.split())
    assert not Path("cpu-small-costs.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--schedules", "trl,oppo,trl"), "--schedules: 'trl' is there twice"),
        (("--refine", "areal"), "--refine areal: needs a run of it and others to judge by"),
        (("--costs", "none.csv"), "none.csv"),
    ],
)
def test_mistakes_are_named_before_anything_is_run(
    arguments: tuple[str, ...], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["validate", SMALL, "--out", str(out), *arguments]) == 2
    assert says in " ".join(capsys.readouterr().err.split())
    assert not out.exists()


def test_a_scenario_names_what_is_validated() -> None:
    """Files beside it, wherever one stands; what is asked for goes before."""
    small = load_scenario(SMALL)
    names = [schedule.name for schedule in load_schedules(None, small)]
    assert names == ["trl", "intra", "inter", "oppo", "response", "oppo-d4"]
    assert [schedule.name for schedule in load_schedules("inter,trl", small)] == ["inter", "trl"]
    (beside,) = load_schedules("intra-chunk4.toml", small)  # not here, but where the scenario is
    assert beside.name == "intra-chunk4"
    with pytest.raises(ConfigError, match=r"real: schedules = \[\]: name at least one"):
        load_scenario(SMALL, {"real.schedules": []})


def test_a_validation_says_where_it_needs_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", SMALL]) == 2
    assert "--out" in capsys.readouterr().err

"""What the command line says of a table of measured times: one line, or one warning per line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Oppo
from tests.simulate.test_tables import SCENARIO, TABLE


@pytest.mark.parametrize("command", ["run", "compare --jobs 1", "compare --jobs 2"])
def test_extrapolation_is_one_line_on_stderr(oppo: Oppo, tmp_path: Path, command: str) -> None:
    (tmp_path / "times.csv").write_text(TABLE.replace("train,1,0,100000,50.0", "train,1,0,9,2.0"))
    file = tmp_path / "mine.toml"
    file.write_text(SCENARIO)
    name, *options = command.split()
    ran = oppo(name, file, *options)
    assert ran.code == 0
    lines = [line for line in ran.err.splitlines() if not line.startswith("comparing on mine: ")]
    assert all(line.startswith("oppo: warning: times: ") for line in lines)
    assert len(lines) == len(set(lines))
    (train,) = [line for line in lines if ": train: " in line]
    assert "measured 1 to 9, asked for others" in train


def test_a_malformed_table_is_one_line(refused: Callable[..., str], tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(SCENARIO)
    (tmp_path / "times.csv").write_text(TABLE.replace("0.06", "sixty"))
    said = refused("run", file)
    assert (
        "times.csv: line 9: seconds is 'sixty'; it must be a number from 1e-09 to 1000000000.0"
        in said
    )

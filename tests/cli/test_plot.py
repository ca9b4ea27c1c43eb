"""`oppo plot`: a picture next to the run, and one line for each mistake."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Oppo

Refused = Callable[..., str]


@pytest.fixture
def run(oppo: Oppo, tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    assert oppo("run", "tiny", "--steps", 4, "--spans", "--out", folder).code == 0
    return folder


def test_it_is_drawn_into_the_run_or_where_it_is_asked_for(
    oppo: Oppo, run: Path, tmp_path: Path
) -> None:
    code, out, err = oppo("plot", run)
    assert (code, err) == (0, "")
    assert out.startswith("Written to")
    assert (run / "steps.png").read_bytes().startswith(b"\x89PNG")
    elsewhere = tmp_path / "here.svg"
    document = json.loads(
        oppo("plot", run, "--kind", "gantt", "--steps", "1:3", "--out", elsewhere, "--json").out
    )
    assert document == {"out": str(elsewhere), "kind": "gantt"}
    assert "seed 0, steps 1 to 2" in elsewhere.read_text()


def test_mistakes(refused: Refused, run: Path, tmp_path: Path) -> None:
    assert "no such run folder" in refused("plot", tmp_path / "missing")
    assert "has no run.json" in refused("plot", tmp_path)
    assert "did you mean 'staleness'?" in refused("plot", run, "--kind", "stalenes")
    assert "a picture is a .png, .svg or .pdf file" in refused("plot", run, "--out", run / "a.jpg")
    assert "must be FROM:TO" in refused("plot", run, "--steps", "3")
    assert "FROM must be below TO" in refused("plot", run, "--steps", "3:3")
    assert "the run has steps 0 to 3" in refused("plot", run, "--steps", "9:12")
    assert "cannot write" in refused("plot", run, "--out", run / "no" / "a.png")
    assert not list(run.glob("*.png"))

"""A fit into a folder: candidate by candidate, gone on with, and never in another's folder."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from oppo_sim.analysis.fits import read, shipped_fits, written
from oppo_sim.calibration import rows
from oppo_sim.calibration.protocol import Protocol, Stage, Tail, shipped_protocol
from oppo_sim.calibration.refit import refit
from oppo_sim.config import load_scenario
from oppo_sim.runs import RunError

TAILS = (
    Tail("alpacaeval_alpaca-farm-ppo-human", 2048, 32, 0.12),
    Tail("alpacaeval_gemma-2b-it", 512, 8, 0.12),
)


class Killed(Exception):
    pass


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Protocol:
    """The chat stage alone, on two tails and short runs, with room for their noise."""

    def two(stage: Stage) -> tuple[Tail, ...]:
        return TAILS

    monkeypatch.setattr(rows, "STEPS", 8)
    monkeypatch.setattr(rows, "FINAL_STEPS", 8)
    monkeypatch.setattr(rows, "TRIES", 2)
    monkeypatch.setattr(rows, "tails", two)
    shipped = shipped_protocol()
    return replace(shipped, stages=shipped.stages[:1], accepted_within=0.9, late_share=1.0)


def test_a_stopped_fit_goes_on_with_the_candidates_that_are_left(
    small: Protocol, tmp_path: Path
) -> None:
    whole = refit(small, tmp_path / "whole", resume=False, jobs=1)

    def kill(done: int, total: int) -> None:
        assert total == len(TAILS)
        raise Killed

    out = tmp_path / "out"
    with pytest.raises(Killed):
        refit(small, out, resume=False, jobs=1, progress=kill)
    assert len(read("chat", (out / "chat.csv").read_text()).candidates) == 1
    with pytest.raises(RunError, match="is not empty"):
        refit(small, out, resume=False, jobs=1)
    again = refit(small, out, resume=True, jobs=1)
    assert (out / "chat.csv").read_bytes() == (tmp_path / "whole/chat.csv").read_bytes()
    assert again["chat"].shown == whole["chat"].shown  # to the last digit: later stages rest on it
    name = "stackexchange-7b.toml"
    assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.parametrize(
    ("sound", "damaged", "named"),
    [
        ("0.1339", "nan", "train_mfu = 'nan'"),
        ("yes", "maybe", "accepted = 'maybe'"),
        ("1.204", "?", "A1 = '?'"),
        (",0.2108,0.005", "", "Q1-1 = None"),
        ("0.005\n", "0.005,7\n", "a cell too many = "),
    ],
)
def test_a_damaged_line_is_named_with_the_remedy(
    small: Protocol, tmp_path: Path, sound: str, damaged: str, named: str
) -> None:
    header, best, *_ = written(shipped_fits()["chat"]).splitlines(keepends=True)
    assert sound in best
    refit(replace(small, stages=()), tmp_path, resume=False, jobs=1)
    (tmp_path / "chat.csv").write_text(header + best.replace(sound, damaged))
    with pytest.raises(RunError, match=re.escape(f"chat.csv: {named}") + ".*remove the file"):
        refit(small, tmp_path, resume=True, jobs=1)


def test_it_leaves_scenarios_that_run(small: Protocol, tmp_path: Path) -> None:
    shown = refit(small, tmp_path / "out", resume=False, jobs=1)["chat"].shown
    scenario = load_scenario(tmp_path / "out" / "stackexchange-3b.toml")
    assert scenario.workload is not None
    assert scenario.workload.lengths.table == shown.lengths
    assert scenario.workload.max_response_tokens == shown.max_response_tokens
    own = load_scenario("stackexchange-3b")
    assert scenario.models == own.models


def test_a_folder_of_something_else_is_left_alone(small: Protocol, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(RunError, match="holds something else"):
        refit(small, tmp_path, resume=True, jobs=1)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


def test_the_shipped_fits_are_of_all_stages() -> None:
    protocol = shipped_protocol()
    assert list(shipped_fits()) == [stage.name for stage in protocol.stages]

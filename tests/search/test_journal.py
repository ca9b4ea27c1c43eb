"""What a journal holds outlives whatever happened to its writer."""

import json
from pathlib import Path
from typing import Any

import pytest

from oppo_sim.runs import RunError
from oppo_sim.search.journal import Journal
from oppo_sim.search.result import Seeds
from oppo_sim.search.units import MEASURES, Found

SEEDS = Seeds(first=3, least=2)


def came_to(step_s: float) -> Found:
    return {**dict.fromkeys(MEASURES, 0.5), "step_s": step_s}


def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.jsonl", 10, SEEDS)


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    with journal(tmp_path) as first:
        first.write("point", 9, 4, came_to(0.1))
        first.write("baseline", 9, 4, came_to(0.30000000000000004))
        assert first.read("point", 9, 4) == came_to(0.1)
    with journal(tmp_path) as again:
        assert len(again) == 2
        assert again.read("baseline", 9, 4) == came_to(0.30000000000000004)
        assert again.has("point", 9, 4)
        assert not again.has("point", 9, 3)
        with pytest.raises(KeyError):
            again.read("point", 0, 3)


def test_a_line_that_was_cut_off_anywhere_is_cut_away(tmp_path: Path) -> None:
    with journal(tmp_path) as first:
        first.write("point", 0, 3, came_to(1.5))
        first.write("point", 1, 3, came_to(2.5))
    file = tmp_path / "journal.jsonl"
    whole = file.read_bytes()
    one = whole.index(b"\n") + 1
    for end in range(one, len(whole)):
        file.write_bytes(whole[:end])
        with journal(tmp_path) as torn:
            assert len(torn) == 1
            torn.write("point", 1, 3, came_to(2.5))
            assert torn.read("point", 1, 3) == came_to(2.5)
        assert file.read_bytes() == whole


def test_a_damaged_line_is_a_unit_that_runs_again(tmp_path: Path) -> None:
    with journal(tmp_path) as first:
        for place in range(3):
            first.write("point", place, 3, came_to(float(place + 1)))
    file = tmp_path / "journal.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    for damage in (b"\x00\xff\n", b"{}\n", b'{"unit": "point", "id": 99, "seed": 3}\n', b"[1]\n"):
        file.write_bytes(lines[0] + damage + lines[2])
        with journal(tmp_path) as again:
            assert [again.has("point", place, 3) for place in range(3)] == [True, False, True]
            assert again.read("point", 2, 3) == came_to(3.0)


ODD: dict[str, dict[str, Any]] = {
    "no numbers": {"found": {}},
    "a number is missing": {"found": {"step_s": 1.0}},
    "words": {"found": came_to(1.0) | {"busy": "much"}},
    "nothing": {"found": came_to(1.0) | {"step_s": None}},
    "no time": {"found": came_to(0.0)},
    "not a number": {"found": came_to(float("nan"))},
    "an error without words": {"found": {"error": 5}},
    "half a seed": {"seed": 3.0},
    "half a point": {"id": 1.0},
    "a seed of truth": {"seed": True},
    "an endless seed": {"seed": 10**30},
}


@pytest.mark.parametrize("odd", ODD.values(), ids=list(ODD))
def test_a_line_that_no_unit_wrote_is_a_unit_that_runs_again(
    tmp_path: Path, odd: dict[str, Any]
) -> None:
    row = {"unit": "point", "id": 1, "seed": 3, "found": came_to(2.0)}
    file = tmp_path / "journal.jsonl"
    file.write_text(json.dumps(row) + "\n")
    with journal(tmp_path) as first:
        assert first.has("point", 1, 3)
    file.write_text(json.dumps(row | odd) + "\n")
    with journal(tmp_path) as again:
        assert len(again) == 0


def test_a_unit_whose_worker_died_is_tried_anew_by_the_next(tmp_path: Path) -> None:
    with journal(tmp_path) as first:
        first.write("point", 0, 3, {"error": "a worker died", "died": True})
        assert first.read("point", 0, 3)["error"] == "a worker died"
    with journal(tmp_path) as again:
        assert not again.has("point", 0, 3)


def test_two_processes_do_not_write_to_one(tmp_path: Path) -> None:
    with journal(tmp_path), pytest.raises(RunError, match="another process is writing"):
        journal(tmp_path)
    journal(tmp_path).__exit__(None, None, None)

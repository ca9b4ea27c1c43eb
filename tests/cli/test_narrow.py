"""On a narrow terminal the rows of a table come under each other, whole."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.table import Table

from oppo_sim.cli.narrow import fits, stacked
from tests.cli.conftest import Oppo

COMMANDS = [
    "run tiny --steps 4",
    "compare tiny --steps 4 --seeds 2 --jobs 1 --schedules trl,pipeline-rl",
    "reproduce --steps 2 --seeds 1 --jobs 1",
    "hardware list",
    "hardware show H200",
    "lengths list",
    "scenarios",
    "schedules",
]


def numbers(text: str) -> set[str]:
    return {word.strip("().,;:") for word in text.split() if re.match(r"\(?\d", word)}


@pytest.fixture
def printed(oppo: Oppo, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], str]:
    def run(command: str, columns: int) -> str:
        monkeypatch.setenv("COLUMNS", str(columns))
        return oppo(*command.split()).out

    return run


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_is_cut_on_the_narrowest_terminal(
    printed: Callable[[str, int], str], command: str
) -> None:
    wide = printed(command, 400)
    for columns in (20, 30, 40):
        narrow = printed(command, columns)
        assert max(map(len, narrow.splitlines())) <= columns
        assert "\u2026" not in narrow
        if "\u2500" not in narrow:  # a table that still fits leaves columns out
            assert numbers(wide) <= numbers(narrow)


def table() -> Table:
    found = Table(box=None, pad_edge=False)
    found.add_column("card", no_wrap=True)
    found.add_column("GB/s", justify="right", no_wrap=True)
    found.add_column("source")
    found.add_row("A100-80", "2,039", "NVIDIA's data sheet of the card")
    found.add_row("H200", "4,800", "the same")
    return found


def test_a_table_fits_while_its_text_has_sixteen_characters() -> None:
    """7 and 5 for name and number, 16 for the text, and two spaces between columns."""
    assert fits(table(), 7 + 2 + 5 + 2 + 16)
    assert not fits(table(), 7 + 2 + 5 + 2 + 15)


def test_rows_under_each_other_say_which_number_is_which() -> None:
    assert stacked(table(), 24) == (
        "A100-80\n"
        "  GB/s: 2,039, source:\n"
        "  NVIDIA's data sheet of\n"
        "  the card\n"
        "H200\n"
        "  GB/s: 4,800, source:\n"
        "  the same"
    )


def test_a_terminal_of_no_width_counts_as_80_columns(printed: Callable[[str, int], str]) -> None:
    """As where there is no tty and COLUMNS=0: it printed nothing at all."""
    assert printed("hardware list", 0) == printed("hardware list", 80)


@pytest.mark.parametrize("columns", [30, 80, 200])
@pytest.mark.parametrize("name", ["[/x]", "[bold]x", ":smile:"])
def test_a_name_is_no_markup(
    oppo: Oppo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    file = tmp_path / "own.toml"
    file.write_text(f'base = "oppo"\nname = "{name}"\n')
    options = ("--steps", 2, "--seeds", 2, "--jobs", 1, "--schedules", f"trl,{file}")
    done = oppo("compare", "tiny", *options)
    assert done.code == 0
    assert any(line.strip().startswith((name, f"{name} ")) for line in done.out.splitlines()[4:])
    assert done.out.count(name) > 1

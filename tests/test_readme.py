"""The README keeps its word: commands run, blocks are valid, the table is the tool's own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from oppo_sim.cli import main

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def commands() -> list[str]:
    lines = [line.split("  #")[0].strip() for block in blocks("sh") for line in block.splitlines()]
    return [line for line in lines if line]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder in which the README's paths exist."""
    for path in ("experiments", "tests/real/reference"):
        shutil.copytree(ROOT / path, tmp_path / path)
    return tmp_path


def test_every_command_runs(clone: Path) -> None:
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    shown = [line for line in commands() if not line.startswith("make ")]
    assert len(shown) >= 9
    for line in shown:
        done = subprocess.run(line, shell=True, cwd=clone, env=env, capture_output=True, text=True)
        assert done.returncode == 0, f"{line}\n{done.stderr}"


def test_what_the_commands_leave_is_no_part_of_the_repository() -> None:
    written = re.findall(r"--out (\S+)", "\n".join(commands()))
    assert {"runs/tiny", "steps.svg", "fitted"} <= set(written)
    ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines()}
    assert not [path for path in written if path.split("/")[0] not in ignored]


def test_every_make_target_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", README, flags=re.MULTILINE))
    assert {"reproduce", "test", "check", "bench"} <= named <= targets


def test_the_schedule_shown_is_the_one_shipped() -> None:
    (shown,) = blocks("toml")
    assert tomllib.loads(shown) == tomllib.loads(
        (ROOT / "experiments/configs/eager.toml").read_text()
    )


def test_the_python_example_runs() -> None:
    (example,) = blocks("python")
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 3


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_table_is_what_reproduce_writes(tmp_path: Path) -> None:
    """The whole main job, as `make reproduce` runs it."""
    assert main(["reproduce", "--out", str(tmp_path / "rows")]) == 0
    written = (tmp_path / "rows/README.md").read_text()
    rows = re.findall(r"^\|.*\|$", written, flags=re.MULTILINE)
    shown = README.split("<!-- rows")[1].split("<!-- end of rows")[0]
    assert re.findall(r"^\|.*\|$", shown, flags=re.MULTILINE) == rows

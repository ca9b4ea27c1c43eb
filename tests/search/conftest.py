"""Sweep files, and what a sweep leaves."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import oppo, refused  # noqa: F401

Write = Callable[[str], Path]

TINY = """
scenario = "tiny"
steps = 3
seeds = 2

[axes]
"schedule.chunk" = [20, 50]
"schedule.overcommit" = [0, 2, 4]
"""


@pytest.fixture
def written(tmp_path: Path) -> Write:
    """A sweep file with this text."""

    def write(text: str) -> Path:
        file = tmp_path / "sweep.toml"
        file.write_text(text)
        return file

    return write


@pytest.fixture
def tiny(written: Write) -> Path:
    """Six points of the smallest scenario."""
    return written(TINY)


def tables(out: Path) -> tuple[bytes, bytes]:
    """What must not depend on how a sweep went."""
    return (out / "results.parquet").read_bytes(), (out / "results.csv").read_bytes()

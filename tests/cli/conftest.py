"""Running the command line as a user does, without starting a process each time."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from oppo_sim.cli import main


class Ran(NamedTuple):
    code: int
    out: str
    err: str


Oppo = Callable[..., Ran]


@pytest.fixture
def oppo(capfd: pytest.CaptureFixture[str]) -> Oppo:
    def run(*arguments: object) -> Ran:
        code = main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Ran(code, out, err)

    return run


@pytest.fixture
def refused(oppo: Oppo) -> Callable[..., str]:
    """What is said of a mistake: one line on stderr, nothing on stdout, exit 2."""

    def run(*arguments: object) -> str:
        code, out, err = oppo(*arguments)
        assert code == 2
        assert out == ""
        assert err.startswith("oppo: ")
        assert err.count("\n") == 1
        return err

    return run

"""Progress: nothing for what is quick, lines where there is no terminal, never on stdout."""

import pytest

from oppo_sim.cli import console


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(console, "monotonic", lambda: now[0])
    return now


def test_what_is_quick_shows_nothing(clock: list[float], capfd: pytest.CaptureFixture[str]) -> None:
    with console.Meter("tiny", "steps") as meter:
        for done in range(1, 11):
            meter(done, 10)
    assert capfd.readouterr() == ("", "")


def test_what_is_slow_says_so_now_and_then_on_stderr(
    clock: list[float], capfd: pytest.CaptureFixture[str]
) -> None:
    with console.Meter("tiny", "steps") as meter:
        for done in range(1, 121):
            clock[0] += 0.1
            meter(done, 120)
    out, err = capfd.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert len(lines) == 3  # after 1, 6 and 11 of 12 s
    assert lines[0] in ("tiny: 10/120 steps", "tiny: 11/120 steps")


def test_a_line_can_say_how_long_the_rest_takes(
    clock: list[float], capfd: pytest.CaptureFixture[str]
) -> None:
    """40 were there before; then one takes 2 s, and 19 are left."""
    with console.Meter("tiny", "runs", says_left=True) as meter:
        meter(40, 60)
        clock[0] += 2
        meter(41, 60)
    assert capfd.readouterr().err == "tiny: 41/60 runs, about 38 s left\n"


def test_a_terminal_gets_a_bar(
    clock: list[float], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with console.Meter("tiny", "steps") as meter:
        meter(1, 3)
        clock[0] += 2
        meter(2, 3)
        assert meter._bar is not None
        meter(3, 3)
        assert meter._bar.tasks[0].completed == 3
    assert capfd.readouterr().out == ""

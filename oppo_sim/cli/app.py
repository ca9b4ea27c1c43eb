"""The commands put together, and their errors: one line on stderr, exit 2, no traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

import oppo_sim
from oppo_sim.cli import (
    INTERRUPTED,
    Interrupted,
    bench,
    calibrate,
    compare,
    hardware,
    interrupted,
    lengths,
    lists,
    notes,
    plot,
    profile,
    reproduce,
    run,
    search,
    sweep,
    trace,
    train,
    validate,
)
from oppo_sim.engine import EngineError

TRACEBACK = "OPPO_TRACEBACK"  # set in the environment: errors keep their traceback, for developers

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain text, wrapped at 80 columns
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="`oppo COMMAND --help` says more. Exit codes: 0 done, 1 points of a sweep failed or a "
    "search found none, 2 a mistake in what was asked, 130 interrupted, 143 terminated.",
)
app.command("run")(run.run)
app.command("compare")(compare.compare)
app.command("sweep")(sweep.sweep)
app.command("search")(search.search)
app.command("reproduce")(reproduce.reproduce)
app.command("train")(train.train)
app.command("trace")(trace.trace)
app.command("plot")(plot.plot)
app.command("profile")(profile.profile)
app.command("validate")(validate.validate)
app.command("calibrate")(calibrate.calibrate)
app.command("bench")(bench.bench)
app.add_typer(lengths.app, name="lengths")
app.command("scenarios")(lists.scenarios)
app.command("schedules")(lists.schedules)
app.add_typer(hardware.app, name="hardware")


def _version(wanted: bool) -> None:
    if wanted:
        print(f"oppo-testbed {oppo_sim.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def oppo(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """OPPO testbed: how the schedule of a PPO-RLHF pipeline decides how fast it trains.

    Simulates generation, scoring and training of PPO steps on measured response lengths: the
    sequential schedule of TRL, OPPO's intra-step and inter-step overlap, and other published
    schedules, all through one engine.

    \b
    Three to try:
      oppo run tiny                                       one run, in a second
      oppo compare tiny --schedules trl,intra,inter,oppo  who is faster, and why
      oppo reproduce --out reports/reproduce              the paper's rows, in minutes

    Where numbers come from: `run`, `compare` and `reproduce` print what is simulated, none of it
    measured on a GPU; `train` and `bench` measure this machine, `calibrate` reads what was
    measured elsewhere. The file of a scenario holds its hardware, costs and lengths, and lists what
    is assumed; `oppo scenarios` names those that are shipped, `oppo schedules` the schedules.
    """
    if context.invoked_subcommand is None:
        print(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    _make_writable()
    if os.environ.get(TRACEBACK):
        return _run(arguments)
    try:
        code = _run(arguments)
        sys.stdout.flush()
        return interrupted() if code == INTERRUPTED else code
    except typer.Abort:
        return interrupted()
    except Interrupted as error:
        return interrupted(str(error))
    except (BrokenPipeError, SystemExit):  # the reader has left, as `| head` does; click exits 1
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        named = f"{error.filename}: " if error.filename else ""
        return _fail(f"{named}{error.strerror or error}")
    except (ValueError, EngineError) as error:
        return _fail(str(error))
    except OverflowError as error:
        return _fail(f"a number is too large to reckon with ({error}): give a smaller one")
    except RecursionError:
        return _fail("the input is nested too deeply: give plain tables and lists")
    except RuntimeError as error:  # a worker that was killed, a clock that stands still
        return _fail(str(error))
    except Exception as error:  # click's, which typer keeps to itself: bad options and the like
        message = getattr(error, "format_message", None)
        if message is None:
            raise
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "oppo"
        return _fail(f"{message().rstrip('.')}. See: {path} --help")


def _make_writable() -> None:
    """Output that nobody reads goes nowhere; what a terminal cannot show becomes `?`."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # it was closed before the program began
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _run(arguments: Sequence[str] | None) -> int:
    with notes.in_lines():
        result = app(args=arguments, prog_name="oppo", standalone_mode=False)
    return result if isinstance(result, int) else 0


def _fail(message: str) -> int:
    print(f"oppo: {' '.join(message.split())}", file=sys.stderr)
    return 2

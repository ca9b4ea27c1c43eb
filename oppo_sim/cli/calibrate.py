"""`oppo calibrate`: costs fitted on a log or on a run, and checked on what was held out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oppo_sim.cli import console

if TYPE_CHECKING:
    from oppo_sim.calibration.laws import Law
    from oppo_sim.calibration.log_costs import LogCosts
    from oppo_sim.calibration.logs import FittedLog
    from oppo_sim.calibration.run_costs import FittedRun

DOCUMENT, COSTS, SCENARIO = "calibration.json", "costs.toml", "scenario.toml"
FIT_SHARE = 0.3
LENGTHS = "lengths.csv"  # of a run that was measured
LEGEND = (
    "\nerror: held out, the median of |predicted / recorded - 1|, with an interval by bootstrap "
    "over stretches of rows; signed: the mean with its sign; null: the error if every row took as "
    "long as the fitted ones' mean; change: the median change from one row to the next."
)


def calibrate(
    target: Annotated[
        str,
        typer.Argument(
            metavar="LOG|RUN|paper",
            help="A log of verl or DeepSpeed-Chat (.csv, .jsonl, or .log as printed), a run folder "
            "with spans, or a shipped log: verl-gpg-qwen2-7b-math, "
            "verl-gpg-qwen2-7b-math-megatron, deepspeed-chat-opt-1.3b. paper: the paper's rows.",
        ),
    ],
    fit_share: Annotated[
        float,
        typer.Option(
            min=0.05, max=0.95, metavar="SHARE", help="Fit the first so much of the steps."
        ),
    ] = FIT_SHARE,
    batch: Annotated[
        int | None,
        typer.Option(
            min=1, max=100_000, metavar="B", help="LOG: responses per step; gives costs per token."
        ),
    ] = None,
    lanes: Annotated[
        int, typer.Option(min=1, max=10_000, metavar="N", help="LOG: engine replicas that decode.")
    ] = 1,
    date: Annotated[
        str | None, typer.Option(metavar="TEXT", help="When it was measured, for the record.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = 0,
    out: console.Out = None,
    jobs: console.Jobs = None,
    resume: console.Resume = False,
    as_json: console.AsJson = False,
) -> None:
    """Fit what stages cost, and say how well that predicts steps it has not seen.

    A log is fitted stage by stage: generation = a + b * mean + c * longest response of the step,
    training and forwards = a + b * tokens, all else a constant; what the data do not tell is left
    out by name. A run (of `oppo run` or `oppo train`, with --spans) is fitted span by span, and
    simulated again with the costs found. Nothing held out takes part in a fit.

    \b
      oppo calibrate verl-gpg-qwen2-7b-math-megatron       a public log
      oppo calibrate my.log --batch 1024 --out fitted      costs.toml, scenario.toml
      oppo compare fitted/scenario.toml --schedules trl,oppo
      oppo calibrate paper --out fitted                    the shipped fits again: 20 min or more

    With --out: calibration.json (every number with its role, fitted or held_out), costs.toml for
    the [costs] of a scenario, scenario.toml around it. The costs of a log are those of a sequential
    step; what streaming costs is not in it. How lengths are distributed: `oppo lengths fit`.
    """
    from oppo_sim.runs import claim_folder

    if target == "paper":
        for option, given in (
            ("--fit-share", fit_share != FIT_SHARE),
            ("--batch", batch is not None),
            ("--lanes", lanes != 1),
            ("--date", date is not None),
            ("--seed", seed != 0),
        ):
            if given:
                raise ValueError(f"{option} goes with a log or a run: leave it out")
        _paper(out, resume, jobs, as_json)
        return
    for option, given in (("--resume", resume), ("--jobs", jobs is not None)):
        if given:
            raise ValueError(f"{option} goes with `oppo calibrate paper`: leave it out")
    path = Path(target)
    if path.is_dir() and batch is not None:
        raise ValueError(f"--batch {batch}: goes with a log; a run folder says its own")
    _refuse_unknown(target)
    if out is not None:
        claim_folder(out, resume=None)
    asked = {"source": target, "date": date, "fit_share": fit_share, "seed": seed}
    if path.is_dir():
        _run(path, asked, out, as_json)
    else:
        _log(target, asked, batch, lanes, out, as_json)


def _paper(out: Path | None, resume: bool, jobs: int | None, as_json: bool) -> None:
    """The shipped fits, or with a folder the same anew."""
    from dataclasses import asdict

    from oppo_sim.analysis.fits import shipped_fits
    from oppo_sim.analysis.parts import cores
    from oppo_sim.calibration.protocol import shipped_protocol
    from oppo_sim.calibration.refit import refit
    from oppo_sim.cli.tables import fits_table

    console.need_out(out, resume=resume)
    protocol = shipped_protocol()
    if out is None:
        fits = shipped_fits()
    else:
        with console.Meter("fitting the paper's rows", "candidates") as meter:
            fits = refit(protocol, out, resume=resume, jobs=jobs or cores(), progress=meter)
    if as_json:
        console.emit({name: [asdict(c) for c in fit.candidates] for name, fit in fits.items()})
        return
    console.show(
        "Every simulated value below is of one seed and 200 steps, to choose among candidates: "
        "`oppo reproduce` takes more, and differs."
    )
    for stage in protocol.stages:
        fit = fits[stage.name]
        rows = {
            "fitted": [row.id for row in stage.fitted],
            "held out": [row.id for row in stage.holds_out],
        }
        console.show(
            f"\n{stage.about}: {len(fit.accepted)} of {len(fit.candidates)} candidates accepted; "
            + "; ".join(f"{role}: {', '.join(ids)}" for role, ids in rows.items()),
            fits_table(fit, stage.fitted + stage.holds_out, console.width()),
        )
        if untold := fit.untold(stage.free):
            console.show(
                f"Not told by these rows, but only together with the tail: {', '.join(untold)} "
                "(accepted values differ by more than a factor of 2)."
            )
    if out is not None:
        console.show(f"\nWritten to {out}: candidates as CSV, scenarios as TOML.")
    else:
        console.show("\nThese are shipped; --out DIR fits them again.")


def _refuse_unknown(target: str) -> None:
    from oppo_sim.calibration.shipped import shipped_logs

    if not Path(target).exists() and target not in shipped_logs():
        raise ValueError(
            f"{target}: no such log or run folder; the shipped logs are "
            f"{', '.join(shipped_logs())}; `paper` fits the paper's rows"
        )


def _log(
    target: str,
    asked: Mapping[str, Any],
    batch: int | None,
    lanes: int,
    out: Path | None,
    as_json: bool,
) -> None:
    from oppo_sim.calibration.log_costs import log_costs
    from oppo_sim.calibration.logs import fit_log
    from oppo_sim.calibration.shipped import shipped_log, shipped_logs
    from oppo_sim.calibration.written import log_document

    with ExitStack() as stack:
        meter = stack.enter_context(console.Meter(f"reading {target}", "bytes"))
        is_shipped = not Path(target).exists()
        path = stack.enter_context(shipped_log(target)) if is_shipped else Path(target)
        fitted = fit_log(path, asked["fit_share"], asked["seed"], meter)
        found = None if batch is None else log_costs(path, fitted, batch, lanes)
    document = {**asked, **log_document(fitted)}
    if is_shipped:
        from dataclasses import asdict

        document["provenance"] = asdict(shipped_logs()[target])
    if found is not None:
        document |= {"batch": batch, "lanes": lanes, "costs": found.costs, "notes": found.notes}
    if out is not None:
        on = f"{fitted.fitted} of {fitted.steps} steps, {batch} responses each"
        costs = None if found is None else found.costs
        _write(out, document, asked, on, costs, None if found is None else found.scenario)
    if as_json:
        console.emit(document)
        return
    _print_log(target, fitted, found, batch)
    _written(out)


def _run(path: Path, asked: Mapping[str, Any], out: Path | None, as_json: bool) -> None:
    from oppo_sim.calibration.replayed import scenario_with
    from oppo_sim.calibration.run_costs import can_decode, fit_run
    from oppo_sim.calibration.written import run_document
    from oppo_sim.runs import write_whole

    fitted = fit_run(path, asked["fit_share"], asked["seed"])
    document = {**asked, **run_document(fitted)}
    if out is not None:
        on = f"{fitted.fitted_steps} of {fitted.steps} steps ({fitted.role})"
        costs = fitted.costs
        measured = None if fitted.role == "simulated" else LENGTHS
        scenario = scenario_with(fitted.scenario, costs, measured) if can_decode(costs) else None
        if measured is not None:
            rows = "".join(f"{tokens}\n" for tokens in fitted.tokens)
            write_whole(out / measured, "response_tokens\n" + rows)
        _write(out, document, asked, on, costs, scenario)
    if as_json:
        console.emit(document)
        return
    _print_run(fitted)
    _written(out)


def _write(
    out: Path,
    document: Mapping[str, Any],
    asked: Mapping[str, Any],
    on: str,
    costs: Mapping[str, float] | None,
    scenario: Mapping[str, Any] | None,
) -> None:
    from oppo_sim.calibration.written import provenance, toml
    from oppo_sim.runs import write_whole

    write_whole(out / DOCUMENT, json.dumps(document, indent=2, allow_nan=False) + "\n")
    said = provenance(asked["source"], asked["date"], asked["fit_share"], asked["seed"], on)
    if costs is not None:
        table = {"costs": {"model": "linear", **costs}}
        write_whole(out / COSTS, toml(table, said))
    if scenario is not None:
        write_whole(out / SCENARIO, toml(scenario, said))


def _written(out: Path | None) -> None:
    if out is not None:
        names = [name for name in (DOCUMENT, COSTS, SCENARIO, LENGTHS) if (out / name).exists()]
        console.show(f"\nWritten to {out}: {', '.join(names)}.")


def _print_log(target: str, fitted: FittedLog, found: LogCosts | None, batch: int | None) -> None:
    console.show(
        f"{target}: {fitted.framework.name}, {fitted.steps} steps; the first {fitted.fitted} are "
        f"fitted, the other {fitted.steps - fitted.fitted} predicted from their lengths."
    )
    _errors({one.stage.name: one.law for one in fitted.stages})
    _bullets("Laws, in seconds:", [f"{one.stage.name} = {_law(one.law)}" for one in fitted.stages])
    doubts = [f"{one.stage.name}: {doubt}" for one in fitted.stages for doubt in one.law.doubts]
    _bullets("What the data do not tell:", [*fitted.doubts, *doubts])
    _bullets("Left out:", fitted.left_out)
    if found is not None:
        _costs(found.costs, found.notes)
    elif batch is not None:
        console.show("\nNo costs per token: the log has no lengths.")


def _print_run(fitted: FittedRun) -> None:
    console.show(
        f"{fitted.source}: {fitted.scenario.name}, {fitted.role}, {fitted.steps} steps; the spans "
        f"of the first {fitted.fitted_steps} are fitted, the others predicted."
    )
    _errors({task.task: task.law for task in fitted.tasks if task.law is not None})
    doubts = [
        f"{task.task} ({task.used} of {task.spans} spans used): {doubt}"
        for task in fitted.tasks
        for doubt in task.doubts
    ]
    _bullets("What the data do not tell:", [*fitted.doubts, *doubts])
    again = fitted.replayed
    notes = []
    if again is not None:
        notes.append(
            f"simulated again with these costs: {again.simulated_s:.4g} s per step, recorded "
            f"{again.recorded_s:.4g} s ({again.error:+.1%})"
        )
    _costs(fitted.costs, notes)


def _errors(laws: Mapping[str, Law]) -> None:
    from rich.table import Table

    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("", min_width=12)
    for title in ("error", "95 % interval", "signed", "null", "change", "fitted/held out"):
        table.add_column(title, justify="right", no_wrap=True)
    for name, law in laws.items():
        held = law.held_out
        table.add_row(
            name,
            f"{held.median.value:.1%}",
            f"{100 * held.median.low:.1f} to {100 * held.median.high:.1f} %",
            f"{held.signed.value:+.1%}",
            f"{held.null_error:.1%}",
            f"{held.floor:.1%}",
            f"{law.fitted}/{held.rows}",
        )
    console.show("")
    console.show(table, LEGEND)


def _law(law: Law) -> str:
    terms = []
    for e in law.estimates:
        value = f"{e.value:.4g} ({e.low:.4g} to {e.high:.4g})"
        terms.append(value if e.term == "constant" else f"{value} * {e.term}")
    return " + ".join(terms)


def _costs(costs: Mapping[str, float], notes: Sequence[str]) -> None:
    from oppo_sim.calibration.written import toml

    console.show("\nFor a scenario:")
    print(toml({"costs": {"model": "linear", **costs}}), end="")  # a wrapped line is no TOML
    _bullets("Of these costs:", notes)


def _bullets(title: str, texts: Sequence[str]) -> None:
    if texts:
        console.show("\n" + title)
        for text in texts:
            wrapped = fill(text, console.width(), initial_indent="  - ", subsequent_indent="    ")
            console.show(wrapped)

"""`oppo lengths`: the shipped tables of response lengths, and laws fitted to one's own."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oppo_sim.cli import console

if TYPE_CHECKING:
    from oppo_sim.analysis.length_fits import FittedLog, FittedSample, Timed

app = typer.Typer(
    invoke_without_command=True,
    rich_markup_mode=None,
)
Batch = Annotated[int, typer.Option(min=1, max=100_000, metavar="B", help="Responses per step.")]
Cap = Annotated[
    int | None,
    typer.Option(
        min=2,
        max=10_000_000,
        metavar="N",
        help="Where responses were cut; those as long count as such.",
    ),
]
FILES = (".csv", ".jsonl", ".json", ".log", ".txt")
FIGURE, DOCUMENT, LENGTHS = "fit.png", "fit.json", "lengths.csv"


@app.callback()
def lengths(context: typer.Context) -> None:
    """Response lengths: shipped tables, and laws fitted to a file or a training log."""
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command("list")
def list_tables(as_json: console.AsJson = False) -> None:
    """List the shipped tables: mean, median, 99th percentile, and the share cut at their cap."""
    from oppo_sim.workload import shipped

    documents = {name: _summary(name) for name in shipped()}
    if as_json:
        console.emit(documents)
        return
    from rich.table import Table

    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("table", overflow="fold")
    for title in ("mean", "p50", "p99", "max", "cut"):
        table.add_column(title, justify="right", no_wrap=True, min_width=5)
    for name, document in documents.items():
        numbers = [f"{document[key]:,.0f}" for key in ("mean_tokens", "p50", "p99", "max")]
        cut = f"{document['share_at_cap']:.1%}" if document["share_at_cap"] else "-"
        table.add_row(name, *numbers, cut)
    console.show(
        table,
        "\nTokens per response. cut: the share that the source cut at its cap. `oppo lengths show "
        "TABLE` says where a table is from; a scenario takes one by its name.",
    )


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="TABLE", help="A shipped table.")],
    cap: Cap = None,
    batch: Batch = 112,
    as_json: console.AsJson = False,
) -> None:
    """Say where a table is from, and what batches of such responses wait for."""
    from oppo_sim.workload import load, provenance
    from oppo_sim.workload.tail import tail, verdict

    if "/" in name or name.lower().endswith(FILES):
        raise ValueError(
            f"{name}: show is for the tables of `oppo lengths list`; a file of your own is read "
            f"by: oppo lengths fit {name}"
        )
    table, source = load(name), provenance(name)
    known = table.known_tokens
    if cap is not None and known is not None and cap > known:
        raise ValueError(
            f"--cap {cap}: the source of {name} cut its responses at {known} tokens, so nobody "
            f"knows how long they would have been; give {known} or less"
        )
    found = tail(table, batch, cap or known)
    document = {
        **asdict(source),
        **_summary(name),
        "verdict": verdict(found),
        "gains": {str(d): gain for d, gain in found.gains.items()},
        "idle_share": found.idle_share,
    }
    if as_json:
        console.emit(document)
        return
    console.show(
        f"{name}: {source.about}\n"
        f"{source.n:,} responses, {source.tokenizer} tokens; {source.repository} @ "
        f"{source.commit}, {source.path}; licence: {source.licence}.\n"
        f"mean {document['mean_tokens']:,.1f}, median {document['p50']:,.0f}, 99th percentile "
        f"{document['p99']:,.0f}, longest {document['max']:,.0f} tokens.\n",
        verdict(found),
    )


@app.command()
def fit(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="CSV or JSONL with response_tokens (and prompt_tokens, prompt_id, step), or a log "
            "of verl, TRL or DeepSpeed-Chat.",
        ),
    ],
    cap: Cap = None,
    batch: Batch = 112,
    out: console.Out = None,
    as_json: console.AsJson = False,
) -> None:
    """Fit laws to lengths, and say in plain words what their tail costs.

    Files may be larger than memory. Lognormal, gamma, Weibull and a mixture of two lognormals by
    maximum likelihood, where responses at --cap count as longer than it, or as loops apart from the
    rest. With --out: fit.json, a figure, and 2,000 lengths that stand for the file.
    """
    from oppo_sim.analysis.length_fits import fit_file

    if out is not None:
        from oppo_sim.runs import claim_folder

        claim_folder(out, resume=None)
    with console.Meter(f"reading {file.name}", "bytes") as meter:
        fitted = fit_file(file, cap, batch, meter)
    if out is not None:
        _write(out, fitted)
    if as_json:
        console.emit(fitted.as_dict())
    else:
        _print(fitted)
        if out is not None:
            console.show(f"\nWritten to {out}")


def _summary(name: str) -> dict[str, Any]:
    """The lengths of a table as its source left them, in tokens."""
    import numpy as np

    from oppo_sim.workload import load

    table = load(name)
    u = (np.arange(1 << 14) + 0.5) / (1 << 14)
    tokens = table.ppf(u)
    if table.known_tokens is not None:
        tokens = np.minimum(tokens, table.known_tokens)
    p50, p99 = np.quantile(tokens, (0.5, 0.99)).tolist()
    prompts = table.prompts
    return {
        "mean_tokens": float(tokens.mean()),
        "p50": p50,
        "p99": p99,
        "max": table.known_tokens or round(max(table.response_tokens)),
        "share_at_cap": table.share_cut,
        "prompt_mean_tokens": None if prompts is None else float(prompts.ppf(u).mean()),
    }


def _write(out: Path, fitted: FittedSample | FittedLog | Timed) -> None:
    from oppo_sim.analysis.length_figure import log_figure, sample_figure
    from oppo_sim.analysis.length_fits import FittedLog, FittedSample, steps_of
    from oppo_sim.runs import write_whole

    write_whole(out / DOCUMENT, json.dumps(fitted.as_dict(), indent=2, allow_nan=False) + "\n")
    name = Path(fitted.file).name
    if isinstance(fitted, FittedSample):
        sample = fitted.measured.sample
        title = f"{name}: {sample.n:,} responses, best {fitted.best.family}"
        figure = sample_figure(title, sample, fitted.fits, 1 - fitted.endless)
        (out / FIGURE).write_bytes(figure)
        rows = "".join(f"{tokens}\n" for tokens in fitted.thinned())
        write_whole(out / LENGTHS, "response_tokens\n" + rows)
    elif isinstance(fitted, FittedLog):
        title = f"{name}: {steps_of(len(fitted.log.steps))} of {fitted.log.framework}"
        (out / FIGURE).write_bytes(log_figure(title, fitted.log))


def _print(fitted: FittedSample | FittedLog | Timed) -> None:
    from oppo_sim.analysis.length_fits import FittedSample, Timed, steps_of

    if isinstance(fitted, Timed):
        console.show(fitted.verdict)
        return
    if isinstance(fitted, FittedSample):
        _print_sample(fitted)
    else:
        log = fitted.log
        console.show(
            f"{fitted.file}: {steps_of(len(log.steps))} of {log.framework}, {log.skipped:,} "
            f"without lengths skipped; mean {log.means.mean():,.1f}, longest of a step "
            f"{log.longest.mean():,.1f} tokens on average.\n"
        )
    console.show(fitted.verdict)
    if fitted.toml is not None:
        console.show("\nFor the [workload] of a scenario:")
        print(fitted.toml)  # as it is: a wrapped line would not be TOML


def _print_sample(fitted: FittedSample) -> None:
    from rich.box import SIMPLE
    from rich.table import Table

    from oppo_sim.analysis.length_fits import law_toml, quantiles

    sample = fitted.measured.sample
    marks = ", ".join(f"{name} {tokens:,}" for name, tokens in quantiles(sample).items())
    table = Table(box=SIMPLE, pad_edge=False)
    for title in ("family", "KS", "numbers"):
        table.add_column(title, justify="right" if title == "KS" else "left")
    for name, found in fitted.fits.items():
        numbers = law_toml(found.law).strip("{} ")
        table.add_row(f"{name} *" if found is fitted.best else name, f"{found.ks:.4f}", numbers)
    apart = (
        f" The {fitted.endless:.1%} at the cap are kept apart, as responses that never end: the "
        "laws are of the others."
        if fitted.endless
        else ""
    )
    console.show(
        f"{fitted.file}: {sample.n:,} responses, mean {sample.mean:,.1f} tokens, {marks}.{apart}",
        table,
        "KS: Kolmogorov-Smirnov distance. * best, by the Bayesian information criterion.\n",
    )

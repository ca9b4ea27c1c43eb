"""`oppo bench`: how fast the simulator is, and how fast the schedules are on this machine."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oppo_sim.cli import console

if TYPE_CHECKING:
    from oppo_sim.analysis.bench import Bench


class Suite(StrEnum):
    sim = "sim"
    real = "real"


class Size(StrEnum):
    full = "full"
    tiny = "tiny"


def bench(
    suite: Annotated[Suite, typer.Option(help="What to time.")] = Suite.sim,
    rounds: Annotated[
        int | None,
        typer.Option(min=1, help="Repetitions, of which the medians; 5 (sim) or 8 (real)."),
    ] = None,
    steps: Annotated[
        int, typer.Option(min=1, help="real: PPO steps of each system in a round.", metavar="N")
    ] = 3,
    warmup: Annotated[
        int, typer.Option(min=0, help="real: steps before the first round.", metavar="N")
    ] = 3,
    size: Annotated[
        Size, typer.Option(help="real: of models and responses; tiny is for trying it out.")
    ] = Size.full,
    seed: console.Seed = None,
    as_json: console.AsJson = False,
) -> None:
    """Time the simulator itself, or the schedules on this machine.

    sim: PPO steps per CPU second on one core, next to bare SimPy timeouts. The scenario is `bench`:
    `oppo run bench` simulates the same mean_step_s. real: TRL 1.12's PPOTrainer, our `trl`, `intra`
    and `oppo` take turns on two cores with the same prompts and lengths, some 20 minutes; needs the
    extra [real] and trl 1.12.
    """
    with console.Meter(f"bench {suite.value}", "rounds") as meter:
        if suite is Suite.real:
            real = _real()
            found = real.bench_real(
                size.value, rounds or real.ROUNDS, steps, warmup, seed or 0, meter
            )
        else:
            from oppo_sim.analysis.bench import ROUNDS, bench_sim

            found = bench_sim(rounds or ROUNDS, seed, meter)
    if as_json:
        console.emit(found.as_dict())
    elif suite is Suite.real:
        _print_real(found)
    else:
        _print(found)


def _real() -> Any:
    """The module that measures; ValueError where the extra is not installed."""
    try:
        from oppo_real.bench import suite as real
    except ModuleNotFoundError as error:
        raise ValueError(
            f"--suite real needs {error.name}, which is not installed: "
            "pip install 'oppo-testbed[real]'"
        ) from None
    return real


def _print(found: Bench) -> None:
    from rich.box import SIMPLE
    from rich.table import Table

    from oppo_sim.analysis.why import count, plain

    table = Table(box=SIMPLE, pad_edge=False)
    table.add_column("schedule")
    table.add_column("PPO steps per CPU second, measured here", justify="right")
    table.add_column("step s, simulated", justify="right")
    for name, speed in found.speeds.items():
        table.add_row(name, f"{speed.steps_per_s:,.0f}", plain(speed.mean_step_s, 4))
    console.show(
        f"Scenario {found.scenario}, {count(found.steps, 'step')}, seed {found.seed}; medians of "
        f"{count(found.rounds, 'round')} on one core.",
        table,
        f"Bare SimPy timeouts: {found.simpy_timeouts_per_s:,.0f} per CPU second, "
        f"{found.ratio:,.0f} in the time of one oppo step.",
    )


def _print_real(found: Any) -> None:
    from rich.box import SIMPLE
    from rich.table import Table

    from oppo_sim.analysis.why import count

    document = found.as_dict()
    task = document["task"]
    ratios = Table(box=SIMPLE, pad_edge=False)
    for column in ("speed-up, measured here", "median", "95 % interval"):
        ratios.add_column(column, justify="left" if column.startswith("speed") else "right")
    for name, words in _RATIOS.items():
        ratio = document[name]
        interval = f"{ratio['low']:.2f} to {ratio['high']:.2f}"
        ratios.add_row(words, f"{ratio['median']:.2f}", interval)
    systems = Table(box=SIMPLE, pad_edge=False)
    systems.add_column("system")
    parts = ("generation", "scoring", "training", "sync")
    for column in ("step s", "tokens/s", "mean tokens", *parts):
        systems.add_column(column, justify="right")
    for name, figures in document["systems"].items():
        shares = [f"{document['shares'][name][part]:.0%}" for part in parts]
        cells = [f"{figures[key]:.3g}" for key in ("step_s", "tokens_per_s", "mean_tokens")]
        systems.add_row(name, *cells, *shares)
    console.show(
        f"{count(found.rounds, 'round')} of {count(found.steps, 'step')} each after "
        f"{found.warmup} to warm up; batch {task['batch']}, D = {task['overcommit']}, chunk "
        f"{task['chunk_tokens']}, micro-batch {task['micro_batch']}. Other processes took "
        f"{max(found.elsewhere):.0%} of the machine at most.",
        ratios,
        systems,
        "Scoring is what lengthens the step; sync is all that is left.",
    )


_RATIOS = {
    "rollout_intra": "rollout phase, intra over trl",
    "rollout_oppo": "rollout phase, oppo over trl",
    "step_intra": "step, intra over trl",
    "step_oppo": "step, oppo over trl",
    "step_trl_vs_trl": "step, trl over TRL 1.12",
    "step_oppo_vs_trl": "step, oppo over TRL 1.12",
    "tokens_oppo": "tokens per second, oppo over trl",
    "tokens_oppo_vs_trl": "tokens per second, oppo over TRL 1.12",
}

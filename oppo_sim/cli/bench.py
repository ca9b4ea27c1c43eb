"""`oppo bench`: how fast the simulator itself is."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from oppo_sim.cli import console

if TYPE_CHECKING:
    from oppo_sim.analysis.bench import Bench


class Suite(StrEnum):
    sim = "sim"


def bench(
    suite: Annotated[Suite, typer.Option(help="What to time.")] = Suite.sim,
    rounds: Annotated[int, typer.Option(min=1, help="Repetitions, of which the medians.")] = 5,
    seed: console.Seed = None,
    as_json: console.AsJson = False,
) -> None:
    """Time the simulator itself.

    PPO steps per CPU second on one core, next to bare SimPy timeouts. The scenario is `bench`:
    `oppo run bench` simulates the same mean_step_s.
    """
    from oppo_sim.analysis.bench import bench_sim

    with console.Meter(f"bench {suite.value}", "rounds") as meter:
        found = bench_sim(rounds, seed, meter)
    if as_json:
        console.emit(found.as_dict())
    else:
        _print(found)


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

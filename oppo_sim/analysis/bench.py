"""How fast the simulator is: PPO steps per CPU second, next to bare SimPy timeouts."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass
from statistics import median
from time import process_time
from typing import Any

import simpy

from oppo_sim.analysis.metrics import summarise
from oppo_sim.analysis.parts import Progress
from oppo_sim.config import Scenario, load_scenario
from oppo_sim.policies import Schedule
from oppo_sim.simulate import simulate

SCENARIO = "bench"
SCHEDULES = ("oppo", "inter", "trl")
ROUNDS = 5
TIMEOUTS = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """One schedule: CPU speed here (measured), and what it simulated."""

    steps_per_s: float
    mean_step_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Medians over the rounds, in which everything is timed once; CPU seconds of one core.

    `ratio`: bare timeouts per step of `oppo`; it hardly depends on the machine.
    """

    scenario: str
    seed: int
    steps: int
    rounds: int
    speeds: dict[str, Speed]
    simpy_timeouts_per_s: float

    @property
    def ratio(self) -> float:
        return self.simpy_timeouts_per_s / self.speeds["oppo"].steps_per_s

    def as_dict(self) -> dict[str, Any]:
        """As a JSON object; steps_per_s and mean_step_s are those of `oppo`."""
        return {
            "suite": "sim",
            "scenario": self.scenario,
            "seed": self.seed,
            "steps": self.steps,
            "rounds": self.rounds,
            **asdict(self.speeds["oppo"]),
            "simpy_timeouts_per_s": self.simpy_timeouts_per_s,
            "ratio": self.ratio,
            "schedules": {name: asdict(speed) for name, speed in self.speeds.items()},
        }


def bench_sim(
    rounds: int = ROUNDS, seed: int | None = None, progress: Progress | None = None
) -> Bench:
    """Time `oppo`, `inter` and `trl` on the scenario `bench`, spans off, and bare timeouts.

    Rounds interleave them, so that a slower minute of the machine hits all alike.
    """
    scenario = load_scenario(SCENARIO)
    seed = scenario.seed if seed is None else seed
    schedules = {name: scenario.schedule(name) for name in SCHEDULES}
    steps_per_s: dict[str, list[float]] = {name: [] for name in schedules}
    timeouts_per_s: list[float] = []
    means: dict[str, float] = {}
    for number in range(rounds):
        timeouts_per_s.append(TIMEOUTS / _cpu_s(bare_timeouts))
        for name, schedule in schedules.items():

            def run(name: str = name, schedule: Schedule = schedule) -> None:
                means[name] = _mean_step_s(scenario, schedule, seed)

            steps_per_s[name].append(scenario.steps / _cpu_s(run))
        if progress is not None:
            progress(number + 1, rounds)
    return Bench(
        scenario=scenario.name,
        seed=seed,
        steps=scenario.steps,
        rounds=rounds,
        speeds={
            name: Speed(steps_per_s=median(steps_per_s[name]), mean_step_s=means[name])
            for name in schedules
        },
        simpy_timeouts_per_s=median(timeouts_per_s),
    )


def _mean_step_s(scenario: Scenario, schedule: Schedule, seed: int) -> float:
    return summarise(simulate(scenario, schedule, seed=seed)).mean_step_s


def _cpu_s(work: Callable[[], None]) -> float:
    began = process_time()
    work()
    return process_time() - began


def bare_timeouts() -> None:
    """One process that does nothing but `yield env.timeout(1)`: SimPy's own pace."""
    env = simpy.Environment()

    def process() -> Generator[simpy.Event]:
        for _ in range(TIMEOUTS):
            yield env.timeout(1)

    env.process(process())
    env.run()

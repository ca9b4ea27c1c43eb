"""How much faster schedules are on two cores: paired rounds against TRL and against `trl` here."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from oppo_real.bench.systems import System, Timed, serve
from oppo_real.bench.task import FULL, TINY, Task
from oppo_real.machine.processes import end
from oppo_real.profile.busy import busy_s
from oppo_sim.engine import EngineError

TASKS = {"full": FULL, "tiny": TINY}
ROUNDS, STEPS, WARMUP = 8, 3, 3
RESAMPLES = 10_000
END_S = 10.0

SYSTEMS = ("trl 1.12", "trl", "intra", "oppo")
# what is compared: the seconds of which part, of which system over which
Part = Callable[[Timed], float]
ROLLOUT: Part = lambda timed: timed.rollout_s  # noqa: E731
STEP: Part = lambda timed: timed.step_s  # noqa: E731
RATIOS: dict[str, tuple[Part, str, str]] = {
    "rollout_intra": (ROLLOUT, "trl", "intra"),
    "rollout_oppo": (ROLLOUT, "trl", "oppo"),
    "step_intra": (STEP, "trl", "intra"),
    "step_oppo": (STEP, "trl", "oppo"),
    "step_trl_vs_trl": (STEP, "trl 1.12", "trl"),
    "step_oppo_vs_trl": (STEP, "trl 1.12", "oppo"),
}
# the same for tokens trained per second: batches of two schedules differ in length
RATES = {"tokens_oppo": ("trl", "oppo"), "tokens_oppo_vs_trl": ("trl 1.12", "oppo")}

Progress = Callable[[int, int], None]


class Ratio(NamedTuple):
    """A speed-up: the median of the rounds, and a 95 % bootstrap interval of it."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class RealBench:
    """`timed`: by system, the steps of each round."""

    task: Task
    seed: int
    rounds: int
    steps: int
    warmup: int
    elsewhere: Sequence[float]  # by round, the machine's share that other processes took
    timed: Mapping[str, Sequence[Sequence[Timed]]]

    def ratio(self, name: str) -> Ratio:
        """Of the sums over a round's steps."""
        part, base, other = RATIOS[name]
        pairs = zip(self.timed[base], self.timed[other], strict=True)
        return interval([sum(map(part, a)) / sum(map(part, b)) for a, b in pairs], self.seed)

    def rate(self, name: str) -> Ratio:
        """Of the tokens per second of a round."""
        pairs = zip(*[self.timed[system] for system in RATES[name]], strict=True)
        return interval([_rate(other) / _rate(base) for base, other in pairs], self.seed)

    def system(self, name: str) -> dict[str, float]:
        """Medians of a round's mean step, and how many tokens that trained."""
        rounds = self.timed[name]
        steps = [timed for some in rounds for timed in some]

        def median(part: Part) -> float:
            return float(np.median([np.mean([part(timed) for timed in some]) for some in rounds]))

        tokens = sum(timed.tokens for timed in steps)
        return {
            "step_s": median(STEP),
            "rollout_s": median(ROLLOUT),
            "mean_tokens": tokens / len(steps) / self.task.batch,
            "cpu_s": sum(timed.cpu_s for timed in steps) / len(steps),
            "tokens_per_s": _rate(steps),
            "stale_share": sum(timed.stale_tokens for timed in steps) / tokens,
        }

    def shares(self, name: str) -> dict[str, float]:
        """Of all step time; `scoring` is what lengthens the step, `sync` all that is left."""
        steps = [timed for some in self.timed[name] for timed in some]
        whole = sum(timed.step_s for timed in steps)
        return {
            "generation": sum(timed.generate_s for timed in steps) / whole,
            "scoring": sum(timed.score_s for timed in steps) / whole,
            "training": sum(timed.train_s for timed in steps) / whole,
            "sync": sum(timed.sync_s for timed in steps) / whole,
        }

    def as_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "suite": "real",
            **{name: self.ratio(name)._asdict() for name in RATIOS},
            **{name: self.rate(name)._asdict() for name in RATES},
            "shares": {name: self.shares(name) for name in self.timed},
            "systems": {name: self.system(name) for name in self.timed},
            "places": {n: dict(s.real) for n, s in systems(self.task.threads).items()},
            "task": asdict(self.task),
            "seed": self.seed,
            "rounds": self.rounds,
            "steps": self.steps,
            "warmup": self.warmup,
            "elsewhere": list(self.elsewhere),
        }


def systems(threads: int) -> dict[str, System]:
    """Lanes that work by turns have all threads each; an actor and a scorer side by side share."""
    alone: dict[str, Any] = {f"{kind}_threads": threads for kind in ("actor", "scorer", "trainer")}
    beside = alone | {"actor_threads": 1, "scorer_threads": 1, "share_threads": threads > 1}
    return {
        "trl 1.12": System(None),
        "trl": System("trl", alone),
        "intra": System("intra", beside),
        "oppo": System("oppo", beside),
    }


def _rate(steps: Sequence[Timed]) -> float:
    return sum(timed.tokens for timed in steps) / sum(timed.step_s for timed in steps)


def interval(ratios: Sequence[float], seed: int) -> Ratio:
    draw = np.random.default_rng(seed)
    picks = draw.choice(np.array(ratios), (RESAMPLES, len(ratios)))
    low, high = np.quantile(np.median(picks, axis=1), (0.025, 0.975))
    return Ratio(float(np.median(ratios)), float(low), float(high))


def bench_real(
    size: str = "full",
    rounds: int = ROUNDS,
    steps: int = STEPS,
    warmup: int = WARMUP,
    seed: int = 0,
    progress: Progress | None = None,
) -> RealBench:
    """Let the systems take turns of `steps` steps, in an order that turns round every time.

    All train the same prompts and lengths; the first `warmup` steps of each are not counted.
    """
    task = TASKS[size]
    timed: dict[str, list[list[Timed]]] = {name: [] for name in SYSTEMS}
    with TemporaryDirectory() as name, ExitStack() as stack:
        folder, most = Path(name), warmup + rounds * steps
        # a schedule that carries rollouts over has begun more than it has trained
        task.write(folder, task.batch * most + task.overcommit, seed)
        turns = {
            name: stack.enter_context(_running(name, system, task, folder, seed, most))
            for name, system in systems(task.threads).items()
        }
        for turn in turns.values():
            turn(warmup)
        elsewhere: list[float] = []
        for number in range(rounds):
            before_s, began_s = busy_s(), time.monotonic()
            for name in [*SYSTEMS] if number % 2 else [*reversed(SYSTEMS)]:
                timed[name].append(turns[name](steps))
            own_s = sum(step.cpu_s for name in SYSTEMS for step in timed[name][-1])
            whole_s = (time.monotonic() - began_s) * (os.cpu_count() or 1)
            elsewhere.append(max(0.0, busy_s() - before_s - own_s) / whole_s)
            if progress is not None:
                progress(number + 1, rounds)
    return RealBench(
        task=task,
        seed=seed,
        rounds=rounds,
        steps=steps,
        warmup=warmup,
        elsewhere=elsewhere,
        timed=timed,
    )


@contextmanager
def _running(
    name: str, system: System, task: Task, folder: Path, seed: int, steps: int
) -> Iterator[Callable[[int], list[Timed]]]:
    """A system in a process of its own; it ends when its pipe does."""
    context = multiprocessing.get_context("spawn")
    pipe, child = context.Pipe()
    arguments = (child, system, task, folder, seed, steps)
    process = context.Process(target=serve, args=arguments, name=f"oppo-bench-{name}")
    process.start()
    child.close()
    try:
        yield lambda steps: _turn(name, pipe, process, steps)
    finally:
        end(process, pipe, END_S)


def _turn(name: str, pipe: Connection, process: BaseProcess, steps: int) -> list[Timed]:
    try:
        pipe.send(steps)
        wait([pipe, process.sentinel])
        answer = pipe.recv()
    except (EOFError, OSError):
        process.join(END_S)
        raise EngineError(
            f"bench: the process of {name} ended with exit code {process.exitcode}"
        ) from None
    if isinstance(answer, str):
        raise EngineError(f"bench: {name} failed with {answer}")
    timed: list[Timed] = answer
    return timed

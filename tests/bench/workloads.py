"""What `make bench` times: everyday work of the simulator, each some tenths of a second."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from oppo_sim.analysis.documents import header_of
from oppo_sim.analysis.trace import write_trace
from oppo_sim.config import load_scenario
from oppo_sim.engine.spans import SpanRecorder
from oppo_sim.runs import RunWriter, read_run
from oppo_sim.search import Problem, Seeds, evaluate
from oppo_sim.simulate import lanes, simulate

SEED = 0


def steps_of(scenario: str, schedule: str, steps: int, folder: Path) -> None:
    """Steps of a schedule, nothing kept."""
    loaded = load_scenario(scenario)
    for _ in simulate(loaded, loaded.schedule(schedule), seed=SEED, steps=steps):
        pass


def point(folder: Path) -> None:
    """A point of a sweep and its baseline, from the scenario's text on."""
    problem = Problem.of("tiny", steps=20)
    found = evaluate(problem, {"schedule.chunk": 25}, Seeds(SEED, 9))
    assert found.is_ok


def kept(folder: Path) -> None:
    """A run written with its spans, read back, and turned into a trace."""
    loaded = load_scenario("tiny")
    schedule = loaded.schedule("oppo")
    header = header_of(loaded, schedule, seed=SEED, steps=100, spans=True)
    by_name = {lane.name: lane for lane in lanes(loaded)}
    with RunWriter(folder / "run", header) as writer:
        recorder = SpanRecorder(by_name, writer.span)
        for record in simulate(loaded, schedule, seed=SEED, steps=100, listen=recorder):
            writer.step(record)
    assert read_run(folder / "run").complete
    write_trace(folder / "run", folder / "trace.json")


WORKLOADS: dict[str, Callable[[Path], None]] = {
    "trl": partial(steps_of, "bench", "trl", 150),
    "inter": partial(steps_of, "bench", "inter", 150),
    "oppo": partial(steps_of, "bench", "oppo", 100),
    "areal": partial(steps_of, "bench", "areal", 60),
    "oppo, roofline": partial(steps_of, "stackexchange-7b", "oppo", 120),
    "point of a sweep": point,
    "run kept and traced": kept,
}

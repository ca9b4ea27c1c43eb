"""What every device does at a point, in its first steps: simulated when a page asks for it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from oppo_sim.analysis.tracks import natural
from oppo_sim.engine.spans import SpanRecorder
from oppo_sim.records import Span
from oppo_sim.search.problem import Problem, Values
from oppo_sim.simulate import lanes, simulate

STEPS = 3
MOST_BARS = 4000  # of one timeline
DIGITS = 4  # of a second


@dataclass(slots=True)
class Timeline:
    """Bars by device, and where steps begin."""

    devices: list[str]
    bars: list[list[Any]]  # number of the device, kind, start, end
    steps_s: list[float]

    def as_dict(self) -> dict[str, Any]:
        return {"devices": self.devices, "bars": self.bars, "steps_s": self.steps_s}


def timeline(problem: Problem, values: Values, seed: int) -> Timeline:
    """The first steps of a point; ConfigError where it cannot run."""
    scenario, schedule = problem.built("point", values)
    by_name = {lane.name: lane for lane in lanes(scenario)}
    devices = sorted({d for lane in by_name.values() for d in lane.devices}, key=natural)
    spans: deque[Span] = deque(maxlen=MOST_BARS)
    records = simulate(
        scenario, schedule, seed=seed, steps=STEPS, listen=SpanRecorder(by_name, spans.append)
    )
    begun = [round(record.start_s, DIGITS) for record in records]
    bars: list[list[Any]] = [
        [devices.index(device), span.kind, round(span.start_s, DIGITS), round(span.end_s, DIGITS)]
        for span in spans
        for device in span.devices
    ]
    return Timeline(devices, bars, begun)

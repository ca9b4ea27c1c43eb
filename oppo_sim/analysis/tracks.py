"""Where the spans of a run show on a timeline: a process per device, a thread per lane on it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from oppo_sim.records import Span
from oppo_sim.runs import Header, each_span, each_step
from oppo_sim.runs.changes import options

STEPS_PID = 1
_KINDS = {"decode": 0, "score": 1, "train": 2}  # the order of the lanes on a device


@dataclass(slots=True)
class Tracks:
    """Process ids by device, thread ids by device and lane, in the order in which they show."""

    devices: dict[str, int] = field(default_factory=dict)
    threads: dict[tuple[str, str], int] = field(default_factory=dict)
    actors: dict[str, list[str]] = field(default_factory=dict)  # by device
    home: dict[str, str] = field(default_factory=dict)  # of a lane: its first device
    steps: int = 0
    batches: int = 0

    def of(self, span: Span) -> Iterator[tuple[int, int]]:
        """Where a span shows: on its lane's thread of each device, a sync on all actors' there."""
        for device in span.devices:
            lanes = self.actors.get(device) if span.kind == "sync" else None
            for lane in lanes or (span.lane,):
                yield self.devices[device], self.threads[device, lane]

    def first(self, lane: str) -> tuple[int, int]:
        device = self.home[lane]
        return self.devices[device], self.threads[device, lane]


def tracks_of(folder: Path) -> Tracks:
    """A first reading of the run: who is in it."""
    devices: dict[str, None] = {}
    lanes: dict[tuple[str, str], int] = {}
    tracks = Tracks()
    for record in each_step(folder):
        devices.update(dict.fromkeys(record.busy_s))
    synced: dict[tuple[str, str], None] = {}
    for span in each_span(folder):
        devices.update(dict.fromkeys(span.devices))
        for device in span.devices[:1]:
            tracks.home.setdefault(span.lane, device)
        places = [(device, span.lane) for device in span.devices]
        if span.kind == "sync":
            synced.update(dict.fromkeys(places))
        else:
            lanes.update(dict.fromkeys(places, _KINDS.get(span.kind, len(_KINDS))))
    for device, lane in sorted(lanes, key=lambda at: (natural(at[0]), lanes[at], natural(at[1]))):
        tracks.threads[device, lane] = 0
        if lanes[device, lane] == _KINDS["decode"]:
            tracks.actors.setdefault(device, []).append(lane)
    for device, lane in synced:
        if device not in tracks.actors:  # nothing was ever decoded there
            tracks.threads.setdefault((device, lane), 0)
    return _numbered(tracks, sorted(devices, key=natural))


def _numbered(tracks: Tracks, devices: list[str]) -> Tracks:
    numbers = count(STEPS_PID + 1)
    tracks.devices = {device: next(numbers) for device in devices}
    tracks.steps, tracks.batches = next(numbers), next(numbers)
    tracks.threads = {at: next(numbers) for at in tracks.threads}
    return tracks


def no_spans(folder: Path, header: Header) -> str:
    """What is said where a run has no spans."""
    names = f"{header.scenario.get('name')} --schedule {header.schedule.get('name')}"
    return (
        f"{folder} has no spans.jsonl, which a timeline is made of: simulate it again with --spans "
        f"into another folder, such as: oppo run {names}{options(header.sets)} "
        f"--seed {header.seed} --steps {header.steps} --spans --out {folder}-spans"
    )


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """gpu2 before gpu10."""
    return tuple(
        [(int(part or 0), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]
    )

"""Real and simulated timelines side by side, in one file for ui.perfetto.dev."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from oppo_sim.analysis.trace import Event, events_of
from oppo_sim.runs import write_whole

APART = 10_000_000  # ids of one run to those of the next; a run has far fewer
ARROWS = 10_000_000


def write_side_by_side(runs: Sequence[tuple[str, Path]], out: Path) -> None:
    """Each run folder under its label; all begin at 0. Raises RunError."""
    events = [
        event
        for place, (label, folder) in enumerate(runs)
        for event in _moved(events_of(folder), place, label)
    ]
    write_whole(out, json.dumps({"traceEvents": events}, separators=(",", ":")) + "\n")


def _moved(events: Iterator[Event], place: int, label: str) -> Iterator[Event]:
    """In processes and threads of its own."""
    for event in events:
        moved = {**event, "pid": event["pid"] + place * APART}
        if "tid" in event:
            moved["tid"] = event["tid"] + place * APART
        if "id" in event:
            moved["id"] = event["id"] + place * ARROWS
        if event["name"] == "process_name":
            moved["args"] = {"name": f"{label}: {event['args']['name']}"}
        if event["name"] == "process_sort_index":
            moved["args"] = {"sort_index": event["args"]["sort_index"] + place * APART}
        yield moved

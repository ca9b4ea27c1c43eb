"""A run folder as a Chrome trace: a timeline for ui.perfetto.dev, written line by line.

A process per device with a thread per lane on it, and one process for the PPO steps: their stages,
the milestones of their batches, counters. An arrow goes from each decode span to each score that
reads what was decoded in it. Times are whole microseconds, so that what touches does not overlap.
Thread ids are unique over the whole trace and differ from process ids, as the trace processor
wants it; a flow's ends lie inside its slices, 1 us before the hand-over and at the score's start.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from oppo_sim.analysis.metrics import STAGES, exposed
from oppo_sim.analysis.tracks import STEPS_PID, Tracks, no_spans, tracks_of
from oppo_sim.records import Span, StepRecord
from oppo_sim.runs import TORCH, Header, RunError, each_span, each_step, read_header

Event = dict[str, Any]
TORCH_PID = 1_000_000  # and on: beyond every device's and the threads'


@dataclass(slots=True)
class Written:
    """What a trace has in it."""

    out: Path
    steps: int = 0
    spans: int = 0
    arrows: int = 0
    reached: int = 0  # the last step of which there is a span


def write_trace(
    folder: Path, out: Path, progress: Callable[[int, int], None] | None = None
) -> Written:
    """Write the trace of a run folder to `out`, completely or not at all. Raises RunError.

    `progress` is told the steps that are read, and how many there are.
    """
    if out.suffix.lower() != ".json":
        raise RunError(f"--out {out}: a trace is a .json file")
    if out.name in ("run.json", TORCH):
        raise RunError(f"--out {out}: that is the name of a part of a run; choose another")
    header = read_header(folder)
    written = Written(out)
    if next(each_step(folder), None) is None:
        raise RunError(f"{folder} has no steps yet: run it again with --resume")
    tracks = tracks_of(folder)
    if not tracks.home:
        raise RunError(no_spans(folder, header))
    part = out.with_name(f".{out.name}.part")
    try:
        try:
            with part.open("w", encoding="utf-8", newline="\n") as file:
                separator, told = '{"traceEvents":[\n', 0
                for event in _events(folder, header, tracks, written):
                    file.write(separator + json.dumps(event, separators=(",", ":")))
                    separator = ",\n"
                    if progress is not None and written.reached != told:
                        told = written.reached
                        progress(told, header.steps)
                file.write('\n],"otherData":' + json.dumps(_about(header)) + "}\n")
            part.replace(out)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise RunError(f"cannot write {out}: {error.strerror}") from None
    return written


def events_of(folder: Path) -> Iterator[Event]:
    """A run's events as a trace has them. Raises RunError."""
    header, tracks = read_header(folder), tracks_of(folder)
    if not tracks.home:
        raise RunError(no_spans(folder, header))
    return _events(folder, header, tracks, Written(folder))


def _events(folder: Path, header: Header, tracks: Tracks, written: Written) -> Iterator[Event]:
    yield from _names(header, tracks)
    trained = 0
    for record in each_step(folder):
        yield from _step(record, tracks)
        yield from _counters(record, record.admitted - record.dropped - trained)
        trained += len(record.trained)
        written.steps += 1
    for span in each_span(folder):
        yield from _slices(span, tracks)
        for lane, at_s in span.reads:
            yield from _arrow(written.arrows, lane, at_s, span, tracks)
            written.arrows += 1
        written.spans += 1
        written.reached = max(written.reached, span.step)
    yield from _torch(folder)


def _torch(folder: Path) -> Iterator[Event]:
    """What torch.profiler saw of one step, in processes of its own."""
    file = folder / TORCH
    if not file.exists():
        return
    try:
        events = json.loads(file.read_bytes())["traceEvents"]
        pids = {pid: TORCH_PID + n for n, pid in enumerate(sorted({e["pid"] for e in events}))}
        for event in events:
            yield {**event, "pid": pids[event["pid"]]}
        for pid in pids.values():
            yield _meta("process_name", pid, pid, {"name": "torch.profiler"})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise RunError(f"{file}: not what torch.profiler saw ({error}); delete it") from None


def _names(header: Header, tracks: Tracks) -> Iterator[Event]:
    about = _about(header)
    title = f"PPO steps, simulated: {about['scenario']}, {about['schedule']}, seed {header.seed}"
    if header.role != "simulated":
        title = title.replace("simulated", header.role)
    for place, (name, pid) in enumerate([(title, STEPS_PID), *tracks.devices.items()]):
        yield _meta("process_name", pid, pid, {"name": name})
        yield _meta("process_sort_index", pid, pid, {"sort_index": place})
    threads = {("", "steps"): tracks.steps, ("", "batches"): tracks.batches, **tracks.threads}
    for place, ((device, lane), tid) in enumerate(threads.items()):
        pid = tracks.devices[device] if device else STEPS_PID
        yield _meta("thread_name", pid, tid, {"name": lane})
        yield _meta("thread_sort_index", pid, tid, {"sort_index": place})


def _step(record: StepRecord, tracks: Tracks) -> Iterator[Event]:
    start, end = _us(record.start_s), _us(record.end_s)
    args = {
        "step": record.step,
        "rollouts": len(record.trained),
        "tokens": sum(record.tokens),
        "overcommit": record.overcommit,
        "chunk_tokens": record.chunk_tokens,
        "stalest": max(record.staleness),
        "carried_tokens": record.carried_tokens,
        "wasted_tokens": record.wasted_tokens,
        "mean_reward": record.reward,
    }
    at = STEPS_PID, tracks.steps
    yield _slice(f"step {record.step}", "step", start, end, at, args)
    since = start
    for stage, until_s in zip(STAGES, accumulate(exposed(record)), strict=True):
        until = end if stage == STAGES[-1] else min(end, _us(record.start_s + until_s))
        if until > since:
            yield _slice(stage, "stage", since, until, at, {"step": record.step})
        since = max(since, until)
    milestones = (
        ("taken", record.taken_s),
        ("scored", record.scored_s),
        ("trained", record.train_end_s),
    )
    place = {"pid": STEPS_PID, "tid": tracks.batches, "args": {"step": record.step}}
    for name, at_s in milestones:
        yield {"ph": "i", "s": "t", "name": name, "cat": "milestone", "ts": _us(at_s), **place}


def _counters(record: StepRecord, in_flight: int) -> Iterator[Event]:
    """What held during the step, at its start; rollouts in flight are all not trained before it."""
    values = {
        "in flight": ("rollouts", in_flight),
        "D (overcommit)": ("rollouts", record.overcommit),
        "chunk (0: whole responses)": ("tokens", record.chunk_tokens or 0),
        "KV peak of a lane": ("tokens", record.kv_peak_tokens),
    }
    at = {"ts": _us(record.start_s), "pid": STEPS_PID}
    for name, (unit, value) in values.items():
        yield {"ph": "C", "name": name, **at, "args": {unit: value}}


def _slices(span: Span, tracks: Tracks) -> Iterator[Event]:
    start, end = _us(span.start_s), _us(span.end_s)
    args = {"step": span.step, "rollouts": span.rollouts, "tokens": span.tokens}
    for at in tracks.of(span):
        yield _slice(span.kind, span.kind, start, end, at, args)


def _arrow(number: int, lane: str, at_s: float, score: Span, tracks: Tracks) -> Iterator[Event]:
    if lane not in tracks.home:
        raise RunError(f"spans.jsonl: a score reads lane {lane}, which never worked")
    same = {"name": "chunk", "cat": "chunk", "id": number}
    pid, tid = tracks.first(lane)
    yield {"ph": "s", **same, "ts": _us(at_s) - 1, "pid": pid, "tid": tid}
    pid, tid = tracks.first(score.lane)
    yield {"ph": "f", "bp": "e", **same, "ts": _us(score.start_s), "pid": pid, "tid": tid}


def _about(header: Header) -> Mapping[str, Any]:
    return {
        "role": header.role,
        "scenario": header.called,
        "schedule": str(header.schedule.get("name")),
        "seed": header.seed,
    }


def _slice(
    name: str, category: str, start: int, end: int, at: tuple[int, int], args: Event
) -> Event:
    pid, tid = at
    place = {"ts": start, "dur": end - start, "pid": pid, "tid": tid}
    return {"ph": "X", "name": name, "cat": category, **place, "args": args}


def _meta(name: str, pid: int, tid: int, args: Event) -> Event:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args}


def _us(seconds: float) -> int:
    return round(seconds * 1e6)

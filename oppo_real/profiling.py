"""Torch's own spans of one step, on the run's clock, beside the run's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

from torch.profiler import ProfilerActivity, profile, record_function

from oppo_real.machine.messages import Clock
from oppo_sim.runs import TORCH, write_whole

_MARK = "the run's clock"


class StepProfiler(AbstractContextManager["StepProfiler"]):
    """Records step `step` in all threads, and writes torch.json into the run's folder.

    `begin(step)` is told of each step that begins. A recorded step is slower than the others; what
    was recorded is written when the run ends, so that the next step is not.
    """

    def __init__(self, out: Path, step: int | None, clock: Clock) -> None:
        self._out, self._step, self._clock = out, step, clock
        self._profile: Any = None
        self._is_recording = False
        self._marked_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._stop()
        if self._profile is not None:
            self._write()

    def begin(self, step: int) -> None:
        self._stop()
        if step == self._step:
            self._profile, self._is_recording = _profiler(), True
            self._profile.start()
            with record_function(_MARK):
                self._marked_s = self._clock()

    def _stop(self) -> None:
        if self._is_recording:
            self._profile.stop()
            self._is_recording = False

    def _write(self) -> None:
        with TemporaryDirectory() as folder:
            file = Path(folder) / "torch.json"
            self._profile.export_chrome_trace(str(file))
            events = json.loads(file.read_bytes())["traceEvents"]
        mark = next(event for event in events if event["name"] == _MARK)
        shift_us = self._marked_s * 1e6 - mark["ts"] - mark["dur"] / 2
        kept = [_shifted(event, shift_us) for event in events if _is_kept(event)]
        write_whole(self._out / TORCH, json.dumps({"traceEvents": kept}) + "\n")


def _profiler() -> Any:
    from torch._C._profiler import _ExperimentalConfig

    activities = [ProfilerActivity.CPU]
    if ProfilerActivity.CUDA in _supported():
        activities.append(ProfilerActivity.CUDA)
    everywhere = _ExperimentalConfig(profile_all_threads=True)
    return profile(activities=activities, experimental_config=everywhere)


def _supported() -> set[Any]:
    from torch.profiler import supported_activities

    return set(supported_activities())


def _is_kept(event: Mapping[str, Any]) -> bool:
    """Slices and the names of their threads; their pids are numbers."""
    return event["ph"] in ("X", "M") and isinstance(event.get("pid"), int)


def _shifted(event: Mapping[str, Any], shift_us: float) -> dict[str, Any]:
    return {**event, "ts": round(event["ts"] + shift_us, 3)} if event["ph"] == "X" else {**event}

"""A real run: the engine on a torch machine, its folder, its checkpoints, its curves."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from safetensors import SafetensorError

from oppo_real import checkpoint
from oppo_real.assembly import Machine, machine
from oppo_real.build import real_of
from oppo_real.curves import Curves
from oppo_real.networks.sources import without_bars
from oppo_real.profiling import StepProfiler
from oppo_real.stopping import Stopping
from oppo_sim.config import ConfigError, Scenario
from oppo_sim.config.real import Ppo
from oppo_sim.engine import run
from oppo_sim.engine.spans import SpanRecorder
from oppo_sim.policies import Schedule
from oppo_sim.records import StepRecord
from oppo_sim.runs import Header, RunError, RunJournal, claim_folder, read_header
from oppo_sim.runs.folder import RUN, SPANS, STEPS, TORCH, UPDATES
from oppo_sim.runs.writer import refuse_other

CURVES = "tensorboard"
MODEL = "model"


class Step(NamedTuple):
    record: StepRecord
    stats: Mapping[str, float]  # the update's own, under TRL's names


def train(
    scenario: Scenario,
    schedule: Schedule,
    header: Header,
    out: Path,
    *,
    resume: bool = False,
    profile_step: int | None = None,
    stopping: Stopping | None = None,
) -> Iterator[Step]:
    """Train to `header.steps` and yield each step as it ends; `out` holds all that is left of it.

    run.json, steps.jsonl, spans.jsonl and updates.jsonl, checkpoints/, TensorBoard's event files,
    and model/ when the run is done. `resume` goes on from the last checkpoint: what was written
    after it is cut off and happens anew. `profile_step`: torch.profiler records that step, counted
    from 0, into torch.json. With `stopping`, a signal ends the run after the step in progress, with
    a checkpoint and without model/. Raises ConfigError, ModelError, RunError before the first
    step; EngineError where a lane fails, from which the checkpoints are whole.
    """
    is_new = not out.exists()
    claim_folder(out, resume=resume)
    begun, digest = any(out.glob("[!.]*")), _digest(header)
    if begun:
        refuse_other(out, read_header(out), header)
    saved = checkpoint.latest(out, digest) if begun else None
    with ExitStack() as stack:
        if not begun:
            stack.enter_context(_unclaimed_without_a_step(out, is_new))
        real = real_of(scenario)
        _check_lr(real.ppo, header.steps, read_header(out).steps if saved else None)
        on = stack.enter_context(
            machine(scenario, schedule, seed=header.seed, steps=header.steps, saved=saved)
        )
        done = saved.step if saved else 0
        keep = done if begun else None
        journal = stack.enter_context(RunJournal(out, header, keep_steps=keep))
        curves = stack.enter_context(Curves(out / CURVES, done + 1 if done else None))
        recorder = SpanRecorder(on.backend.lanes(), journal.span)
        state = on.start(schedule, saved, recorder)
        waiting = {r: row.tokens for r, row in state.rollouts.items() if row.finished}
        recorder.resume(state.now_s, waiting)
        if done == header.steps:
            _export(on, out)
            return
        profiler = stack.enter_context(StepProfiler(out, profile_step, on.clock))
        profiler.begin(done)
        if stopping is not None:
            stack.enter_context(stopping)
        for record in run(on.backend, schedule, on.limits, header.steps, recorder, state):
            profiler.begin(record.step + 1)
            stats = on.stats.pop(record.step)
            journal.update(record.step, stats)
            journal.step(record)
            _plot(curves, record, stats)
            done = record.step + 1
            stops = stopping is not None and stopping.is_wanted and done < header.steps
            if stops or done == header.steps or done % real.save_steps == 0:
                checkpoint.save(out, on.checkpoint(digest, state), real.save_total_limit)
            yield Step(record, stats)
            if stops:
                return
        _export(on, out)


@contextmanager
def _unclaimed_without_a_step(out: Path, is_new: bool) -> Iterator[None]:
    """What fails before its first step is over leaves the folder as it was, to be tried again."""
    try:
        yield
    except BaseException:
        steps = out / STEPS
        if not (steps.exists() and steps.stat().st_size):
            for name in (RUN, STEPS, SPANS, UPDATES, TORCH):
                (out / name).unlink(missing_ok=True)
            for name in (CURVES, checkpoint.FOLDER):
                shutil.rmtree(out / name, ignore_errors=True)
            if is_new:
                with suppress(OSError):
                    out.rmdir()
        raise


def _check_lr(ppo: Ppo, steps: int, begun_with: int | None) -> None:
    """A linear learning rate is one line from the first step to the last, resumed or not."""
    total = ppo.lr_total_steps
    if ppo.lr_schedule == "constant":
        return
    if total is not None and steps > total:
        raise ConfigError(
            f"real.ppo.lr_total_steps = {total}: the learning rate would be 0 from step {total} on "
            f"of {steps}; ask for at most {total} steps, or begin anew with a higher one"
        )
    if total is None and begun_with not in (None, steps):
        raise ConfigError(
            f"real.ppo.lr_schedule = 'linear': the learning rate falls to 0 over the {begun_with} "
            f"steps that the run was begun with, and would jump if it went on to {steps}; to train "
            f"in parts, begin anew with real.ppo.lr_total_steps = {steps}, or more"
        )


def _digest(header: Header) -> str:
    """What a run is of; its number of steps may grow."""
    scenario = {k: v for k, v in header.scenario.items() if k not in ("seed", "steps")}
    whole = json.dumps([scenario, header.schedule, header.seed], sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()


def _plot(curves: Curves, record: StepRecord, stats: Mapping[str, float]) -> None:
    """TRL's names for what TRL has, ours beside them."""
    own = {
        "episode": (record.step + 1) * len(record.trained),
        "time/step_s": record.seconds,
        "time/score_s": record.score_s,
        "time/hidden_score_s": record.hidden_score_s,
        "schedule/overcommit": record.overcommit,
        "schedule/chunk_tokens": record.chunk_tokens or 0,
        "schedule/carried": record.carried,
        "schedule/mean_staleness": sum(record.staleness) / len(record.staleness),
        "response/mean_tokens": sum(record.tokens) / len(record.tokens),
    }
    curves.step(record.step + 1, {**stats, **own})


def _export(on: Machine, out: Path) -> None:
    """The trained actor as `from_pretrained` takes it."""
    try:
        with without_bars():
            on.models.actor.save_pretrained(out / MODEL)
        if on.models.tokenizer is not None:
            on.models.tokenizer.save_pretrained(out / MODEL)
    except (OSError, SafetensorError) as error:
        raise RunError(f"cannot write {out / MODEL}: {error}; --resume writes it again") from None

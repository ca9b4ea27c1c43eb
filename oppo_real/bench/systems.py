"""The systems that `oppo bench --suite real` compares, each in a process of its own.

A process builds its system, then runs as many steps as it is told to and says how long each took,
so that systems can take turns on one machine and disturb each other by nothing but their weights.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import torch

from oppo_real.assembly import machine
from oppo_real.bench.task import EOS, PAD, Task
from oppo_real.machine.memory import keep_freed
from oppo_real.networks.lengths import force_lengths
from oppo_real.networks.loading import load_models
from oppo_real.prompts import Prompts, read_prompts
from oppo_sim.engine import run
from oppo_sim.records import StepRecord
from oppo_sim.workload.loads import workload


@dataclass(frozen=True)
class System:
    """A schedule with a place for its lanes; schedule None: TRL's own trainer."""

    schedule: str | None
    real: Mapping[str, Any] = field(default_factory=dict)


class Timed(NamedTuple):
    """One step; seconds. `rollout_s` is generation and what scoring adds to it."""

    step_s: float
    generate_s: float
    score_s: float  # exposed
    train_s: float
    tokens: int  # trained
    stale_tokens: int
    cpu_s: float  # of the system's process, all threads

    @property
    def rollout_s(self) -> float:
        return self.generate_s + self.score_s

    @property
    def sync_s(self) -> float:
        """And whatever else is neither of the three."""
        return self.step_s - self.rollout_s - self.train_s


class Turns:
    """Waits for a turn of n steps, and answers with how long they took; EOFError at the end."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._left = 0
        self._timed: list[Timed] = []

    def wait(self) -> None:
        if not self._left:
            self._left = self._pipe.recv()

    def tell(self, timed: Timed) -> None:
        self._timed.append(timed)
        self._left -= 1
        if not self._left:
            self._pipe.send(self._timed)
            self._timed = []


def serve(
    pipe: Connection, system: System, task: Task, folder: Path, seed: int, steps: int
) -> None:
    """A process's main function: `steps` steps at most, by turns."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # TRL prints; stdout is the command's
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    keep_freed()  # TRL as well
    try:
        from transformers.utils import logging

        logging.set_verbosity_error()
        (_trl if system.schedule is None else _ours)(Turns(pipe), system, task, folder, seed, steps)
    except EOFError:
        return
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")


def _ours(turns: Turns, system: System, task: Task, folder: Path, seed: int, steps: int) -> None:
    scenario = task.scenario(folder, system.real)
    schedule = scenario.schedule(system.schedule)
    with machine(scenario, schedule, seed=seed, steps=steps) as on:
        records = run(on.backend, schedule, on.limits, steps)
        gc.collect()
        gc.freeze()
        while True:
            turns.wait()
            start_s, cpu_s = on.clock(), time.process_time()
            record = next(records, None)
            if record is None:
                return
            turns.tell(_timed(record, start_s, time.process_time() - cpu_s))


def _timed(record: StepRecord, start_s: float, cpu_s: float) -> Timed:
    """`start_s`: the record's own would count the wait for this turn."""
    return Timed(
        step_s=record.end_s - start_s,
        generate_s=record.taken_s - start_s,
        score_s=record.scored_s - record.taken_s,
        train_s=record.train_end_s - record.train_start_s,
        tokens=sum(record.tokens),
        stale_tokens=record.stale_tokens,
        cpu_s=cpu_s,
    )


def _trl(turns: Turns, system: System, task: Task, folder: Path, seed: int, steps: int) -> None:
    """TRL 1.12's PPOTrainer as it is. Forward hooks read the clock between its stages."""
    from oppo_real.trl import ppo_module

    module = ppo_module()
    torch.set_num_threads(task.threads)
    scenario = task.scenario(folder, system.real)
    assert scenario.real is not None
    models = load_models(scenario.real, folder, seed)
    prompts = Prompts(read_prompts(folder / "prompts.jsonl", None, models.vocabulary), seed=seed)
    length_of = workload(scenario, seed).response_tokens
    count = task.batch * steps
    lengths = {prompts(rollout): length_of(rollout) for rollout in range(count)}
    for model in (models.actor, models.reference):
        assert model is not None
        force_lengths(model, lengths, (EOS, PAD))
    watch = _watch(turns, task, list(lengths.values()))
    reference: Any = models.reference
    reward: Any = models.reward
    reference.register_forward_pre_hook(lambda *_: watch.mark("generated"))
    reward.base_model.register_forward_pre_hook(lambda *_: watch.mark("scoring"))
    reward.score.register_forward_hook(lambda *_: watch.mark("scored"))
    trainer = _trainer(module, models, task, folder, [*lengths], watch)
    gc.collect()
    gc.freeze()
    trainer.train()


def _trainer(
    module: Any, models: Any, task: Task, folder: Path, prompts: list[tuple[int, ...]], watch: Any
) -> Any:
    """Its batches are ours: the dataset's rows in order, whatever TRL's sampler picks."""
    from datasets import Dataset

    batch = task.batch
    batches = iter([prompts[at : at + batch] for at in range(0, len(prompts), batch)])
    args = module.PPOConfig(
        output_dir=str(folder / "trl"),
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to="none",
        disable_tqdm=True,
        save_strategy="no",
        num_sample_generations=0,
        per_device_train_batch_size=task.micro_batch,
        gradient_accumulation_steps=batch // task.micro_batch,
        local_rollout_forward_batch_size=batch,
        num_ppo_epochs=1,
        total_episodes=len(prompts),
        response_length=task.cap_tokens,
        stop_token="eos",
        temperature=1.0,
    )
    return module.PPOTrainer(
        args=args,
        processing_class=_tokenizer(task.vocabulary),
        model=models.actor,
        ref_model=models.reference,
        reward_model=models.reward,
        value_model=models.critic,
        train_dataset=Dataset.from_dict({"input_ids": [list(prompt) for prompt in prompts]}),
        data_collator=lambda _: {"input_ids": torch.tensor(next(batches))},
        callbacks=[watch],
    )


def _tokenizer(vocabulary: int) -> Any:
    """TRL wants one; all that is asked of it are the pad and the end."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    words = {f"w{number}": number for number in range(vocabulary)}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, unk_token="w2")),
        pad_token=f"w{PAD}",
        eos_token=f"w{EOS}",
        unk_token="w2",
        padding_side="left",
    )


def _watch(turns: Turns, task: Task, lengths: list[int]) -> Any:
    from transformers import TrainerCallback

    class Watch(TrainerCallback):
        """The stages of TRL's steps; the first forward of the reference ends the generation."""

        def __init__(self) -> None:
            self._start_s = self._cpu_s = 0.0
            self._at_s: dict[str, float] = {}
            self._step = 0

        def mark(self, what: str) -> None:
            self._at_s.setdefault(what, time.perf_counter() - self._start_s)

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self._wait()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            at, step_s = self._at_s, time.perf_counter() - self._start_s
            score_s = at["scored"] - at["scoring"]
            mine = lengths[self._step * task.batch :][: task.batch]
            turns.tell(
                Timed(
                    step_s=step_s,
                    generate_s=at["generated"],
                    score_s=score_s,
                    train_s=step_s - at["generated"] - score_s,
                    tokens=sum(min(length, task.cap_tokens) for length in mine),
                    stale_tokens=0,
                    cpu_s=time.process_time() - self._cpu_s,
                )
            )
            self._step += 1
            self._wait()

        def _wait(self) -> None:
            turns.wait()
            self._at_s = {}
            self._start_s, self._cpu_s = time.perf_counter(), time.process_time()

    return Watch()

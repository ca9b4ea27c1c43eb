"""What stands between TRL's trainer and the engine: its prompts, its rewards, its thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

import torch

from oppo_real.machine.lanes import TrainerLane
from oppo_real.machine.messages import News
from oppo_real.networks.scoring import ScoreChunk, Scored, Scorer
from oppo_real.ppo.batch import Batch, check
from oppo_sim.engine.contract import EngineError


class LoadedPrompts:
    """Token ids by rollout, in the order of the trainer's own dataloader, epoch after epoch.

    A pad is no part of a prompt, wherever it stands: TRL's models do not see it either. Each
    rollout asks once; a group's rollouts share a prompt, which is then forgotten.
    """

    def __init__(self, dataloader: Any, pad: int, group: int) -> None:
        self._dataloader, self._pad, self._group = dataloader, pad, group
        self._rows = self._read()
        self._count = 0
        self._prompts: dict[int, tuple[list[int], int]] = {}  # with how many have not asked yet

    def __call__(self, rollout: int) -> Sequence[int]:
        number = rollout // self._group
        while self._count <= number:
            self._prompts[self._count] = next(self._rows), self._group
            self._count += 1
        prompt, asking = self._prompts.pop(number)
        if asking > 1:
            self._prompts[number] = prompt, asking - 1
        return prompt

    def _read(self) -> Iterator[list[int]]:
        """Without accelerate's part of the loader, which would tell TRL's thread of our epochs."""
        epoch = self._dataloader.iteration
        while True:
            self._dataloader.set_epoch(epoch)
            epoch += 1
            for batch in self._dataloader.base_dataloader:
                for row in batch["input_ids"]:
                    yield row[row != self._pad].tolist()


class RewardBeforePad(Scorer):
    """Reads a reward where TRL does: at the last token before the first pad.

    So the latest token of a response is fed with the next chunk, when it is known not to be a pad
    that ends it.
    """

    def __init__(self, reward: Any, pad: int, *, coalesce: bool) -> None:
        super().__init__(reward, coalesce=coalesce)
        self._model, self._pad = reward, pad
        self._held: dict[int, int] = {}  # rollout -> its latest token

    def score(self, chunks: Sequence[ScoreChunk]) -> list[Scored]:
        held: dict[int, int] = {}
        parts = [self._part(chunk, held) for chunk in chunks]
        scored = iter(super().score([part for part in parts if part.tokens]))
        self._held |= held
        return [
            next(scored) if part.tokens else Scored(part.rollout, self._bare(part))
            for part in parts
        ]

    def drop(self, rollouts: Collection[int]) -> None:
        super().drop(rollouts)
        for rollout in rollouts:
            self._held.pop(rollout, None)

    def _part(self, chunk: ScoreChunk, held: dict[int, int]) -> ScoreChunk:
        """What is to be fed now; and what is held back."""
        latest = self._held.pop(chunk.rollout, None)
        before = [] if latest is None or chunk.start == 0 else [latest]
        tokens = [*before, *chunk.tokens]
        if not chunk.last:
            held[chunk.rollout] = tokens.pop()
        elif tokens[-1] == self._pad:
            tokens.pop()
        return chunk._replace(tokens=tokens, start=chunk.start - len(before))

    @torch.inference_mode()
    def _bare(self, part: ScoreChunk) -> float | None:
        """The reward of a response that is nothing but a pad."""
        if not part.last:
            return None
        ids = torch.tensor([list(part.prompt)], device=next(self._model.parameters()).device)
        states = self._model.base_model(input_ids=ids, use_cache=False).last_hidden_state
        return float(self._model.score(states[0, -1]))


class Stopped(RuntimeError):
    """TRL has left its training loop; the engine has nothing to do any more."""


class Live(Iterator[Batch]):
    """Batches as the engine takes them. It runs in a thread of its own, and TRL in the caller's.

    `engine(learner)` runs to its end, with `learner` for its trainer. It is started by the first
    batch that is asked for. While TRL waits for a batch, `policy` is in evaluation mode; when it
    gets one, `synchronise` waits for what the device still does with the policy. As a context
    manager it leaves no thread behind.
    """

    def __init__(
        self, engine: Callable[[Live], None], policy: Any, synchronise: Callable[[], None]
    ) -> None:
        self._policy, self._synchronise = policy, synchronise
        self._offers: SimpleQueue[Batch | None] = SimpleQueue()  # None: there are no more
        self._answers: SimpleQueue[bool] = SimpleQueue()  # trained; False: never will be
        self._is_out = False  # TRL has a batch
        self._is_refused = False
        self._error: BaseException | None = None
        self.is_stopped = False
        self._thread = threading.Thread(
            target=self._run, args=(engine,), name="oppo-engine", daemon=True
        )

    def _run(self, engine: Callable[[Live], None]) -> None:
        try:
            engine(self)
        except BaseException as error:
            self._error = error
        finally:
            self._offers.put(None)

    # the trainer lane's side

    def update(self, batch: Batch, update: int) -> Mapping[str, float]:
        check(batch, update)
        self._offers.put(batch)
        if not self._answers.get():
            self._is_refused = True
            raise Stopped("TRL has ended")
        return {}

    # TRL's side

    def __next__(self) -> Batch:
        with _evaluating(self._policy):
            if self._is_out:
                self._answers.put(True)
                self._is_out = False
            elif self._thread.ident is None:
                self._thread.start()
            batch = self._offers.get()
            self._synchronise()
        if batch is None:
            raise self._error or EngineError("the engine has ended before TRL")
        self._is_out = True
        return batch

    def finish(self) -> None:
        """TRL has ended well: so has the update of the batch that it took last.

        Raises what went wrong in the engine since.
        """
        if self._is_out:
            self._answers.put(True)
            self._is_out = False
        self._answers.put(False)  # should the engine come with another batch
        self._join()
        if self._error is not None and not self._is_refused:
            raise self._error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.is_stopped = True
        self._answers.put(False)
        self._join()

    def _join(self) -> None:
        if self._thread.ident is not None:
            self._thread.join()


class TrlLane(TrainerLane):
    """The trainer's lane. It looks now and then whether TRL still runs, and fails where not."""

    def __init__(self, lane: str, live: Live, *rest: Any) -> None:
        super().__init__(lane, live, *rest)
        self._live = live

    def step(self) -> News | None:
        if self._live.is_stopped:
            raise Stopped("TRL has ended")
        return super().step()


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)

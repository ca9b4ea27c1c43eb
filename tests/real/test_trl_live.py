"""TRL's own trainer driven by the engine: what it trains on, and what ends with it."""

from __future__ import annotations

import ast
import random
import re
import signal
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import TrainerCallback

from oppo_real.errors import ModelError
from oppo_real.networks.decoding import ContinuousBatch, Decoded
from oppo_real.networks.scoring import ScoreChunk
from oppo_real.trl import drive_trl, ppo_module
from oppo_real.trl.hooks import HOOKED
from oppo_real.trl.rollouts import RewardBeforePad
from oppo_sim.engine import EngineError
from oppo_sim.engine.contract import Emitted, Finished
from oppo_sim.policies import CATALOG, Schedule
from oppo_sim.records import StepRecord
from tests.engine.test_two_machines import small
from tests.real import tiny
from tests.real.tiny import PAD, VOCAB
from tests.real.trl_lab import BATCH, Step, Watch, distance, ppo_trainer, prompts, trainer, weights

ROOT = Path(__file__).parents[2]
OPPO = replace(CATALOG["oppo"], overcommit=4, chunk=3)


@contextmanager
def all_as_it_was(trainer: Any) -> Iterator[None]:
    """No thread is left, nor anything of ours in TRL's module or the trainer."""
    threads = set(threading.enumerate())
    functions, dataloader = [getattr(ppo_trainer, name) for name in HOOKED], trainer.dataloader
    yield
    assert set(threading.enumerate()) <= threads
    assert [getattr(ppo_trainer, name) for name in HOOKED] == functions
    assert trainer.dataloader is dataloader
    assert all(other is not dataloader for other in dataloader.gradient_state.dataloader_references)


def driven(
    folder: Path, schedule: str | Schedule, steps: int = 3, options: Any = None, **settings: Any
) -> tuple[Any, list[StepRecord], list[Step]]:
    """A trainer after a run, the run's records, and what TRL trained on in each step."""
    watch = Watch()
    ours = trainer(folder, steps=steps, callbacks=[watch], **settings)
    with all_as_it_was(ours):
        records = drive_trl(ours, schedule, **({"workers": "inline"} | (options or {})))
    assert len(records) == len(watch.steps) == steps
    return ours, records, watch.steps


def rows(step: Step) -> list[list[int]]:
    """What was trained of a step's responses."""
    return [r[~p].tolist() for r, p in zip(step.responses, step.is_padding, strict=True)]


# what is trained


@pytest.mark.parametrize("name", CATALOG)
def test_every_schedule_of_the_catalogue_trains(name: str, tmp_path: Path) -> None:
    ours, records, steps = driven(tmp_path, small(name), missing_eos_penalty=None)
    trained = Counter(rollout for record in records for rollout in record.trained)
    assert len(trained) == 3 * BATCH
    assert set(trained.values()) == {1}
    assert distance(weights(ours), weights(trainer(tmp_path))) > 1e-3
    for record, step in zip(records, steps, strict=True):
        assert step.scores.tolist() == list(record.rewards)
        both = torch.cat((step.queries, step.responses), 1)
        with torch.no_grad():
            whole = ppo_trainer.get_reward(ours.reward_model, both, PAD, step.queries.shape[1])[1]
        assert (whole - step.scores).abs().max() < 2e-5


@pytest.mark.parametrize(
    ("name", "own_actor"),
    [("oppo", False), ("areal", False), ("areal", True), ("pipeline-rl", True)],
)
def test_threads_train_too(name: str, own_actor: bool, tmp_path: Path) -> None:
    options = {"workers": "threads", "own_actor": own_actor}
    _, records, _ = driven(tmp_path, small(name), options=options)
    assert len({rollout for record in records for rollout in record.trained}) == 3 * BATCH


def test_an_actor_of_its_own_gets_the_weights(tmp_path: Path) -> None:
    """Were it behind, its log-probabilities would not be those of the policy that is trained."""
    _, _, steps = driven(tmp_path, "trl", options={"own_actor": True})
    assert all(abs(step.ratio - 1) < 1e-5 for step in steps)


@pytest.mark.parametrize("is_pad_eos", [False, True])
def test_rollouts_are_those_of_the_policy_that_is_trained(is_pad_eos: bool, tmp_path: Path) -> None:
    """TRL's first forward, over its padded queries, finds the log-probabilities that we decoded."""
    ours, records, steps = driven(tmp_path, "trl", is_pad_eos=is_pad_eos)
    pad = ours.processing_class.pad_token_id
    for record, step in zip(records, steps, strict=True):
        assert abs(step.ratio - 1) < 1e-5
        assert record.staleness == (0,) * BATCH
        ends = [int(row == pad) for row in step.responses[~step.is_padding].tolist()]
        assert not sum(ends), "a pad was trained"


def test_the_policy_decodes_in_evaluation_mode_and_is_trained_in_trls(tmp_path: Path) -> None:
    modes: dict[str, set[bool]] = {"decoding": set(), "updated": set()}

    class Look(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            modes["updated"].add(ours.policy_model.training)

    def listen(entry: object) -> None:
        if isinstance(entry, Emitted | Finished):
            modes["decoding"].add(ours.policy_model.training)

    ours = trainer(tmp_path, steps=2, callbacks=[Look()])
    drive_trl(ours, OPPO, workers="inline", listen=listen)
    assert modes == {"decoding": {False}, "updated": {True}}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize(("name", "own_actor"), [("oppo", False), ("areal", True)])
def test_lanes_on_streams_of_a_gpu(name: str, own_actor: bool, tmp_path: Path) -> None:
    options = {"workers": "threads", "own_actor": own_actor}
    _, records, _ = driven(tmp_path, small(name), options=options, use_cpu=False)
    assert len({rollout for record in records for rollout in record.trained}) == 3 * BATCH


def test_prompts_come_in_the_order_of_the_trainers_dataloader(tmp_path: Path) -> None:
    _, _, steps = driven(tmp_path, "trl")
    theirs = [batch["input_ids"] for batch in trainer(tmp_path).dataloader]
    for step, queries in zip(steps, theirs, strict=True):
        ours = sorted(row[row != PAD].tolist() for row in step.queries)
        assert ours == sorted(row[row != PAD].tolist() for row in queries)


def test_carried_rollouts_are_trained_once_with_the_logprobs_of_their_decoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: defaultdict[int, list[tuple[int, float]]] = defaultdict(list)
    decode = ContinuousBatch.decode

    def watched(batch: ContinuousBatch) -> Decoded:
        out = decode(batch)
        for rollout, token, logprob in zip(out.rollouts, out.tokens, out.logprobs, strict=True):
            decoded[rollout].append((token, logprob))
        return out

    monkeypatch.setattr(ContinuousBatch, "decode", watched)
    _, records, steps = driven(tmp_path, OPPO, steps=6)
    trained = Counter(rollout for record in records for rollout in record.trained)
    assert set(trained.values()) == {1}
    assert sum(deferrals > 0 for record in records for deferrals in record.deferrals) > 4
    for record, step in zip(records, steps, strict=True):
        for row, rollout in enumerate(record.trained):
            tokens, logprobs = zip(*decoded[rollout], strict=True)
            assert record.tokens[row] == len(tokens)
            kept = ~step.is_padding[row]
            count = int(kept.sum())
            assert count in (len(tokens), len(tokens) - 1)  # without the pad that ended it
            assert step.responses[row, : len(tokens)].tolist() == list(tokens)
            assert step.logprobs[row][kept].tolist() == list(logprobs[:count])
    stale = [step.ratio for record, step in zip(records, steps, strict=True) if record.stale_tokens]
    assert max(abs(ratio - 1) for ratio in stale) > 1e-4, "log-probabilities of the new weights?"


def test_threads_leave_the_weights_that_turns_leave(tmp_path: Path) -> None:
    left = [
        weights(driven(tmp_path, "trl", options={"workers": workers})[0])
        for workers in ("inline", "threads")
    ]
    for name, value in left[0].items():
        assert torch.equal(value, left[1][name]), name


def test_rewards_are_streamed_while_the_batch_decodes(tmp_path: Path) -> None:
    log: list[Any] = []
    driven(tmp_path, OPPO, options={"listen": log.append})
    assert any(isinstance(entry, Emitted) for entry in log)


def test_samples_for_the_log_are_trls_own(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    evaluation = Dataset.from_dict({"input_ids": prompts(4)})
    driven(
        tmp_path,
        OPPO,
        eval_dataset=evaluation,
        num_sample_generations=3,
        per_device_eval_batch_size=4,
    )
    assert capsys.readouterr().out.count("model response") == 3


def test_without_a_stop_token_responses_run_to_their_end(tmp_path: Path) -> None:
    _, _, steps = driven(tmp_path, OPPO, stop_token=None)
    assert any(1 in row[:-1] for step in steps for row in rows(step)), "EOS does not end them"


# the reward


def test_rewards_are_read_where_trl_reads_them() -> None:
    """Before the first pad, in whatever chunks; of a bare pad at the prompt's last token."""
    model, draw = tiny.reward(), random.Random(7)
    scorer = RewardBeforePad(model, PAD, coalesce=True)
    responses = [[PAD], [PAD], [5, PAD], [7]]
    responses += [[draw.randrange(1, VOCAB) for _ in range(draw.randint(1, 20))] for _ in range(20)]
    responses = [row + [PAD] * (place % 2) for place, row in enumerate(responses) if PAD not in row]
    responses += [[PAD], [PAD]]
    starts = [[draw.randrange(3, VOCAB) for _ in range(draw.randint(1, 4))] for _ in responses]
    starts[-1] = [9]
    told = [0] * len(responses)
    rewards: dict[int, float] = {}
    while len(rewards) < len(responses):
        chunks = []
        for row, response in enumerate(responses):
            if row not in rewards and draw.random() < 0.6:
                end = min(told[row] + draw.randint(1, 5), len(response))
                last = end == len(response)
                part = response[told[row] : end]
                chunks.append(ScoreChunk(row, starts[row], part, told[row], last))
                told[row] = end
        rewards |= {s.rollout: s.reward for s in scorer.score(chunks) if s.reward is not None}
    for row, (prompt, response) in enumerate(zip(starts, responses, strict=True)):
        ids = torch.tensor([[*prompt, *response]])
        with torch.no_grad():
            _, expected, _ = ppo_trainer.get_reward(model, ids, PAD, len(prompt))
        assert rewards[row] == pytest.approx(expected.item(), abs=2e-5), (prompt, response)


# what goes wrong


class Fails(TrainerCallback):
    def __init__(self, error: BaseException) -> None:
        self._error = error

    def on_step_end(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
        if state.global_step == 2:
            raise self._error


@pytest.mark.parametrize("workers", ["inline", "threads"])
@pytest.mark.parametrize("error", [KeyError("mine"), KeyboardInterrupt()], ids=repr)
def test_an_error_of_trls_ends_the_engine(
    workers: Any, error: BaseException, tmp_path: Path
) -> None:
    ours = trainer(tmp_path, callbacks=[Fails(error)])
    with all_as_it_was(ours), pytest.raises(type(error)):
        drive_trl(ours, OPPO, workers=workers)
    assert ours.model.training, "as TRL left it"


@pytest.mark.parametrize("workers", ["inline", "threads"])
def test_a_nan_reward_names_its_rollout(workers: Any, tmp_path: Path) -> None:
    reward = tiny.reward()
    with torch.no_grad():
        reward.score.weight.fill_(float("nan"))
    ours = trainer(tmp_path, reward_model=reward)
    before = weights(ours)
    with (
        all_as_it_was(ours),
        pytest.raises(
            EngineError, match=r"Score failed on lane scorer.*rollout \d+: its reward is nan"
        ),
    ):
        drive_trl(ours, OPPO, workers=workers)
    assert not distance(weights(ours), before), "nothing was trained"


@pytest.mark.parametrize("workers", ["inline", "threads"])
def test_a_prompt_beyond_the_context_names_its_rollout(workers: Any, tmp_path: Path) -> None:
    ours = trainer(tmp_path, prompts=[*prompts(BATCH - 1), [5] * 250])
    with all_as_it_was(ours), pytest.raises(EngineError, match=r"rollout \d+: a prompt of 250"):
        drive_trl(ours, "trl", workers=workers)


@pytest.mark.parametrize("workers", ["inline", "threads"])
def test_ctrl_c_while_trl_waits_for_a_batch(workers: Any, tmp_path: Path) -> None:
    pressed: list[object] = []

    def press(entry: object) -> None:
        if isinstance(entry, Emitted) and not pressed:
            pressed.append(entry)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    ours = trainer(tmp_path)
    with all_as_it_was(ours), pytest.raises(KeyboardInterrupt):
        drive_trl(ours, OPPO, workers=workers, listen=press)


def test_rollouts_that_trl_does_not_ask_for_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A train() that computes its own scores would train on something else than is recorded."""
    ours = trainer(tmp_path)
    own = ours.reward_model
    monkeypatch.setattr(ours, "train", lambda: _train_with(ours, own))
    with all_as_it_was(ours), pytest.raises(EngineError, match="get_reward for 0 rows of a batch"):
        drive_trl(ours, "trl", workers="inline")


def _train_with(ours: Any, reward: Any) -> None:
    ours.reward_model = tiny.reward()
    try:
        type(ours).train(ours)
    finally:
        ours.reward_model = reward


def test_what_cannot_be_driven_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="trainer is of object: must be TRL's PPOTrainer"):
        drive_trl(object(), "trl")
    with pytest.raises(ValueError, match="did you mean 'oppo'"):
        drive_trl(trainer(tmp_path), "opo")
    with pytest.raises(ModelError, match="train_dataset has 5 prompts: must have a batch of 8"):
        drive_trl(trainer(tmp_path, prompts=prompts(5)), "trl")
    ours = trainer(tmp_path)
    ours.args.world_size = 2
    with pytest.raises(ModelError, match="2 processes: must be one"):
        drive_trl(ours, "trl")
    ours = trainer(tmp_path)
    ours.dataloader = ours.eval_dataloader = [1]
    with pytest.raises(ModelError, match="dataloader is a list: must be the one"):
        drive_trl(ours, "trl")
    ours = trainer(tmp_path)
    ours.policy_model.config.layer_types = ["full_attention", "sliding_attention"]
    ours.policy_model.config.sliding_window = 24
    with pytest.raises(ModelError, match="policy_model: its layers see 24 tokens back"):
        drive_trl(ours, "trl")
    ours = trainer(tmp_path)
    ours.value_model = ours.reward_model
    with pytest.raises(ModelError, match="value_model and reward_model are one object"):
        drive_trl(ours, "trl")


def test_another_trl_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ppo_module() is ppo_trainer
    with monkeypatch.context() as patch:
        patch.delattr(ppo_trainer, "get_reward")
        with pytest.raises(ModelError, match="does not call get_reward of its module"):
            ppo_module()
    with monkeypatch.context() as patch:
        patch.setattr(ppo_trainer.PPOTrainer, "train", lambda self: None)
        with pytest.raises(ModelError, match="batch_generation, selective_log_softmax, get_reward"):
            ppo_module()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "trl.experimental.ppo", None)
        with pytest.raises(ModelError, match=r"trl 1\.12\.\d has no trl\.experimental\.ppo"):
            ppo_module()


def test_trl_is_imported_where_it_is_driven_and_nowhere_else() -> None:
    for file in (ROOT / "oppo_real").glob("*.py"):
        tree = ast.parse(file.read_text())
        found = [
            node
            for node in ast.walk(tree)
            if (isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "trl")
            or (isinstance(node, ast.Import) and any(n.name.startswith("trl") for n in node.names))
        ]
        assert bool(found) == (file.name == "trl.py"), file
        assert not set(found) & set(tree.body), "not even there before it is called"


def test_the_readmes_lines_run(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```diff\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    lines = [line[1:] for line in shown.splitlines() if line.startswith("+")]
    assert len(lines) >= 2
    ours = trainer(tmp_path, steps=2)
    names: dict[str, Any] = {"trainer": ours}
    exec("\n".join(lines), names)
    assert len(names["records"]) == 2

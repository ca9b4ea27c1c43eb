"""Checkpoints: weights, optimiser, engine, carried rollouts; whole or not there, and never pickled.

checkpoints/step-00000010/
  weights.safetensors    actor.* and critic.*
  optimiser.safetensors  its tensors; its structure is in state.json
  caches.safetensors     KV caches of paused rollouts, by lane and rollout
  state.json             the engine's state, the rollouts with tokens, log-probabilities, versions
  sums.json              the others' SHA-256: a bit that flipped is not trained on

There is no random state to save: every draw is a function of the seed and of what is drawn for.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from oppo_real.machine.store import Row
from oppo_sim.runs import RunError

VERSION = 2
FOLDER = "checkpoints"
SUMS = "sums.json"
Caches = Mapping[str, Mapping[int, Mapping[str, Tensor]]]  # lane -> rollout -> name -> tensor


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A run between two steps. Tensors are on the CPU."""

    run: str  # what the run is of, as a digest: others' checkpoints are refused
    step: int  # of these, all are done
    weights: Mapping[str, Tensor]
    optimiser: Mapping[str, Any]
    engine: Mapping[str, Any]  # `oppo_sim.engine.snapshot`
    rows: Mapping[int, Row]
    caches: Caches


def weights_of(**models: nn.Module) -> dict[str, Tensor]:
    """The parameters of some models, by the model's name and their own; tied ones once."""
    return {
        f"{model}.{name}": parameter.detach()
        for model, module in models.items()
        for name, parameter in module.named_parameters()
    }


@torch.no_grad()
def put_weights(weights: Mapping[str, Tensor], **models: nn.Module) -> None:
    """Load what `weights_of` gave. Raises RunError where the models are others."""
    there = weights_of(**models)
    odd = sorted(set(there) ^ set(weights)) or [
        name for name, tensor in there.items() if tensor.shape != weights[name].shape
    ]
    if odd:
        raise RunError(f"the checkpoint is of other models: {odd[0]} differs; use the same [real]")
    for name, tensor in there.items():
        tensor.copy_(weights[name])


def save(run: Path, checkpoint: Checkpoint, keep: int) -> Path:
    """Write it beside the run's others, of which the `keep` latest stay."""
    folder = run / FOLDER / f"step-{checkpoint.step:08d}"
    part = folder.with_name(f".{folder.name}.part")
    optimiser: dict[str, Tensor] = {}
    state = {
        "version": VERSION,
        "run": checkpoint.run,
        "step": checkpoint.step,
        "optimiser": _plain(checkpoint.optimiser, "", optimiser),
        "engine": checkpoint.engine,
        "rows": {str(rollout): asdict(row) for rollout, row in checkpoint.rows.items()},
    }
    caches = {
        f"{lane}/{rollout}/{name}": tensor
        for lane, rollouts in checkpoint.caches.items()
        for rollout, tensors in rollouts.items()
        for name, tensor in tensors.items()
    }
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        for name, tensors in (
            ("weights", checkpoint.weights),
            ("optimiser", optimiser),
            ("caches", caches),
        ):
            whole = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
            save_file(whole, part / f"{name}.safetensors")
        (part / "state.json").write_text(json.dumps(state, allow_nan=False), encoding="utf-8")
        sums = {file.name: _sum(file) for file in part.iterdir()}
        (part / SUMS).write_text(json.dumps(sums), encoding="utf-8")
        for file in part.iterdir():
            _sync(file)
        shutil.rmtree(folder, ignore_errors=True)
        part.replace(folder)
        _sync(folder.parent)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(part, ignore_errors=True)
        raise RunError(
            f"cannot write the checkpoint {folder}: {error}; the ones before it are whole"
        ) from None
    for old in _complete(run)[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
    return folder


def latest(run: Path, digest: str) -> Checkpoint | None:
    """The last whole checkpoint of a run folder.

    RunError where it cannot be read, or is of another run than this digest's.
    """
    folders = _complete(run)
    if not folders:
        return None
    folder = folders[-1]
    try:
        for name, sum_ in json.loads((folder / SUMS).read_bytes()).items():
            if _sum(folder / name) != sum_:
                raise ValueError(f"{name} is not what was written")
        state = json.loads((folder / "state.json").read_bytes())
        if state["version"] != VERSION:
            raise ValueError(f"it is of version {state['version']}, this one reads {VERSION}")
        if state["run"] != digest:
            raise ValueError("it is of another run")
        weights, optimiser, caches = (
            load_file(folder / f"{name}.safetensors") for name in ("weights", "optimiser", "caches")
        )
        kept: dict[str, dict[int, dict[str, Tensor]]] = {}
        for key, tensor in caches.items():
            lane, rollout, name = key.split("/")
            kept.setdefault(lane, {}).setdefault(int(rollout), {})[name] = tensor
        return Checkpoint(
            run=digest,
            step=state["step"],
            weights=weights,
            optimiser=_rebuilt(state["optimiser"], optimiser),
            engine=state["engine"],
            rows={int(rollout): _row(row) for rollout, row in state["rows"].items()},
            caches=kept,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise RunError(
            f"{folder} cannot be used ({_said(error)}): delete that folder to go on from the "
            "checkpoint before"
        ) from None


def _complete(run: Path) -> list[Path]:
    return sorted((run / FOLDER).glob("step-*"))


def _said(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{Path(error.filename).name}: {error.strerror}"
    return str(error)


def _sum(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _row(saved: Mapping[str, Any]) -> Row:
    scored = [(start, end) for start, end in saved["scored"]]
    return Row(**{**saved, "prompt": tuple(saved["prompt"]), "scored": scored})


# a tree of plain values and tensors as JSON beside a file of tensors


def _plain(tree: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    match tree:
        case Tensor():
            tensors[path] = tree
            return {"tensor": path}
        case Mapping():
            pairs = [[key, _plain(value, f"{path}/{key}", tensors)] for key, value in tree.items()]
            return {"pairs": pairs}
        case list() | tuple():
            return [_plain(value, f"{path}/{i}", tensors) for i, value in enumerate(tree)]
        case None | bool() | int() | float() | str():
            return tree
        case _:
            raise TypeError(f"{path}: {type(tree).__name__} is not written into checkpoints")


def _rebuilt(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    match tree:
        case {"tensor": path}:
            return tensors[path]
        case {"pairs": pairs}:
            return {key: _rebuilt(value, tensors) for key, value in pairs}
        case list():
            return [_rebuilt(value, tensors) for value in tree]
        case _:
            return tree

"""Models as a run names them: a folder, a hub name, or a config.json for random weights.

Every model comes in evaluation mode, without dropout (as PPO wants it) and with sdpa attention.
Mistakes are ModelErrors that name the field, its value and the remedy.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from textwrap import shorten
from typing import Any, Literal

import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    PreTrainedConfig,
)

from oppo_real.errors import ModelError
from oppo_real.networks.logprobs import head_of
from oppo_real.networks.scoring import score_head
from oppo_real.networks.sources import FORMS, without_bars

Kind = Literal["actor", "reference", "reward", "critic"]
_DROPOUTS = ("attention_dropout", "hidden_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop")


def load(
    source: str | Path,
    kind: Kind,
    *,
    seed: int = 0,
    dtype: str = "float32",
    device: str | torch.device = "cpu",
    initializer_range: float | None = None,
) -> Any:
    """The causal model (actor, reference) or the scorer of one number (reward, critic) there.

    `seed` and `initializer_range` are those of random weights: all of them for a config.json, else
    only a critic's head where the model has none.
    """
    field = f"real.{kind} = {str(source)!r}"
    config, labels = _config(str(source), field)
    for name in _DROPOUTS:
        if hasattr(config, name):
            setattr(config, name, 0.0)
    scores = kind in ("reward", "critic")
    if scores:
        if labels not in (None, 1):
            raise ModelError(
                f"{field}: num_labels = {labels}, must be 1: a reward is one number; give a model "
                "trained with num_labels=1"
            )
        config.num_labels = 1
    if initializer_range is not None:
        config.initializer_range = initializer_range
    refuse_unsupported(config, field)
    auto = AutoModelForSequenceClassification if scores else AutoModelForCausalLM
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if _is_config(source):
            made = _tried(
                field, auto.from_config, config, attn_implementation="sdpa", dtype=torch.float32
            )
        else:
            made = _pretrained(field, auto, str(source), config, kind)
    try:
        score_head(made) if scores else head_of(made)
    except ValueError as error:
        raise ModelError(f"{field}: {error}") from None
    return made.to(device=device, dtype=getattr(torch, dtype)).eval()


def critic_of(model: nn.Module, seed: int) -> Any:
    """A critic that begins as a copy of this model: a scorer's whole, a causal model's backbone."""
    if hasattr(model, "score"):
        return copy.deepcopy(model)
    causal: Any = model
    config = copy.deepcopy(causal.config)
    config.num_labels = 1
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = AutoModelForSequenceClassification.from_config(
            config, attn_implementation="sdpa", dtype=torch.float32
        )
    critic = made.to(device=causal.device, dtype=causal.dtype).eval()
    critic.base_model.load_state_dict(causal.base_model.state_dict())
    return critic


def context_tokens(model: Any) -> int | None:
    """Tokens of prompt and response that the model can read; None: it names no bound."""
    most = getattr(model.config, "max_position_embeddings", None)
    return None if most is None else int(most)


def refuse_unsupported(config: PreTrainedConfig, field: str) -> None:
    """Caches here hold every token of a decoder; windows are for `refuse_narrow`."""
    if getattr(config, "is_encoder_decoder", False):
        raise ModelError(f"{field}: an encoder-decoder; give a decoder-only model")
    layers = getattr(config, "layer_types", None) or []
    if set(layers) - {"full_attention", "sliding_attention"}:
        kinds = ", ".join(sorted(set(layers)))
        raise ModelError(f"{field}: layers of {kinds}; give a model with full attention only")


def refuse_narrow(config: PreTrainedConfig, field: str, tokens: int) -> None:
    """Every layer must see all `tokens` of prompt and response: what is cached is read whole."""
    layers = getattr(config, "layer_types", None) or []
    window = getattr(config, "sliding_window", None)
    if window is None or (layers and "sliding_attention" not in layers) or window >= tokens:
        return
    raise ModelError(
        f"{field}: its layers see {window} tokens back (sliding_window), and prompt and response "
        f"may have {tokens}: shorten prompts or workload.max_response_tokens, or give a model with "
        "full attention"
    )


def _is_config(source: str | Path) -> bool:
    return Path(source).suffix == ".json"


def _config(source: str, field: str) -> tuple[PreTrainedConfig, int | None]:
    """A model's config, and how many labels it names if it is one that scores."""
    path = Path(source)
    if _is_config(source):
        raw = _json(path, field)
        kind = raw.pop("model_type", None)
        if kind is None:
            raise ModelError(f"{field}: model_type is missing; set it, for example to 'qwen2'")
        labels = raw.get("num_labels") or (len(raw["id2label"]) if "id2label" in raw else None)
        return _tried(field, AutoConfig.for_model, kind, **raw), labels
    if not path.is_dir() and (path.exists() or source.startswith((".", "/", "~"))):
        raise ModelError(f"{field}: no such folder; {FORMS}")
    config = _tried(field, AutoConfig.from_pretrained, source)
    scores = any("SequenceClassification" in name for name in config.architectures or ())
    return config, config.num_labels if scores else None


def _json(path: Path, field: str) -> dict[str, Any]:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{field}: cannot read it ({error.strerror})") from None
    except ValueError as error:
        raise ModelError(f"{field}: not JSON ({error})") from None
    if not isinstance(raw, dict):
        raise ModelError(f"{field}: must be an object, as save_pretrained writes it")
    return raw


def _pretrained(field: str, auto: Any, source: str, config: PreTrainedConfig, kind: Kind) -> Any:
    with without_bars():
        model, info = _tried(
            field,
            auto.from_pretrained,
            source,
            config=config,
            attn_implementation="sdpa",
            output_loading_info=True,
        )
    missing = sorted(info["missing_keys"])
    if kind == "critic":
        missing = [name for name in missing if not name.startswith("score.")]
    if missing:
        what = "no score head" if missing == ["score.weight"] else f"no weights for {missing[0]}"
        raise ModelError(f"{field}: it has {what}; give a model that was saved as a {kind}")
    return model


def _tried(field: str, make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What transformers makes, or its first line of complaint."""
    try:
        return make(*args, **kwargs)
    except Exception as error:
        words = (str(error) or type(error).__name__).strip().splitlines()[0]
        words = shorten(words, 240, placeholder=" ...")  # some list all models there are
        raise ModelError(
            f"{field}: transformers cannot load it ({words}); give a folder of save_pretrained, "
            "the name of a model that has been downloaded, or a config.json"
        ) from error

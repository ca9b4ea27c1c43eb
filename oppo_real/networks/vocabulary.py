"""What token ids mean: tokenizers, the ids that stop a response, and whether two models agree."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from oppo_real.errors import ModelError

_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt")


def load_tokenizer(source: str | Path, field: str = "real.tokenizer") -> Any | None:
    """The tokenizer of a model's source; None where it brings none, as a config.json."""
    path = Path(source)
    if path.is_file() or (path.is_dir() and not any((path / name).exists() for name in _FILES)):
        return None
    try:
        return AutoTokenizer.from_pretrained(str(source))
    except Exception as error:
        words = (str(error) or type(error).__name__).strip().splitlines()[0]
        raise ModelError(
            f"{field} = {str(source)!r}: no tokenizer could be loaded ({words}); give a folder "
            'with one, or set real.tokenizer = "none" to work on token ids'
        ) from error


def check_same_tokens(actor: tuple[Any, Any | None], other: tuple[Any, Any | None]) -> None:
    """Refuse a scorer that reads the actor's token ids as other tokens; (model, tokenizer) each.

    Chunks are streamed as ids, in the middle of words: they cannot be tokenized again.
    """
    check_vocabulary("real.reward", actor[0], other[0])
    if actor[1] is None or other[1] is None:
        return
    ours = actor[0].config.vocab_size
    mine, its = actor[1].get_vocab(), other[1].get_vocab()
    if mine == its:
        return
    strange = {token for token, _ in mine.items() ^ its.items()}
    token = min(strange, key=lambda token: (mine.get(token, ours), token))
    raise ModelError(
        f"real.reward: its tokenizer is not the actor's: {len(strange)} tokens differ, such as "
        f"{token!r}, which is {mine.get(token, 'none')} for the actor and {its.get(token, 'none')}"
        " for the reward model; give a reward model with the actor's tokenizer, or a function on "
        "text"
    )


def check_vocabulary(field: str, actor: Any, other: Any) -> None:
    """Refuse a model that does not know all the ids that the actor may write."""
    ours, theirs = actor.config.vocab_size, other.config.vocab_size
    if theirs < ours:
        raise ModelError(
            f"{field}: its vocabulary has {theirs} ids, the actor's {ours}; give a model with the "
            "actor's tokenizer"
        )


def stop_ids(model: Any, tokenizer: Any | None, given: Sequence[int] | None) -> tuple[int, ...]:
    """The ids that end a response: the user's, else the model's, else the tokenizer's.

    The padding token may be one of them: no length is ever read off padding.
    """
    generation = getattr(model, "generation_config", None)
    found: list[int] = []
    for ids in (
        given,
        getattr(generation, "eos_token_id", None),
        model.config.eos_token_id,
        getattr(tokenizer, "eos_token_id", None),
    ):
        if ids is not None and not found:
            found = [ids] if isinstance(ids, int) else list(ids)
    if not found:
        raise ModelError(
            "real.stop_token_ids: neither the actor nor its tokenizer names an end of sequence; "
            "set it"
        )
    size = model.config.vocab_size
    if wrong := [token for token in found if not 0 <= token < size]:
        raise ModelError(
            f"real.stop_token_ids = {wrong[0]}: not in the actor's vocabulary; must be below {size}"
        )
    return tuple(dict.fromkeys(found))

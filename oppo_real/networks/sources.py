"""Where a model comes from, asked before anything is loaded: a folder, a config.json, the hub."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from huggingface_hub import HfApi, try_to_load_from_cache
from huggingface_hub.errors import (
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)
from huggingface_hub.utils.tqdm import (
    are_progress_bars_disabled,
    disable_progress_bars,
    enable_progress_bars,
)
from transformers.utils import logging

from oppo_real.errors import ModelError

_ON_HUB = re.compile(r"(\w[\w.-]*/)?\w[\w.-]*")
_TELLING = ("config.json", "tokenizer_config.json", "tokenizer.json")  # one of these is cached
ASK_S = 10.0  # transformers asks a hub that it cannot reach for half a minute
FORMS = "give a folder of save_pretrained, a hub name or a config.json"


def place(folder: Path, source: str) -> str:
    """A path beside the scenario's file where there is one, else the name as it stands."""
    path = Path(source).expanduser()
    beside = folder / path
    return str(beside) if beside.exists() else str(path) if source.startswith("~") else source


def check_source(folder: Path, source: str, field: str) -> None:
    """ModelError where there is no such folder, and no such model on the hub or within reach."""
    found = place(folder, source)
    if Path(found).exists() or Path(found).suffix == ".json":
        return
    field = f"{field} = {source!r}"
    if not _ON_HUB.fullmatch(source):
        raise ModelError(f"{field}: no such folder; {FORMS}")
    if any(isinstance(try_to_load_from_cache(source, name), str) for name in _TELLING):
        return
    nowhere = f"{field}: no such folder, here or beside the scenario, and"
    try:
        HfApi().model_info(source, timeout=ASK_S)
    except (RepositoryNotFoundError, HFValidationError):
        raise ModelError(
            f"{nowhere} the hub has no model of that name, or not for you; {FORMS}"
        ) from None
    except HfHubHTTPError:
        return  # the hub is there: what ails it, transformers says
    except OfflineModeIsEnabled:
        raise ModelError(
            f"{nowhere} it has not been downloaded, while HF_HUB_OFFLINE forbids that; {FORMS}"
        ) from None
    except Exception as error:  # of whatever library fetches
        raise ModelError(
            f"{nowhere} the hub cannot be reached ({error}); mend the path, or the network"
        ) from None


@contextmanager
def without_bars() -> Iterator[None]:
    """No bars for weights that are read or written; those of the hub's downloads stay."""
    ours, hubs = logging.is_progress_bar_enabled(), not are_progress_bars_disabled()
    logging.disable_progress_bar()  # the hub's, too
    try:
        if hubs:
            enable_progress_bars()
        yield
    finally:
        if ours:
            logging.enable_progress_bar()
        if not hubs:
            disable_progress_bars()

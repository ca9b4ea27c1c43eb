"""A model that is not there: said before anything is loaded, and without waiting for the hub."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi, constants
from huggingface_hub.errors import RepositoryNotFoundError

from oppo_real.errors import ModelError
from oppo_real.networks import models
from oppo_real.networks.sources import check_source, place
from tests.real import tiny


class NotThere(RepositoryNotFoundError):
    def __init__(self) -> None:
        """Without the answer that the hub gave."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the hub was asked for; it knows nothing."""
    names: list[str] = []

    def model_info(api: HfApi, name: str, **_: Any) -> None:
        names.append(name)
        raise NotThere

    monkeypatch.setattr(HfApi, "model_info", model_info)
    return names


@pytest.mark.parametrize("source", ["./nope", "/nope/nope", "~/nope", "models/mine/nope", "../x"])
def test_what_can_only_be_a_path_is_refused_without_the_hub(
    source: str, asked: list[str], tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=r"real.actor = '.*': no such folder; give a folder"):
        check_source(tmp_path, source, "real.actor")
    assert not asked


def test_what_is_there_is_not_asked_for(
    asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models" / "mine").mkdir(parents=True)
    check_source(tmp_path, "models/mine", "real.actor")
    check_source(tmp_path, str(tmp_path / "models"), "real.actor")
    check_source(tmp_path, "actor.json", "real.actor")
    monkeypatch.setenv("HOME", str(tmp_path))
    check_source(Path(), "~/models/mine", "real.actor")
    assert place(Path(), "~/models/mine") == str(tmp_path / "models" / "mine")
    assert not asked


def test_what_may_be_a_name_of_the_hub_is_asked_for_once(asked: list[str], tmp_path: Path) -> None:
    said = "no such folder, here or beside the scenario, and the hub has no model of that name"
    with pytest.raises(ModelError, match=said):
        check_source(tmp_path, "models/nope", "real.actor")
    assert asked == ["models/nope"]


def test_without_the_hub_both_possibilities_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match=r"no such folder, .* it has not been downloaded, while"):
        check_source(tmp_path, "models/nope", "real.actor")

    def model_info(*_: Any, **__: Any) -> None:
        raise ConnectionError("Name or service not known")

    monkeypatch.setattr(HfApi, "model_info", model_info)
    with pytest.raises(ModelError, match=r"no such folder, .* cannot be reached \(Name or service"):
        check_source(tmp_path, "models/nope", "real.actor")


def test_no_bars_for_weights(tmp_path: Path, capfd: Any) -> None:
    tiny.actor().save_pretrained(tmp_path / "actor")
    capfd.readouterr()
    models.load(tmp_path / "actor", "actor")
    assert "Loading weights" not in capfd.readouterr().err
    assert sys.modules["transformers"].utils.logging.is_progress_bar_enabled()

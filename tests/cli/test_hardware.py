"""`oppo hardware`: cards and models with units and sources, and one's own by path."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest

from oppo_sim.costs import card, card_names, model, model_names
from tests.cli.conftest import Oppo
from tests.costs.test_huggingface import LLAMA


def test_all_are_listed(oppo: Oppo) -> None:
    out = oppo("hardware", "list").out
    for name in (*card_names(), *model_names()):
        assert name in out
    document = json.loads(oppo("hardware", "list", "--json").out)
    assert list(document["cards"]) == card_names()
    assert document["cards"]["H100"]["hbm_bytes_per_s"] == 3.35e12
    assert document["models"]["Qwen2.5-7B"]["params"] == 7_615_616_512


def test_every_number_is_shown_with_unit_and_source(oppo: Oppo) -> None:
    for name in card_names():
        out = oppo("hardware", "show", name).out
        assert max(map(len, out.splitlines())) <= 80
        for key, source in card(name).sources.items():
            assert key in out
            assert source.split()[0][:8] in out
    words = " ".join(oppo("hardware", "show", "A100-80").out.split())
    assert re.search(r"hbm_bytes 80 GiB of memory", words)
    assert re.search(r"hbm_bytes_per_s 2\.039 TB/s", words)
    out = " ".join(oppo("hardware", "show", "Qwen2.5-3B").out.split())
    assert "config.json of Qwen/Qwen2.5-3B" in out
    assert re.search(r"params 3\.086 billion parameters", out)
    document = json.loads(oppo("hardware", "show", "Qwen2.5-3B", "--json").out)
    assert document["sources"] == dict(model("Qwen2.5-3B").sources)


def test_ones_own_card_and_model_run(oppo: Oppo, tmp_path: Path) -> None:
    """By paths relative to the scenario, without code."""
    data = files("oppo_sim") / "data"
    mine = tmp_path / "hardware"
    mine.mkdir()
    text = (data / "hardware/A100-80.toml").read_text(encoding="utf-8")
    (mine / "my_card.toml").write_text(text.replace("2.039e12", "4e12"))
    (mine / "config.json").write_text(json.dumps(LLAMA))
    text = (data / "scenarios/stackexchange-7b.toml").read_text(encoding="utf-8")
    text = text.replace('card = "H200"', 'card = "hardware/my_card.toml"')
    text = re.sub(r'actor = "Qwen2.5-7B"', 'actor = "hardware/config.json"', text)
    file = tmp_path / "mine.toml"
    file.write_text(text.replace("batch = 112", "batch = 16").replace("devices = 8", "devices = 8"))
    ran = oppo("run", file, "--steps", 2, "--set", "cluster.kv_tokens=100000", "--json")
    assert ran.code == 0, ran.err
    shown = oppo("hardware", "show", mine / "my_card.toml").out
    assert "card my_card" in shown
    assert " 4 " in shown
    assert "8.03" in oppo("hardware", "show", mine / "config.json").out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("hardware show H20", "no card or model is called 'H20'; did you mean 'H200'?"),
        ("hardware show", "Missing argument 'NAME|FILE'"),
        ("hardware show none.toml", "none.toml: cannot be read: No such file"),
        ("hardware show none/config.json", "none/config.json: cannot be read: No such file"),
        ("hardware show Qwen/Qwen2.5-7B", "/Qwen2.5-7B: no such file; did you mean 'Qwen2.5-7B'"),
        ("hardware show Qwen/Qwen2.5-3B-Instruct", "did you mean 'Qwen2.5-3B', which is shipped?"),
        ("run stackexchange-7b --set models.actor=Qwen/Qwen2.5-7B", "did you mean 'Qwen2.5-7B', "),
        ("hardware lst", "No such command 'lst'"),
        ("run stackexchange-7b --set cluster.card=none.toml", "cluster.card: none.toml: cannot be"),
        ("run stackexchange-7b --set models.actor=a/b.json", "models.actor: a/b.json: cannot be"),
        ("run stackexchange-7b --set cluster.card=h-200", "did you mean 'H200'? known: A100-40"),
    ],
)
def test_mistakes(refused: Callable[..., str], arguments: str, message: str) -> None:
    assert message in refused(*arguments.split())

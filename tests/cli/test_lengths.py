"""`oppo lengths`: the shipped tables, and fits of files and logs."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from oppo_sim.config import load_scenario
from oppo_sim.simulate import simulate
from oppo_sim.workload import Lognormal, Weibull, shipped
from tests.cli.conftest import Oppo

Refused = Callable[..., str]


def lengths_file(folder: Path, tokens: np.ndarray, name: str = "mine.csv") -> Path:
    path = folder / name
    path.write_text("response_tokens\n" + "".join(f"{t}\n" for t in tokens))
    return path


@pytest.fixture
def cut(tmp_path: Path) -> Path:
    """5,000 lognormal lengths with 3 % of loops, cut at 2,048."""
    rng = np.random.default_rng(0)
    tokens = Lognormal(5.5, 0.4).ppf(rng.random(5000))
    tokens[rng.random(5000) < 0.03] = 2049
    return lengths_file(tmp_path, tokens)


def test_all_tables_are_listed(oppo: Oppo) -> None:
    code, out, _ = oppo("lengths", "list")
    assert code == 0
    assert all(name in out for name in shipped())
    assert max(map(len, out.splitlines())) <= 80
    document = json.loads(oppo("lengths", "list", "--json").out)
    assert set(document) == set(shipped())
    assert document["mathL5_Qwen2.5-3B-Instruct_greedy"]["share_at_cap"] == pytest.approx(57 / 721)
    assert document["gsm8k_reference_train"]["p50"] == 83


def test_a_table_is_shown_with_its_source_and_its_tail(oppo: Oppo) -> None:
    name = "mathL5_Qwen2.5-7B-Instruct_greedy"
    out = " ".join(oppo("lengths", "show", name).out.split())
    assert "WildEval/ZeroEval" in out
    assert "Apache-2.0" in out
    assert "At B = 112, 83% of the decode capacity idles" in out
    document = json.loads(oppo("lengths", "show", name, "--cap", 512, "--json").out)
    assert document["idle_share"] == pytest.approx(0.14, abs=0.01)  # of the samples, at that cap


def test_a_file_is_fitted_and_drawn(oppo: Oppo, cut: Path, tmp_path: Path) -> None:
    """Loops stay apart, and what is written can be used."""
    code, out, _ = oppo("lengths", "fit", cut, "--cap", 2048, "--out", tmp_path / "out")
    assert code == 0
    said = " ".join(out.split())
    assert "lognormal *" in out
    assert "kept apart, as responses that never end" in said
    assert "The cap binds: 2.9% of the responses reach it, 3.2 of a batch" in said
    assert "Overcommitment will help" in said
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {"fit.json", "fit.png", "lengths.csv"}
    assert (tmp_path / "out" / "fit.png").read_bytes().startswith(b"\x89PNG")
    document = json.loads((tmp_path / "out" / "fit.json").read_text())
    law = document["fits"]["lognormal"]
    assert (law["mu"], law["sigma"]) == pytest.approx((5.5, 0.4), rel=0.02)
    assert document["endless"] == pytest.approx(0.03, abs=0.006)
    assert document["share_at_cap"] == document["endless"]
    assert "max_response_tokens = 2048  # where they were cut" in out


def test_the_lines_for_a_scenario_work(oppo: Oppo, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    tokens = Weibull(1.5, 90.0).ppf(rng.random(5000))
    path = lengths_file(tmp_path, tokens)
    document = json.loads(oppo("lengths", "fit", path, "--batch", 8, "--json").out)
    assert document["best"] == "weibull"
    found = tomllib.loads(document["toml"])
    assert found["max_response_tokens"] == tokens.max()
    scenario = load_scenario("tiny", {f"workload.{key}": law for key, law in found.items()})
    assert scenario.workload.lengths.weibull is not None
    assert len(list(simulate(scenario, steps=3))) == 3


def test_a_cap_that_nobody_stated_is_pointed_out(oppo: Oppo, cut: Path) -> None:
    assert "say --cap 2049" in " ".join(oppo("lengths", "fit", cut).out.split())


@pytest.mark.parametrize("cap", [None, 512])
def test_a_training_log_is_fitted(oppo: Oppo, tmp_path: Path, cap: int | None) -> None:
    rng = np.random.default_rng(0)
    rows = ["step,response_length/mean,response_length/max,response_length/clip_ratio"]
    for step in range(40):
        raw = Lognormal(5.2, 0.5).ppf(rng.random(256))
        tokens = raw if cap is None else np.minimum(raw, cap)
        share = 0 if cap is None else np.mean(raw > cap)
        rows.append(f"{step},{tokens.mean()},{tokens.max()},{share}")
    (tmp_path / "verl.csv").write_text("\n".join(rows))
    arguments = ("lengths", "fit", tmp_path / "verl.csv", "--batch", 256)
    document = json.loads(oppo(*arguments, "--json").out)
    assert (document["framework"], document["steps"], document["cap_tokens"]) == ("verl", 40, cap)
    assert document["law"]["sigma"] == pytest.approx(0.5, rel=0.05)
    longest = max(int(row.split(",")[2]) for row in rows[1:])
    assert tomllib.loads(document["toml"])["max_response_tokens"] == (cap or longest)
    code, out, _ = oppo(*arguments, "--out", tmp_path / "out")
    assert code == 0
    assert "In this verl log" in out
    assert (tmp_path / "out" / "fit.png").exists()


def test_seconds_without_lengths_are_said_to_be_that(oppo: Oppo, tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("step,e2e,generate,training\n0,8,6,2\n1,4,3,1\n")
    out = " ".join(oppo("lengths", "fit", tmp_path / "d.csv").out.split())
    assert "holds seconds and no lengths" in out
    assert "generation takes 75% of its 2 steps" in out
    assert json.loads(oppo("lengths", "fit", tmp_path / "d.csv", "--json").out)["kind"] == "times"


def test_mistakes_are_one_line(refused: Refused, cut: Path, tmp_path: Path) -> None:
    assert "did you mean 'gsm8k_reference_test'" in refused("lengths", "show", "gsm8k_reference_te")
    for file in ("my.csv", "logs/my.jsonl", "runs/lengths"):
        said = refused("lengths", "show", file)
        assert said.endswith(f"is read by: oppo lengths fit {file}\n")
        assert "did you mean" not in said
    assert "cut its responses at 4096 tokens" in refused(
        "lengths", "show", "mathL5_Qwen2.5-7B-Instruct_greedy", "--cap", 5000
    )
    assert "cannot be read: No such file" in refused("lengths", "fit", tmp_path / "none.csv")
    assert "every response is as long" in refused("lengths", "fit", cut, "--cap", 2)
    few = lengths_file(tmp_path, np.array([3, 4]), "few.csv")
    assert "few.csv: a law needs at least 3 different" in refused("lengths", "fit", few)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    said = refused("lengths", "fit", cut, "--out", tmp_path / "full")
    assert said.endswith("is not empty: name another folder\n")  # there is no --resume here


def test_alone_it_says_what_there_is(oppo: Oppo) -> None:
    code, out, _ = oppo("lengths")
    assert code == 0
    assert all(command in out for command in ("list", "show", "fit"))

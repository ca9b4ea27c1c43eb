"""A table of one model taken for another: factors by hand, from the sizes of matrices."""

from __future__ import annotations

from pathlib import Path

import pytest

from oppo_sim.calibration.rescaled import rescaled

# a layer of hidden 2, one head, intermediate 4: 16 weights of attention, 6 biases, 24 of the MLP,
# 4 of norms; 2 more of the last norm, 16 of a head of 8 tokens
ONE, TWO = "8x2x4x1x1x1", "8x2x4x2x1x1"
ROWS = """task,batch,context_tokens,tokens,seconds
decode,1,4,,0.1
pause,1,4,,0.5
prefill,1,0,4,0.2
score,1,0,4,0.3
update,1,0,0,0.05
train,1,0,4,0.4
decode+score,1,4,,0.15
sync,1,0,0,0.01
"""


def header(models: str) -> str:
    said = {"machine": "here", "versions": "these", "date": "today", "source": "a test"}
    return "".join(f'# {key} = "{value}"\n' for key, value in {**said, "models": models}.items())


def models(actor: str, reward: str, critic: str) -> str:
    return f"actor qwen2 {actor}; reward qwen2 {reward}; critic qwen2 {critic}; reference none"


def test_every_kind_by_its_own_models(tmp_path: Path) -> None:
    """Two layers in the actor instead of one: (2 + 100 + 16) / (2 + 50 + 16), and three times that
    in an update, beside a critic of one layer before and after."""
    table = tmp_path / "costs.csv"
    table.write_text(header(models(ONE, TWO, ONE)) + ROWS)
    found, by = rescaled(table, models(TWO, ONE, ONE), "reward")
    assert by == pytest.approx({"decode": 118 / 68, "score": 52 / 102, "train": 170 / 120})
    seconds = {row.task: row.seconds for row in found.rows}
    expected = {
        "decode": 0.1 * by["decode"],
        "pause": 0.5,
        "prefill": 0.2 * by["decode"],
        "score": 0.3 * by["score"],
        "update": 0.05 * by["train"],
        "train": 0.4 * by["train"],
        "decode+score": 0.15 * by["decode"],
        "sync": 0.01,
    }
    assert seconds == pytest.approx(expected)
    assert found.provenance["models"] == models(TWO, ONE, ONE)
    assert found.provenance["rescaled"] == "decode x 1.735, score x 0.510, train x 1.417"


def test_a_reference_costs_a_forward_where_it_runs(tmp_path: Path) -> None:
    table = tmp_path / "costs.csv"
    both = models(ONE, ONE, ONE).replace("none", f"qwen2 {ONE}")
    larger = models(ONE, ONE, ONE).replace("none", f"qwen2 {TWO}")
    table.write_text(header(both) + ROWS)
    assert rescaled(table, larger, "reward")[1]["train"] == pytest.approx(478 / 428)
    assert rescaled(table, larger, "reward and reference")[1]["score"] == pytest.approx(170 / 120)


@pytest.mark.parametrize(("said", "of"), [("", ONE), ("actor a rule; reward none", ONE)])
def test_a_table_without_shapes_cannot_be_scaled(tmp_path: Path, said: str, of: str) -> None:
    table = tmp_path / "costs.csv"
    table.write_text(header(said or "unknown") + ROWS)
    with pytest.raises(ValueError, match=r"costs.csv: says no shapes of models .*--rescale"):
        rescaled(table, models(of, of, of), "reward")

"""The cost models that the `[costs]` table names, with all their numbers."""

from __future__ import annotations

from dataclasses import fields
from importlib.resources import files
from pathlib import Path

import pytest

from oppo_sim.config import costs as tables
from oppo_sim.config import load_scenario
from oppo_sim.config.fields import Table
from oppo_sim.costs import Constant, Efficiency, Engine, Linear, Roofline, Trainer
from oppo_sim.simulate import costs

OWN = {"model", "round_s"}


@pytest.mark.parametrize(
    ("table", "priced", "elsewhere"),
    [
        (tables.Constant, Constant, set()),
        (tables.Linear, Linear, set()),
        (tables.Efficiency, Efficiency, set()),
        (tables.Engine, Engine, {"name"}),
        (
            tables.Training,
            Trainer,
            {"trained", "forwards", "devices", "nodes", "fewest_per_node"},
        ),
    ],
)
def test_a_table_has_every_number_of_its_model(
    table: type[Table], priced: type, elsewhere: set[str]
) -> None:
    takes = {f.name for f in fields(priced) if f.init} - elsewhere
    assert set(table.model_fields) - OWN - {"base"} == takes


def test_linear_numbers_arrive() -> None:
    assert costs(load_scenario("tiny")) == Linear(
        decode_token_s=0.025,
        prefill_token_s=20e-6,
        score_call_s=0.05,
        score_token_s=0.002,
        train_call_s=2.0,
        train_token_s=0.002,
    )


def test_constant_numbers_arrive() -> None:
    table = {"model": "constant", "decode_token_s": 0.5, "train_call_s": 3}
    assert costs(load_scenario("tiny", {"costs": table})) == Constant(
        decode_token_s=0.5, train_call_s=3.0
    )


def test_roofline_has_the_models_where_the_scenario_puts_them() -> None:
    hosts = {"models.on_scorer": ["reward", "reference", "critic"]}
    efficiency = {"costs.efficiency": {"prefill_mfu": 0.125, "train_mfu": 0.30}}
    priced = costs(load_scenario("stackexchange-3b", {**hosts, **efficiency}))
    assert isinstance(priced, Roofline)
    assert [(h.model.name, h.head) for h in priced.scorer.models] == [
        ("Qwen2.5-7B", "scalar"),
        ("Qwen2.5-3B", "vocab"),
        ("Qwen2.5-3B", "scalar"),
    ]
    assert [h.model.name for h in priced.trainer.trained] == ["Qwen2.5-3B"] * 2
    assert priced.trainer.forwards == ()
    assert (priced.trainer.devices, priced.trainer.epochs) == (7, 4)
    assert priced.efficiency == Efficiency(prefill_mfu=0.125, train_mfu=0.30)
    assert priced.decode.token_s(16, 0) == pytest.approx(36 * 0.894e-3)


def test_what_no_scorer_runs_is_read_in_training() -> None:
    rule = costs(load_scenario("gsm8k-7b"))
    assert isinstance(rule, Roofline)
    assert rule.scorer.models == ()
    assert [h.head for h in rule.trainer.forwards] == ["vocab", "scalar"]
    bare = costs(load_scenario("gsm8k-7b", {"models.critic": "none", "models.reference": "none"}))
    assert isinstance(bare, Roofline)
    assert (len(bare.trainer.trained), bare.trainer.forwards) == (1, ())


def test_an_engine_may_be_changed_and_a_reward_may_answer() -> None:
    priced = costs(
        load_scenario(
            "stackexchange-7b",
            {
                "costs.engine": {"base": "vllm", "fixed_s": 0.084},
                "models.reward_answer_tokens": 50,
                "models.on_scorer": ["reward", "reference", "critic"],
            },
        )
    )
    assert isinstance(priced, Roofline)
    assert (priced.actor.engine.name, priced.actor.engine.fixed_s) == ("vllm", 0.084)
    assert [h.answer_tokens for h in priced.scorer.models] == [50, 0, 0]


def test_a_card_with_a_byte_order_mark_and_a_suffix_in_capitals_is_read(tmp_path: Path) -> None:
    """As some editors of Windows save it: the same costs as the shipped card."""
    shipped = files("oppo_sim") / "data" / "hardware" / "H200.toml"
    (tmp_path / "MINE.TOML").write_bytes(b"\xef\xbb\xbf" + shipped.read_bytes())
    mine = load_scenario("stackexchange-7b", {"cluster.card": str(tmp_path / "MINE.TOML")})
    plain = load_scenario("stackexchange-7b")
    assert costs(mine).decode == costs(plain).decode
    assert costs(mine).train_s(8, 4000, 900) == costs(plain).train_s(8, 4000, 900)

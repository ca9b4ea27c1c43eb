"""The protocol: which rows are fitted and which held out, as it was frozen before the fit."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from importlib.resources import files
from typing import Any

import pytest

from oppo_sim.analysis.paper import paper_rows
from oppo_sim.calibration.protocol import protocol, shipped_protocol, tails
from oppo_sim.config import load_scenario
from oppo_sim.policies import ProbedChunk, Schedule

# As registered: stage 1 (U1b, A1, A2 -> T1a), stage 2 (nothing fitted -> A3, A4, T1b, U2b),
# stage 3 (U1o, U2o), stage 4 (U3b -> T1d, U3o), stage 5 (U4b, T1c -> U4o), none -> Q1, C1.
FITTED = {"U1b", "A1", "A2", "U1o", "U2o", "U3b", "U4b", "T1c"}
HELD_OUT = {"T1a", "A3", "A4", "T1b", "U2b", "T1d", "U3o", "U4o", "Q1-0", "Q1-1", "Q1-2", "C1"}
HELD_OUT |= {"D4", "D8"}  # an order, of which the protocol says nothing
SCENARIOS = {"T2", "T2b", "T2c", "V1", "V1b", "V2", "V2b", "M1a-s"}


def document() -> dict[str, Any]:
    return tomllib.loads((files("oppo_sim") / "data" / "protocol.toml").read_text("utf-8"))


def test_the_roles_are_those_of_the_protocol() -> None:
    by_role: dict[str, set[str]] = {}
    for row in paper_rows():
        by_role.setdefault(row.role, set()).add(row.id)
    assert by_role["fitted"] == FITTED
    assert by_role["held_out"] == HELD_OUT
    assert by_role["scenario"] == SCENARIOS
    assert by_role["assumed"] == {"M1a", "M1b", "C1o", "R1a", "R1b", "R2a", "R2b"}


def test_the_stages_are_those_of_the_protocol() -> None:
    stages = {
        stage.name: (
            {row.id for row in stage.fits},
            {row.id for row in stage.counts},
            {row.id for row in stage.holds_out},
        )
        for stage in shipped_protocol().stages
    }
    assert stages == {
        "chat": ({"U1b", "A1", "A2"}, {"U1o", "U2o"}, {"T1a", "A3", "A4", "T1b", "U2b"}),
        "gsm8k": ({"U3b"}, set(), {"T1d", "U3o"}),
        "opencoder": ({"U4b", "T1c"}, set(), {"U4o"}),
    }


def test_what_is_frozen_is_frozen() -> None:
    """7 + 1 devices, hand-over by round, carried rollouts decode on, B = 112; the paper's probe."""
    for name in ("stackexchange-7b", "stackexchange-3b", "opencoder-3b"):
        scenario = load_scenario(name)
        cluster = scenario.cluster
        assert (cluster.devices, cluster.actors, cluster.scorers) == (8, 7, 1)
        oppo: Schedule = scenario.schedule("oppo")
        assert (oppo.batch, oppo.flush, oppo.stop) == (112, "round", "train")
        assert oppo.chunk == ProbedChunk(candidates=(128, 256, 512), every=50)


def test_a_fitted_row_can_not_be_called_held_out() -> None:
    rows = [replace(row, role="held_out") if row.id == "A1" else row for row in paper_rows()]
    with pytest.raises(ValueError, match=r"chat\.fits: A1 has the role 'held_out': must be fitted"):
        protocol(document(), rows)
    wrong = document()
    wrong["stage"][0]["holds_out"].append("A2")
    with pytest.raises(ValueError, match=r"holds_out: A2 has the role 'fitted': must be held_out"):
        protocol(wrong, paper_rows())


def test_what_a_protocol_names_must_exist() -> None:
    wrong = document()
    wrong["stage"][1]["fits"] = ["U9"]
    with pytest.raises(ValueError, match=r"gsm8k\.fits: no row is called 'U9'"):
        protocol(wrong, paper_rows())
    wrong = document()
    wrong["stage"][1]["free"] = ["luck"]
    with pytest.raises(ValueError, match=r"gsm8k\.free: 'luck' must be one of train_mfu"):
        protocol(wrong, paper_rows())


def test_no_cap_is_above_what_a_table_knows() -> None:
    """Qwen1.5-1.8B's answers were cut at 3500; FuseChat's 3B wrote at most 1920 tokens."""
    caps: dict[str, set[int]] = {}
    for tail in tails(shipped_protocol().stages[0]):
        caps.setdefault(tail.lengths, set()).add(tail.max_response_tokens)
    assert max(caps["alpacaeval_Qwen1.5-1.8B-Chat"]) == 2048
    assert max(caps["alpacaeval_FuseChat-Llama-3.2-3B-Instruct"]) == 2048
    assert max(caps["alpacaeval_Mistral-7B-Instruct-v0.2"]) == 4096

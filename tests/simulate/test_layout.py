"""Where lanes run, and what runs between them."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from oppo_sim.config import ConfigError, load_scenario
from oppo_sim.costs import Roofline
from oppo_sim.simulate import costs, lane_kv_tokens, lanes, simulate

SHARED = {"decode_stretch": 1.3, "score_stretch": 1.3, "switch_s": 0.1}


def devices(**cluster: object) -> dict[str, tuple[str, ...]]:
    overrides = {f"cluster.{key}": value for key, value in cluster.items()}
    scenario = load_scenario("stackexchange-7b", overrides)
    return {lane.name: lane.devices for lane in lanes(scenario)}


def links(**cluster: object) -> tuple[str, str, int]:
    """Hand-off, synchronisation, nodes of the trainer."""
    overrides = {f"cluster.{key}": value for key, value in cluster.items()}
    priced = costs(load_scenario("stackexchange-7b", overrides))
    assert isinstance(priced, Roofline)
    return priced.handoff_over, priced.sync_over, priced.trainer.nodes


def test_split_deals_devices_out_in_order() -> None:
    assert devices(actors=2, devices_per_actor=2, scorers=2, trainer_devices=2) == {
        "actor0": ("gpu0", "gpu1"),
        "actor1": ("gpu2", "gpu3"),
        "scorer0": ("gpu6",),
        "scorer1": ("gpu7",),
        "trainer": ("gpu4", "gpu5"),
    }


def test_training_without_devices_of_its_own_takes_the_actors() -> None:
    assert devices()["trainer"] == tuple(f"gpu{n}" for n in range(7))
    assert devices()["scorer0"] == ("gpu7",)


def test_colocated_lanes_share_devices() -> None:
    found = devices(placement="colocated", actors=8, scorers=4, contention=SHARED)
    assert found["actor3"] == found["scorer3"] == ("gpu3",)
    assert found["trainer"] == tuple(f"gpu{n}" for n in range(8))


def test_links_follow_the_layout() -> None:
    assert links() == ("nvlink", "same", 1)
    assert links(actors=4, trainer_devices=3) == ("nvlink", "nvlink", 1)
    assert links(nodes=2, actors=4, scorers=4) == ("network", "same", 1)
    assert links(nodes=2, actors=6, scorers=2) == ("network", "same", 2)
    assert links(nodes=2, actors=3, trainer_devices=1) == ("network", "nvlink", 1)
    shared = {"placement": "colocated", "actors": 8, "contention": SHARED}
    assert links(**shared, scorers=8) == ("nvlink", "same", 1)
    assert links(**shared, scorers=1, devices_per_scorer=8) == ("same", "same", 1)


def test_a_gang_that_is_uneven_over_nodes_reduces_over_the_fewest_nics(tmp_path: Path) -> None:
    """7 + 1 on 2 x 4: four of the gang on one node, three on the other."""
    file = tmp_path / "two-nodes.toml"
    text = (files("oppo_sim") / "data/scenarios/stackexchange-7b.toml").read_text(encoding="utf-8")
    file.write_text(text.replace("devices = 8\n", "devices = 8\nnodes = 2\n"))
    two, one = costs(load_scenario(file)), costs(load_scenario("stackexchange-7b"))
    assert isinstance(two, Roofline)
    assert (two.trainer.devices, two.trainer.nodes, two.trainer.fewest_per_node) == (7, 2, 3)
    assert (two.handoff_over, two.sync_over) == ("network", "same")
    # per update: both models' bf16 gradients go round twice but for a seventh, on three NICs of
    # 50 GB/s at 0.8; four epochs of one update each
    actor, critic = 7_615_616_512, 6_525_621_760 + 152_064 * 3584
    reduce_s = 2 * 6 / 7 * 2 * (actor + critic) / (3 * 0.8 * 50e9)
    more_s = two.train_s(112, 40_000, 1000) - one.train_s(112, 40_000, 1000)
    assert more_s == pytest.approx(4 * reduce_s, rel=1e-9)
    assert len(list(simulate(load_scenario(file), steps=2))) == 2


def test_more_devices_than_a_node_of_the_card_has_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"cluster\.devices = 16 on nodes = 1.*set nodes = 2"):
        devices(devices=16)


def test_memory_is_what_the_card_weights_and_training_leave() -> None:
    def tokens(**overrides: object) -> int:
        found = lane_kv_tokens(load_scenario("stackexchange-7b", overrides))
        assert found is not None
        return found

    alone = tokens(**{"cluster.actors": 4, "cluster.trainer_devices": 3})
    scorers = {"models.on_scorer": ["reward", "reference", "critic"]}
    assert alone > tokens(**scorers) > tokens()  # reference and critic run where it trains
    assert tokens(**{"cluster.actors": 3, "cluster.devices_per_actor": 2}) > tokens()
    shared = {"cluster.placement": "colocated", "cluster.contention": SHARED}
    assert tokens(**shared) < tokens()
    assert tokens(**{"cluster.kv_tokens": 12_345}) == 12_345


def test_without_card_and_models_nothing_bounds_memory() -> None:
    cluster = {"devices": 3, "actors": 2}
    assert lane_kv_tokens(load_scenario("tiny")) == 5000
    assert lane_kv_tokens(load_scenario("tiny", {"cluster": cluster})) is None

"""Where things run: a cluster's devices dealt out to lanes, and the links between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from oppo_sim.config import Cluster
from oppo_sim.costs.parts import Link
from oppo_sim.engine.contract import Lane

Devices = tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """The device numbers of each lane."""

    cluster: Cluster

    @cached_property
    def actors(self) -> tuple[Devices, ...]:
        return _deal(0, self.cluster.actors, self.cluster.devices_per_actor)

    @cached_property
    def scorers(self) -> tuple[Devices, ...]:
        cluster = self.cluster
        before = 0 if self.is_colocated else cluster.actor_devices + cluster.trainer_devices
        return _deal(before, cluster.scorers, cluster.devices_per_scorer)

    @cached_property
    def trainer(self) -> Devices:
        cluster = self.cluster
        if self.is_colocated:
            return tuple(range(max(cluster.actor_devices, cluster.scorer_devices)))
        if cluster.trainer_devices:
            return _deal(cluster.actor_devices, 1, cluster.trainer_devices)[0]
        return tuple(range(cluster.actor_devices))

    @property
    def is_colocated(self) -> bool:
        return self.cluster.placement == "colocated"

    @property
    def trains_on_actors(self) -> bool:
        return any(not set(self.trainer).isdisjoint(actor) for actor in self.actors)

    @property
    def trainer_nodes(self) -> int:
        return len(self._nodes(self.trainer))

    @property
    def trainer_fewest_per_node(self) -> int:
        """Of the trainer's devices on one of its nodes, where there are the fewest."""
        return min(Counter(self._node(device) for device in self.trainer).values())

    @property
    def handoff_over(self) -> Link:
        """The slowest way from an actor to a scorer: any scorer may get any rollout."""
        return _slowest(self._link(a, s) for a in self.actors for s in self.scorers)

    @property
    def sync_over(self) -> Link:
        """The slowest way from the trainer to an actor."""
        return _slowest(self._link(self.trainer, actor) for actor in self.actors)

    def _link(self, one: Devices, other: Devices) -> Link:
        if not set(one).isdisjoint(other):
            return "same"
        return "network" if self._nodes(one).isdisjoint(self._nodes(other)) else "nvlink"

    def _nodes(self, devices: Devices) -> set[int]:
        return {self._node(device) for device in devices}

    def _node(self, device: int) -> int:
        return device // (self.cluster.devices // self.cluster.nodes)


NO_LIMIT = 1 << 20  # slots of a lane where only memory, or nothing, bounds its rollouts


def lanes(cluster: Cluster, kv_tokens: int | None) -> list[Lane]:
    """Actors, scorers, trainer: the order breaks ties between events of one instant.

    `kv_tokens`: the memory of an actor lane; None: no limit.
    """
    layout, slots = Layout(cluster), cluster.slots or NO_LIMIT
    actors = [
        Lane(f"actor{n}", "actor", _names(devices), slots, kv_tokens)
        for n, devices in enumerate(layout.actors)
    ]
    scorers = [
        Lane(f"scorer{n}", "scorer", _names(devices)) for n, devices in enumerate(layout.scorers)
    ]
    return [*actors, *scorers, Lane("trainer", "trainer", _names(layout.trainer))]


def _names(devices: Devices) -> tuple[str, ...]:
    return tuple([f"gpu{device}" for device in devices])


def _deal(first: int, lanes: int, each: int) -> tuple[Devices, ...]:
    starts = range(first, first + lanes * each, each)
    return tuple([tuple(range(start, start + each)) for start in starts])


def _slowest(links: Iterable[Link]) -> Link:
    slowest: Link = "same"
    for link in links:
        if link == "network":
            return "network"  # nothing is slower: a large cluster has millions of pairs
        slowest = "nvlink" if link == "nvlink" else slowest
    return slowest

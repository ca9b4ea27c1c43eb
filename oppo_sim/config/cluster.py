"""The `[cluster]` and `[models]` tables: devices, lanes, and the models on them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from oppo_sim.config.bounds import MOST_DEVICES, MOST_KV_TOKENS, MOST_TOKENS
from oppo_sim.config.fields import (
    AtLeastOne,
    Count,
    Devices,
    Host,
    Listed,
    Seconds,
    Table,
)


class Contention(Table):
    """What sharing a device, or a host, costs. `oppo profile` measures it."""

    decode_stretch: AtLeastOne = 1.0  # of token times, while the device scores as well
    score_stretch: AtLeastOne = 1.0  # of score times, while it decodes as well
    decode_decode_stretch: AtLeastOne = 1.0  # of token times, while another actor lane decodes
    # the same of an update beside the others, where the trainer has devices of its own
    decode_train_stretch: AtLeastOne = 1.0
    train_decode_stretch: AtLeastOne = 1.0
    score_train_stretch: AtLeastOne = 1.0
    train_score_stretch: AtLeastOne = 1.0
    shared_host: bool = False  # the devices are one machine's: it does not matter on which work is
    switch_s: Seconds = 0.0  # a shared device goes over to another kind of work

    @property
    def stretches(self) -> bool:
        """Whether anything is slower beside something else."""
        names = [name for name in type(self).model_fields if name.endswith("_stretch")]
        return any(getattr(self, name) != 1.0 for name in names)


class Cluster(Table):
    """Devices and lanes. Devices are numbered through the nodes, evenly, and dealt out in order.

    "split": actors first, then the trainer's own devices (if any), then the scorers.
    "colocated": actor and scorer lanes both begin at the first device; the trainer takes all.
    """

    card: str | None = None  # a shipped card, or the path of one; for roofline costs and memory
    nodes: Devices = 1
    devices: Devices  # of all nodes together
    placement: Literal["split", "colocated"] = "split"
    actors: Devices  # lanes
    devices_per_actor: Devices = 1  # tensor parallel
    scorers: Devices = 1  # lanes
    devices_per_scorer: Devices = 1
    trainer_devices: Annotated[int, Field(ge=0, le=MOST_DEVICES)] = 0  # 0: the actors' devices
    slots: Count | None = None  # most rollouts at a time per actor lane; None: memory decides
    # KV memory of an actor lane; None: what card and models leave
    kv_tokens: Annotated[int, Field(ge=1, le=MOST_KV_TOKENS)] | None = None
    contention: Contention | None = None

    @property
    def actor_devices(self) -> int:
        return self.actors * self.devices_per_actor

    @property
    def scorer_devices(self) -> int:
        return self.scorers * self.devices_per_scorer

    @model_validator(mode="after")
    def _fits(self) -> Cluster:
        if self.devices % self.nodes:
            raise ValueError(
                f"devices = {self.devices} on nodes = {self.nodes}: must be a multiple of the nodes"
            )
        if self.placement == "split":
            self._split_fits()
        else:
            self._colocated_fits()
        return self

    def _split_fits(self) -> None:
        needed = self.actor_devices + self.trainer_devices + self.scorer_devices
        if needed > self.devices:
            raise ValueError(
                f"devices = {self.devices}: too few for {self.actors} actors x "
                f"{self.devices_per_actor} + {self.trainer_devices} trainer devices + "
                f"{self.scorers} scorers x {self.devices_per_scorer} = {needed}: "
                f"set devices = {needed} or use fewer lanes"
            )
        sharing = self.contention
        if sharing and sharing.stretches and not sharing.shared_host:
            raise ValueError(
                "contention.decode_stretch and score_stretch with placement = 'split': "
                "no device decodes and scores there; leave them out, use 'colocated', or set "
                "contention.shared_host where all devices are one machine's"
            )

    def _colocated_fits(self) -> None:
        needed = max(self.actor_devices, self.scorer_devices)
        if needed > self.devices:
            raise ValueError(
                f"devices = {self.devices}: too few for {self.actors} actors x "
                f"{self.devices_per_actor} and {self.scorers} scorers x {self.devices_per_scorer}: "
                f"set devices = {needed} or use fewer lanes"
            )
        if self.trainer_devices:
            raise ValueError(
                f"trainer_devices = {self.trainer_devices} with placement = 'colocated': "
                "the trainer shares every device there; leave trainer_devices out, or use 'split'"
            )
        if self.contention is None:
            raise ValueError(
                "placement = 'colocated' needs [cluster.contention]: sharing a device is not free; "
                "set decode_stretch, score_stretch and switch_s (1.0, 1.0, 0 to say that it is)"
            )


class Models(Table):
    """The four models. What is not on the scorers runs with the training, over the whole batch."""

    actor: str  # a shipped shape, or the path of a config.json; the others alike
    reward: str  # a model, or "rule"
    reference: str | None = None  # None: the actor's shape; "none": there is no KL term
    critic: str | None = None  # None: the actor's shape; "none": there is no value model
    on_scorer: Listed[Host] | None = None  # None: the reward model, unless it is a rule
    # a judge writes that much after reading the response
    reward_answer_tokens: Annotated[int, Field(ge=0, le=MOST_TOKENS)] = 0

    @property
    def scored(self) -> tuple[Host, ...]:
        """The models on the scorer lanes, in the order in which they run."""
        if self.on_scorer is not None:
            return self.on_scorer
        return () if self.reward == "rule" else ("reward",)

    @property
    def shapes(self) -> dict[Host, str | None]:
        """The model of each part that is not the actor; None: there is none."""
        own = {"reference": self.reference or self.actor, "critic": self.critic or self.actor}
        return {
            "reward": None if self.reward == "rule" else self.reward,
            "reference": None if own["reference"] == "none" else own["reference"],
            "critic": None if own["critic"] == "none" else own["critic"],
        }

    @model_validator(mode="after")
    def _hosts(self) -> Models:
        scored = self.scored
        if len(set(scored)) < len(scored):
            raise ValueError(f"on_scorer = {list(scored)}: names a model twice")
        for host, shape in self.shapes.items():
            if host in scored and shape is None:
                raise ValueError(f"on_scorer names {host}, but {host} = {getattr(self, host)!r}")
        if self.reward != "rule" and "reward" not in scored:
            raise ValueError(
                f"on_scorer = {list(scored)}: must have 'reward', which only a scorer can run; "
                "or set reward = 'rule'"
            )
        if self.reward == "rule" and self.reward_answer_tokens:
            raise ValueError(
                f"reward_answer_tokens = {self.reward_answer_tokens} with reward = 'rule': "
                "a rule writes nothing; leave it out"
            )
        return self

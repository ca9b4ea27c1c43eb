"""What a scenario's tasks cost, and how much KV memory its actor lanes have."""

from __future__ import annotations

from dataclasses import replace

from oppo_sim.config import Cluster, ConfigError, Models, Scenario, blaming
from oppo_sim.config import costs as tables
from oppo_sim.costs import (
    Actor,
    Card,
    Constant,
    Costs,
    Efficiency,
    Engine,
    Head,
    Hosted,
    Linear,
    Measured,
    ModelShape,
    Roofline,
    Scorer,
    Trainer,
    card_at,
    kv_tokens,
    measurements,
    model_at,
    training_bytes,
)
from oppo_sim.costs.layout import Layout
from oppo_sim.costs.measurements import TASKS
from oppo_sim.costs.parts import engine

_HEADS: dict[str, Head] = {"reward": "scalar", "reference": "vocab", "critic": "scalar"}


def costs(scenario: Scenario) -> Costs:
    """Its cost model. ConfigError for an unknown card, model or engine."""
    table = scenario.needed_costs()
    with blaming(scenario.file, "costs"):
        match table:
            case tables.Constant():
                return Constant(**_numbers(table))
            case tables.Linear():
                return Linear(**_numbers(table))
            case tables.Roofline():
                return _roofline(scenario, table)
            case tables.Measured():
                return _measured(scenario, table)


def lane_kv_tokens(scenario: Scenario) -> int | None:
    """KV memory of each actor lane, in tokens; None where nothing says how much there is."""
    cluster, models = scenario.cluster, scenario.models
    hardware = None if cluster.card is None else _card(scenario, cluster.card)
    if cluster.kv_tokens is not None:
        return cluster.kv_tokens
    if hardware is None or models is None:
        return None
    actor = _shape(scenario, "actor", models.actor)
    with blaming(scenario.file, "cluster"):
        return kv_tokens(
            hardware,
            actor,
            devices=cluster.devices_per_actor,
            resident_bytes=_resident_bytes(scenario, cluster, models),
        )


def _roofline(scenario: Scenario, table: tables.Roofline) -> Roofline:
    cluster, models = scenario.cluster, scenario.models
    assert cluster.card is not None  # a scenario without them is refused
    assert models is not None
    layout = Layout(cluster)
    scorer = {"rule_s": table.rule_s, "call_s": table.score_call_s}
    handoff = {"handoff_call_s": table.handoff_call_s}
    return Roofline(
        card=_card(scenario, cluster.card),
        actor=Actor(
            model=_shape(scenario, "actor", models.actor),
            devices=cluster.devices_per_actor,
            engine=_engine(scenario, "engine", table.engine),
        ),
        scorer=Scorer(
            models=_scored(scenario, models),
            devices=cluster.devices_per_scorer,
            engine=_engine(scenario, "scorer_engine", table.scorer_engine),
            **_set(scorer),
        ),
        trainer=_trainer(scenario, models, table.training),
        efficiency=Efficiency(**table.efficiency.given()),
        sync_over=layout.sync_over,
        handoff_over=layout.handoff_over,
        **_set(handoff),
    )


def _measured(scenario: Scenario, table: tables.Measured) -> Measured:
    """Each task from the table or from the scenario's numbers; what costs nothing must be said."""
    with blaming(scenario.file, "costs.file", scenario.folder):
        found = measurements(table.file, scenario.folder)
    rest = {k: v for k, v in table.given().items() if k.endswith("_s") and k != "round_s"}
    for task in TASKS:
        given = [key for key in rest if key.startswith(f"{task}_")]
        if found.of(task):
            if given:
                raise ConfigError(
                    f"{scenario.file}: costs.{given[0]} = {rest[given[0]]}: {found.name} has rows "
                    f"of {task}; leave it out, or take them out of the table"
                )
        elif task in ("prefill", "score", "train") and not given:
            raise ConfigError(
                f"{scenario.file}: costs.file: {found.name} has no row of {task}; measure it, or "
                f"set costs.{task}_token_s or {task}_call_s (0.0 to say that it is free)"
            )
    return Measured(measurements=found, rest=Linear(**_set(rest)), padded=table.padded)


def _trainer(scenario: Scenario, models: Models, training: tables.Training) -> Trainer:
    layout, shapes = Layout(scenario.cluster), models.shapes
    trained = [Hosted(_shape(scenario, "actor", models.actor), "vocab")]
    if shapes["critic"] is not None:
        trained.append(Hosted(_shape(scenario, "critic", shapes["critic"])))
    forwards = [
        Hosted(_shape(scenario, host, shape), _HEADS[host])
        for host, shape in shapes.items()
        if shape is not None and host not in models.scored
    ]
    return Trainer(
        trained=tuple(trained),
        forwards=tuple(forwards),
        devices=len(layout.trainer),
        nodes=layout.trainer_nodes,
        fewest_per_node=layout.trainer_fewest_per_node,
        **training.given(),
    )


def _scored(scenario: Scenario, models: Models) -> tuple[Hosted, ...]:
    answers = {"reward": models.reward_answer_tokens}
    return tuple(
        [
            Hosted(_shape(scenario, host, shape), _HEADS[host], answers.get(host, 0))
            for host in models.scored
            if (shape := models.shapes[host]) is not None
        ]
    )


def _resident_bytes(scenario: Scenario, cluster: Cluster, models: Models) -> float:
    """What else lives on each device of an actor: training state, and models that are only read.

    Both are sharded evenly over the devices that run them.
    """
    layout = Layout(cluster)
    resident = 0.0
    if layout.trains_on_actors:
        trainer = _trainer(scenario, models, tables.Training())
        read = sum(hosted.model.weights_bytes(hosted.head) for hosted in trainer.forwards)
        resident += training_bytes(trainer) + read / trainer.devices
    if layout.is_colocated:
        scored = _scored(scenario, models)
        weights = sum(hosted.model.weights_bytes(hosted.head) for hosted in scored)
        resident += weights / cluster.devices_per_scorer
    return resident


def _card(scenario: Scenario, name: str) -> Card:
    cluster = scenario.cluster
    with blaming(scenario.file, "cluster.card", scenario.folder):
        hardware = card_at(name, scenario.folder)
    per_node = cluster.devices // cluster.nodes
    if per_node > hardware.devices_per_node:
        raise ConfigError(
            f"{scenario.file}: cluster.devices = {cluster.devices} on nodes = {cluster.nodes}: "
            f"a node has at most {hardware.devices_per_node} x {name}; "
            f"set nodes = {-(-cluster.devices // hardware.devices_per_node)} or more"
        )
    return hardware


def _shape(scenario: Scenario, host: str, name: str) -> ModelShape:
    with blaming(scenario.file, f"models.{host}", scenario.folder):
        return model_at(name, scenario.folder)


def _engine(scenario: Scenario, field: str, table: tables.Engine) -> Engine:
    changes = {name: value for name, value in table.given().items() if name != "base"}
    with blaming(scenario.file, f"costs.{field}"):
        return replace(engine(table.base), **changes)


def _numbers(table: tables.Constant | tables.Linear) -> dict[str, float]:
    given = table.given()
    return {name: given[name] for name in given if name not in ("model", "round_s")}


def _set(values: dict[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None}

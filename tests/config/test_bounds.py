"""No number of a scenario is without bounds, and none beyond them gets further than its check."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from oppo_sim.config import (
    ConfigError,
    cluster,
    costs,
    load_scenario,
    real,
    scenario,
    schedules,
    workload,
)
from oppo_sim.config.errors import explain
from oppo_sim.config.fields import Table

MODULES = (cluster, costs, real, scenario, schedules, workload)
TABLES = {
    table.__name__: table
    for module in MODULES
    for _, table in inspect.getmembers(module, inspect.isclass)
    if issubclass(table, Table) and table is not Table
}
ENORMOUS = [10**400, -(10**400), 16**5000, 2**64, 1e308, -1e308, float("inf"), float("nan")]


def numbers(node: object) -> Iterator[dict[str, Any]]:
    """The numbers of a JSON schema, but for those of other tables."""
    if isinstance(node, dict):
        if node.get("type") in ("integer", "number"):
            yield node
        for inner in node.values():
            yield from numbers(inner)
    elif isinstance(node, list):
        for inner in node:
            yield from numbers(inner)


def fields() -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    """Each field of each table that may be a number, with the schemas of its numbers."""
    for name, table in TABLES.items():
        for field, schema in table.model_json_schema().get("properties", {}).items():
            if found := list(numbers(schema)):
                yield name, field, found


FIELDS = [pytest.param(name, field, found, id=f"{name}.{field}") for name, field, found in fields()]


def test_the_tables_of_a_scenario_are_looked_at() -> None:
    """A walk that finds nothing would prove nothing: some known fields, and how many at least."""
    ids = {param.id for param in FIELDS}
    assert len(ids) > 100
    assert ids >= {"Scenario.steps", "Axes.ahead", "Cluster.slots", "Lengths.replay", "Slope.most"}


@pytest.mark.parametrize(("table", "field", "schemas"), FIELDS)
def test_a_number_has_a_least_and_a_most(
    table: str, field: str, schemas: list[dict[str, Any]]
) -> None:
    for schema in schemas:
        assert "maximum" in schema
        assert "minimum" in schema or "exclusiveMinimum" in schema


@pytest.mark.parametrize(("table", "field", "schemas"), FIELDS)
def test_what_is_beyond_is_refused_by_name(
    table: str, field: str, schemas: list[dict[str, Any]]
) -> None:
    lists = any(schema not in _plain(TABLES[table], field) for schema in schemas)
    for value in [*ENORMOUS, *[schema["maximum"] + 1 for schema in schemas]]:
        document = {field: [value] if lists else value}
        with pytest.raises(ValidationError) as caught:
            TABLES[table].model_validate(document)
        of_field = [e for e in caught.value.errors(include_url=False) if e["loc"][:1] == (field,)]
        assert of_field, value
        said = str(explain("mine.toml", document, _Only(of_field)))  # type: ignore[arg-type]
        assert said.startswith(f"mine.toml: {field}")
        assert "must be" in said
        assert len(said) < 250


def _plain(table: type[Table], field: str) -> list[dict[str, Any]]:
    """The schemas of a field that takes a number as it is, rather than a list of them."""
    schema = table.model_json_schema()["properties"][field]
    return [s for s in (schema, *schema.get("anyOf", [])) if s.get("type") in ("integer", "number")]


class _Only:
    """A ValidationError with some of its mistakes."""

    def __init__(self, mistakes: list[Any]) -> None:
        self._mistakes = mistakes

    def errors(self, **_: bool) -> list[Any]:
        return self._mistakes


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("steps", 10_000_000, "steps = 10000000: must be at most 1,000,000"),
        ("seed", 2**64, "must be at most 18,446,744,073,709,551,615"),
        ("schedule.overcommit", 100_000_000, "schedule.overcommit = 100000000: must be at most"),
        ("schedule.overcommit.most", 10**9, "schedule.overcommit.most = 1000000000: must be at"),
        ("schedule.ahead", 10**6, "schedule.ahead = 1000000: must be at most 1,000"),
        ("schedule.batch", 10**6, "schedule.batch = 1000000: must be at most 100,000"),
        ("schedule.chunk", 10**9, "schedule.chunk = 1000000000: must be at most 10,000,000"),
        ("cluster.devices", 10**6, "cluster.devices = 1000000: must be at most 10,000"),
        ("cluster.slots", 10**7, "cluster.slots = 10000000: must be at most 1,000,000"),
        ("workload.lengths", {"replay": [5, 10**30]}, "lengths.replay[1] = 1000000000"),
        ("workload.lengths", "{lognormal = {mu = 350, sigma = 1}}", "mu = 350: must be at most 50"),
        ("costs.train_call_s", 1e308, "costs.train_call_s = 1e+308: must be at most 10,000,000"),
        ("costs.train_call_s", 10**400, "costs.train_call_s = 1000"),
        ("costs.train_call_s", "1" * 5000, "costs.train_call_s = '1111"),
        ("steps", "[" * 5000, "steps = '[[["),
        ("workload.reward", {"points": [[0, -(10**400)]], "noise": 0}, "points[0][1] = -1000"),
    ],
)
def test_a_slip_of_the_keyboard_is_refused(key: str, value: object, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_scenario("tiny", {key: value})
    message = str(caught.value)
    assert message.startswith("tiny: ")
    assert said in message
    assert "\n" not in message
    assert len(message) < 250

"""Scenarios and schedules as TOML: strictly checked, each mistake one clear line."""

from oppo_sim.config.cluster import Cluster, Models
from oppo_sim.config.errors import ConfigError, blaming
from oppo_sim.config.files import (
    load_scenario,
    load_schedule,
    load_schedules,
    parse_scenario,
    read_scenario,
    read_text,
    scenario_path,
    shipped_scenarios,
    text_of,
    value_of,
    with_value,
)
from oppo_sim.config.real import Ppo, Real
from oppo_sim.config.scenario import Scenario
from oppo_sim.config.workload import Lengths

__all__ = [
    "Cluster",
    "ConfigError",
    "Lengths",
    "Models",
    "Ppo",
    "Real",
    "Scenario",
    "blaming",
    "load_scenario",
    "load_schedule",
    "load_schedules",
    "parse_scenario",
    "read_scenario",
    "read_text",
    "scenario_path",
    "shipped_scenarios",
    "text_of",
    "value_of",
    "with_value",
]

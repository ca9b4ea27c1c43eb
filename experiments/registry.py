"""All experiments, in the order in which they run."""

from __future__ import annotations

from experiments import (
    binding_cap,
    chunk_size,
    fixed_or_dynamic_d,
    lateness,
    learning,
    scarce_kv,
    utilisation,
)
from experiments.result import Experiment

_MODULES = (
    chunk_size,
    scarce_kv,
    binding_cap,
    fixed_or_dynamic_d,
    lateness,
    utilisation,
    learning,
)
EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.name: module.EXPERIMENT for module in _MODULES
}

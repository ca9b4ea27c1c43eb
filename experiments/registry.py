"""All experiments, in the order in which they run."""

from __future__ import annotations

from experiments import (
    best_chunk_and_d,
    binding_cap,
    chunk_cost,
    chunk_size,
    data_parallel,
    deferrals,
    fixed_or_dynamic_d,
    lateness,
    learning,
    micro_batches,
    runaways,
    scarce_kv,
    scoring_share,
    sensitivity,
    stale_caches,
    two_nodes,
    utilisation,
    whole_responses,
)
from experiments.result import Experiment

_MODULES = (
    chunk_size,
    chunk_cost,
    best_chunk_and_d,
    whole_responses,
    scarce_kv,
    binding_cap,
    fixed_or_dynamic_d,
    lateness,
    deferrals,
    stale_caches,
    two_nodes,
    runaways,
    data_parallel,
    scoring_share,
    micro_batches,
    sensitivity,
    utilisation,
    learning,
)
EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.name: module.EXPERIMENT for module in _MODULES
}

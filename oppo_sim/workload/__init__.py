"""Workloads: how long each rollout's prompt and response are, why it stops, what reward it gets."""

from oppo_sim.workload.lengths import Constant, Exponential, Lengths, Replay
from oppo_sim.workload.recorded import read_lengths
from oppo_sim.workload.rewards import RewardCurve
from oppo_sim.workload.shipped import Provenance, load, provenance, shipped
from oppo_sim.workload.tables import QuantileTable
from oppo_sim.workload.workload import StopReason, Summary, Workload

__all__ = [
    "Constant",
    "Exponential",
    "Lengths",
    "Provenance",
    "QuantileTable",
    "Replay",
    "RewardCurve",
    "StopReason",
    "Summary",
    "Workload",
    "load",
    "provenance",
    "read_lengths",
    "shipped",
]

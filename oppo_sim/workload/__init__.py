"""Workloads: how long each rollout's prompt and response are, why it stops, what reward it gets."""

from oppo_sim.workload.effects import Drift, Effects
from oppo_sim.workload.fits import Fit, best, fit, fit_all
from oppo_sim.workload.laws import Endless, Gamma, Lognormal, Mixture, Weibull
from oppo_sim.workload.lengths import Constant, Exponential, Lengths, Replay
from oppo_sim.workload.recorded import read_lengths
from oppo_sim.workload.rewards import (
    CurvePoint,
    RewardCurve,
    RewardPoints,
    Rewards,
    reward_curve,
    reward_curves,
    update_worth,
)
from oppo_sim.workload.samples import Sample
from oppo_sim.workload.shipped import Provenance, load, provenance, shipped
from oppo_sim.workload.tables import QuantileTable
from oppo_sim.workload.workload import StopReason, Summary, Workload

__all__ = [
    "Constant",
    "CurvePoint",
    "Drift",
    "Effects",
    "Endless",
    "Exponential",
    "Fit",
    "Gamma",
    "Lengths",
    "Lognormal",
    "Mixture",
    "Provenance",
    "QuantileTable",
    "Replay",
    "RewardCurve",
    "RewardPoints",
    "Rewards",
    "Sample",
    "StopReason",
    "Summary",
    "Weibull",
    "Workload",
    "best",
    "fit",
    "fit_all",
    "load",
    "provenance",
    "read_lengths",
    "reward_curve",
    "reward_curves",
    "shipped",
    "update_worth",
]

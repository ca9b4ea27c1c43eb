"""From a scenario to a run: its lanes, costs, workload and machine, and the engine on them."""

from oppo_sim.simulate.assembly import lanes, machine, simulate
from oppo_sim.simulate.checks import check
from oppo_sim.simulate.pricing import costs, lane_kv_tokens
from oppo_sim.simulate.remarks import remarks
from oppo_sim.workload.loads import limits, workload

__all__ = [
    "check",
    "costs",
    "lane_kv_tokens",
    "lanes",
    "limits",
    "machine",
    "remarks",
    "simulate",
    "workload",
]

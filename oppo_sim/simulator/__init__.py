"""The simulated machine: SimPy's clock, lanes in closed form, shared devices, KV memory."""

from oppo_sim.simulator.machine import Contention, SimPyMachine, Workload

__all__ = ["Contention", "SimPyMachine", "Workload"]

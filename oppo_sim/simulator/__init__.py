"""The simulated machine: SimPy's clock, lanes in closed form, shared devices, KV memory."""

from oppo_sim.simulator.devices import Contention
from oppo_sim.simulator.learning import Learning
from oppo_sim.simulator.machine import SimPyMachine
from oppo_sim.simulator.work import Workload

__all__ = ["Contention", "Learning", "SimPyMachine", "Workload"]

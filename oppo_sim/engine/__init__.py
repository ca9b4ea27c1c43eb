"""The engine: the PPO pipeline written once, and the contract between it and a machine."""

from oppo_sim.engine.contract import Backend, EngineError, Lane, Limits
from oppo_sim.engine.loop import Listener, run
from oppo_sim.engine.snapshot import restore, snapshot
from oppo_sim.engine.state import State

__all__ = [
    "Backend",
    "EngineError",
    "Lane",
    "Limits",
    "Listener",
    "State",
    "restore",
    "run",
    "snapshot",
]

"""TRL's own PPOTrainer, driven by any schedule."""

from oppo_real.trl.drive import drive_trl, ppo_module

__all__ = ["drive_trl", "ppo_module"]

"""A simulator of the PPO-RLHF pipeline: who waits for whom, and what overlap saves."""

__version__ = "0.1.0"

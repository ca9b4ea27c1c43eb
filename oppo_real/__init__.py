"""The torch machine: runs the schedules of oppo_sim on real models."""

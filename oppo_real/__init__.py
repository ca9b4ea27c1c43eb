"""The torch machine, which will run the schedules of oppo_sim on real models: to come."""

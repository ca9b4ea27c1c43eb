"""`oppo bench --suite real`: schedules, and TRL's trainer, timed on this machine."""

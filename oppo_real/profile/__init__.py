"""What a `[real]` scenario's tasks cost on this machine, measured one by one on its own lanes."""

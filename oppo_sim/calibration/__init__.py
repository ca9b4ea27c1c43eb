"""Costs from what was measured: laws fitted on some of it, and checked on the rest."""

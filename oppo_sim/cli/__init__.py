"""The command line `oppo`; what a command needs is imported when it runs, so that help is quick."""

from oppo_sim.cli.app import app, main

__all__ = ["app", "main"]

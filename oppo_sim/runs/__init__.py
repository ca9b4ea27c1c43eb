"""A run on disk: written whole line by whole line, read back, resumed (standard library only)."""

from oppo_sim.runs.changes import assumed, called
from oppo_sim.runs.folder import (
    TORCH,
    Header,
    Run,
    RunError,
    claim_folder,
    each_span,
    each_step,
    read_header,
    read_run,
    write_whole,
)
from oppo_sim.runs.journal import RunJournal
from oppo_sim.runs.writer import RunWriter, first_difference, refuse_difference

__all__ = [
    "TORCH",
    "Header",
    "Run",
    "RunError",
    "RunJournal",
    "RunWriter",
    "assumed",
    "called",
    "claim_folder",
    "each_span",
    "each_step",
    "first_difference",
    "read_header",
    "read_run",
    "refuse_difference",
    "write_whole",
]

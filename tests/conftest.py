"""What holds for every test: no hub, no screen, one thread a process, no flaky deadlines."""

import os

from hypothesis import settings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A busy machine must not fail a property; a failure prints what it takes to run it again.
settings.register_profile("project", deadline=None, print_blob=True)
settings.load_profile("project")

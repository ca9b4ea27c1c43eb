"""What holds for every test: no hub, no screen, one thread, no flaky deadlines, Ctrl-C."""

import os
import signal

from hypothesis import settings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A suite that runs in the background may be started with Ctrl-C ignored, and so are the processes
# that tests interrupt; elsewhere Python has set its own handler.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine must not fail a property; a failure prints what it takes to run it again.
settings.register_profile("project", deadline=None, print_blob=True)
settings.load_profile("project")

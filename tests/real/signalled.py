"""`oppo train` in a process that is sent signals in its second update, for tests.

`python -m tests.real.signalled COUNT NUMBER OPTION...`: that many signals, of that number.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from oppo_real.ppo.trainer import Trainer
from oppo_sim.cli import main


def interrupt_the_second_update(count: int, number: int) -> None:
    update = Trainer.update

    def interrupted(trainer: Trainer, batch: Any, version: int) -> dict[str, float]:
        if version == 1:
            for _ in range(count):
                os.kill(os.getpid(), number)
        return update(trainer, batch, version)

    Trainer.update = interrupted  # type: ignore[method-assign]


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    interrupt_the_second_update(int(sys.argv[1]), int(sys.argv[2]))
    sys.exit(main(["train", *sys.argv[3:]]))

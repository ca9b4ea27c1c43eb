"""`python -m oppo_sim.cli` is `oppo`."""

import sys

from oppo_sim.cli import main

sys.exit(main())

"""What no scenario exceeds: beyond these is a slip of the keyboard, and would fill the memory."""

MOST_TOKENS = 10_000_000  # of a text; no model's context is longer
MOST_ROLLOUTS = 100_000  # of a batch, or beyond it
MOST_AHEAD = 1_000  # whole batches
MOST_IN_FLIGHT = 1_000_000  # rollouts that are admitted and not trained yet: about a gigabyte
MOST_DEVICES = 10_000
MOST_KV_TOKENS = 10_000_000_000  # of a lane; a rack of the largest cards holds fewer
MOST_PROMPTS = 1_000_000_000
MOST_COUNT = 1_000_000  # of anything else that is counted, such as steps
MOST_SEED = 2**64 - 1
MOST = 10_000_000  # of what is not counted: seconds, rewards
MOST_LOG = 50  # of lengths, natural: 5e21 tokens
LEAST_SHARE = 1e-6  # of a device's peak

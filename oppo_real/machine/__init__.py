"""The torch machine behind the engine's contract: lanes, what they are told, where they run."""

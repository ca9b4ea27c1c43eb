"""How far each weights version has come: in fresh updates, whatever its batches were worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Worth = Callable[[float], float]  # of one update, by the mean staleness of its batch


class Learning:
    """Counts updates by their worth; without a `worth` each is one, so version v has come v far."""

    def __init__(self, worth: Worth | None = None) -> None:
        self._worth = worth
        self._updates: dict[int, float] = {}

    def updates(self, version: int) -> float:
        """How many fresh updates those up to that version are worth."""
        return self._updates.get(version, version)

    def trained(self, update: int, begun: Sequence[int]) -> None:
        """Update number `update` is done; `begun`: versions that decoded the first tokens."""
        if self._worth is not None and begun:
            staleness = update - sum(begun) / len(begun)
            self._updates[update + 1] = self.updates(update) + self._worth(staleness)

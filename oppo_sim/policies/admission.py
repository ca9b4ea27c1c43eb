"""Admission: how many rollouts may have been admitted by now."""

from __future__ import annotations


def admissible(
    *,
    version: int,
    batch: int,
    group: int,
    ahead: int,
    overcommit: int,
    admitted: int,
    dropped: int,
) -> int:
    """How many more rollouts, in whole groups, may be admitted.

    So that admitted - dropped <= (version + 1 + ahead) * batch + overcommit.
    """
    room = (version + 1 + ahead) * batch + overcommit - (admitted - dropped)
    return max(0, room - room % group)

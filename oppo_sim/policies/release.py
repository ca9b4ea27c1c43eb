"""Release: which rollouts make the next batch, and whether it is complete."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice


def first_finished(finished: Collection[int], batch: int, group: int) -> tuple[int, ...] | None:
    """The first `batch` rollouts to finish, in whole groups; None while there are not enough.

    `finished` is in the order of finishing; group k is rollouts [k*group, (k+1)*group), and counts
    when all of it is there.
    """
    if len(finished) < batch:
        return None
    if group == 1:
        return tuple(islice(finished, batch))
    complete = complete_groups(finished, group)
    return complete[:batch] if len(complete) >= batch else None


def oldest(live: Iterable[int], finished: Collection[int], batch: int) -> tuple[int, ...] | None:
    """The `batch` oldest rollouts; None while one of them has not finished, or some are missing."""
    if len(finished) < batch:
        return None
    chosen = tuple(islice(live, batch))
    return chosen if len(chosen) == batch and all(r in finished for r in chosen) else None


def due_first(
    due: Collection[int], finished: Collection[int], batch: int, group: int
) -> tuple[int, ...] | None:
    """What would be too stale later, then the first to finish; None while one due has not."""
    due_groups = {r // group for r in due}
    members = [r for g in sorted(due_groups) for r in range(g * group, (g + 1) * group)][:batch]
    if not all(r in finished for r in members):
        return None
    taken = set(members)
    others = [r for r in finished if r not in taken]
    if len(members) == batch:
        return tuple(members)
    rest = first_finished(others, batch - len(members), group)
    return None if rest is None else (*members, *rest)


def complete_groups(finished: Iterable[int], group: int) -> tuple[int, ...]:
    """The members of the groups that have all finished, in order of completion."""
    members: dict[int, list[int]] = {}
    complete: list[int] = []
    for rollout in finished:
        of_group = members.setdefault(rollout // group, [])
        of_group.append(rollout)
        if len(of_group) == group:
            complete += sorted(of_group)
    return tuple(complete)

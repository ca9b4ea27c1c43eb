"""How the torch machine cuts its calls into padded forwards, and what these cost by a table.

A call takes as long as its forwards, and a forward as if all its rows were as long as the longest:
rows of like length share one in scoring (`groups`), `micro_batch` of them in training. Sums over
the rows of a call do not tell that, so a table that says `grouped` is asked row by row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from oppo_sim.costs.calls import Calls, calls
from oppo_sim.costs.measurements import Measurements
from oppo_sim.costs.padded import Padded, padded

PADDED_TOKENS = 16384  # of one forward at most, unless a single row is longer


def groups(lengths: Sequence[int]) -> list[list[int]]:
    """Indices of rows to run in one padded forward each: at most half of any row is padding.

    The torch machine runs them so, and `Forwards` prices them so.
    """
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    found: list[list[int]] = []
    for row in order:
        if found:
            longest = lengths[found[-1][0]]
            fits = (len(found[-1]) + 1) * longest <= PADDED_TOKENS
            if fits and 2 * lengths[row] >= longest:
                found[-1].append(row)
                continue
        found.append([row])
    return found


def micro_batches(lengths: Sequence[int], micro_batch: int | None, minis: int = 1) -> list[int]:
    """Padded tokens of each forward of an update on rows of these lengths.

    A mini-batch is a random part of the rows; here each has its share of short and long ones.
    """
    ordered = sorted(lengths)
    found = []
    for part in (ordered[first::minis] for first in range(min(minis, len(ordered)))):
        size = micro_batch or len(part)
        for first in range(0, len(part), max(size, 1)):
            rows = part[first : first + size]
            found.append(len(rows) * rows[-1])
    return found


@dataclass(frozen=True)
class Forwards:
    """Seconds of calls by their rows, from laws over padded tokens."""

    fresh: Padded  # scores that open their rows
    more: Padded  # those that go on with them
    train: Calls  # an update's share per micro-batch
    update_s: float  # the rest of an update
    micro_batch: int | None
    mini_batches: int

    @classmethod
    def of(cls, table: Measurements) -> Forwards | None:
        """None unless the table says that it is of single forwards. ValueError for a wrong word."""
        said = table.provenance
        if "grouped" not in said:
            return None
        if said["grouped"] != "yes":
            word = said["grouped"]
            raise ValueError(f"{table.name}: grouped is {word!r}; it must be 'yes', or left out")
        score = table.of("score")
        opening = tuple([row for row in score if not row.context_tokens])
        going_on = tuple([row for row in score if row.context_tokens])
        train = table.of("train")
        if not (opening and train):
            raise ValueError(f"{table.name}: is grouped, and has no rows of score or train")
        update = [row.seconds for row in table.of("update")]
        return cls(
            fresh=padded(table.name, "score", opening),
            more=padded(table.name, "score", going_on or opening),
            train=calls(table.name, "train", train),
            update_s=fmean(update) if update else 0.0,
            micro_batch=_number(said, "micro_batch"),
            mini_batches=_number(said, "mini_batches") or 1,
        )

    def score_s(self, rows: Sequence[tuple[int, int]]) -> float:
        """One call that reads context tokens [first, final) of each row."""
        seconds = 0.0
        for is_fresh, law in ((True, self.fresh), (False, self.more)):
            some = [row for row in rows if (row[0] == 0) == is_fresh]
            for group in groups([final - first for first, final in some]):
                width = max(some[row][1] - some[row][0] for row in group)
                held = max(some[row][0] for row in group)
                tokens = len(group) * width
                gathered = 0 if is_fresh else len(group) * (held + width)
                seconds += law.seconds(tokens, tokens * (held + 0.5 * width), gathered)
        return seconds

    def train_s(self, contexts: Sequence[int]) -> float:
        """One update on rows of these lengths, prompts included."""
        padded = micro_batches(contexts, self.micro_batch, self.mini_batches)
        return self.update_s + sum([self.train.seconds(tokens, 0.0) for tokens in padded])

    def scaled(self, factor: float) -> Forwards:
        return Forwards(
            self.fresh.scaled(factor),
            self.more.scaled(factor),
            self.train.scaled(factor),
            self.update_s * factor,
            self.micro_batch,
            self.mini_batches,
        )


def _number(said: Mapping[str, str], key: str) -> int | None:
    text = said.get(key, "all")
    if text == "all":
        return None
    if not (text.isascii() and text.isdigit() and int(text)):
        raise ValueError(f"{key} is {text!r}; it must be a whole number, at least 1, or 'all'")
    return int(text)

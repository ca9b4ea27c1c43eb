"""Splitwise's timings: what was measured is met, and what is held out within a tenth, or named."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import NamedTuple

import pytest

from oppo_sim.costs import ExtrapolationWarning, Measured, Row, measurement_names, measurements
from oppo_sim.costs.splitwise import convert

pytestmark = pytest.mark.usefixtures("_quiet")


@pytest.fixture
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)
        yield


class HeldOut(NamedTuple):
    """A row, and what a table without it says."""

    table: str
    row: Row
    error: float
    is_inside: bool  # of the range of what was left

    @property
    def place(self) -> tuple[str, int, int]:
        """Table, rows, new tokens of each."""
        return (
            self.table.removeprefix("splitwise-"),
            self.row.batch,
            self.row.tokens // self.row.batch,
        )


def seconds(costs: Measured, row: Row) -> float:
    if row.task == "decode":
        return costs.decode.token_s(row.batch, row.context_tokens)
    return costs.prefill_s(row.tokens, row.attention)


def is_inside(row: Row, rest: Sequence[Row]) -> bool:
    """Whether the range of what is left holds it: of batch and context, or of tokens and length."""

    def axes(one: Row) -> tuple[float, float]:
        if one.task == "decode":
            return one.batch, one.context_tokens / one.batch
        return one.tokens, one.tokens / one.batch

    known = zip(*map(axes, rest), strict=True)
    return all(min(axis) <= at <= max(axis) for at, axis in zip(axes(row), known, strict=True))


def held_out(task: str, folds: int | None = None) -> list[HeldOut]:
    """Every row, left out alone, or every `folds`-th with it."""
    found = []
    for name in measurement_names():
        table = measurements(name)
        rows = table.of(task)
        for start in range(folds or len(rows)):
            held = rows[start :: folds or len(rows)]
            kept = tuple(row for row in table.rows if row not in held)
            costs = Measured(measurements=replace(table, rows=kept))
            rest = [row for row in kept if row.task == task]
            for row in held:
                error = seconds(costs, row) / row.seconds - 1
                found.append(HeldOut(name, row, error, is_inside(row, rest)))
    return found


def rough() -> set[tuple[str, int, int]]:
    """Places with a repetition more than a tenth from the median, which the tables name."""
    return {
        (name.removeprefix("splitwise-"), int(batch), int(tokens) // int(batch))
        for name in measurement_names()
        for batch, tokens in re.findall(
            r"prefill (\d+),0,(\d+):", measurements(name).provenance["rough"]
        )
    }


@pytest.mark.parametrize("name", measurement_names())
def test_what_was_measured_is_met(name: str) -> None:
    """But for noise: times never fall, neither in the context nor in the tokens, as some do.

    Decode: at 2 A100s two series of the same contexts differ by a tenth, no curve meets both.
    Prefill, on 8 H100s alone: 128, 256, 512 tokens took 58, 52, 54 ms, and are levelled.
    """
    table = measurements(name)
    costs = Measured(measurements=table)
    worst = max(abs(seconds(costs, row) / row.seconds - 1) for row in table.of("decode"))
    assert worst < 0.07
    level = [(1, 128), (1, 256), (1, 512)] if name == "splitwise-llama2-70b-h100-tp8" else []
    noisy = [row for row in table.of("prefill") if (row.batch, row.tokens) in level]
    for row in table.of("prefill"):
        met = sum(one.seconds for one in noisy) / len(noisy) if row in noisy else row.seconds
        assert seconds(costs, row) == pytest.approx(met, rel=1e-9)
        assert seconds(costs, row) == pytest.approx(row.seconds, rel=0.07)


@pytest.mark.parametrize("name", measurement_names())
def test_longer_prompts_and_more_of_them_never_take_less_time(name: str) -> None:
    costs = Measured(measurements=measurements(name))
    lengths = [int(64 * 1.1**n) for n in range(50)]
    batches = [*range(1, 20), 31, 50, 64, 112, 200]
    times = [[costs.prefill_s(b * n, b * n * n / 2) for n in lengths] for b in batches]
    for series in (*times, *zip(*times, strict=True)):
        assert all(after >= before * (1 - 1e-9) for before, after in pairwise(series))


def test_held_out_token_times_are_met_within_a_tenth() -> None:
    """All 126 inside of the range; batch 64 and the shortest and longest prompt are its edges."""
    found = held_out("decode", 3)
    errors = [abs(one.error) for one in found if one.is_inside]
    assert len(errors) == 126
    assert median(errors) < 0.015
    assert max(errors) < 0.09
    assert {(one.row.batch, one.row.context_tokens) for one in found if abs(one.error) > 0.1} <= {
        (64, 64 * 576),
        (32, 32 * 576),
        (1, 8256),
    }


def test_held_out_prompt_times_are_met_within_a_tenth_but_for_seven() -> None:
    """71 of 78, each held out alone, with a median of 1.5 %; 69 with every third row held out.

    The measurements themselves scatter: at 11 of the 78 a repetition is more than a tenth from the
    median, and nothing can be expected of those. Of the seven that are missed

    - two are such places: 4 x 512 on 4 A100s (-21 to +3 %), 32 x 512 on 8 (-11 to +18 %);
    - two lean on one: 1 x 2048 on 4 A100s on 4 x 512, Bloom's 256 on its 128 (-11 to +5 %);
    - three are there: on 2 A100s 4 x 512 takes 23 % longer than 1 x 2048, with 10 % before and
      8 % after; on 8, 16 x 512 takes 2.7 times as long as 8 x 512, with 1.7 to 32 x 512.
    """
    found = [one for one in held_out("prefill") if one.is_inside]
    assert len(found) == 78
    missed = {one.place for one in found if abs(one.error) > 0.1}
    assert missed == {
        ("llama2-70b-a100-tp4", 4, 512),
        ("llama2-70b-a100-tp8", 32, 512),
        ("llama2-70b-a100-tp4", 1, 2048),
        ("bloom-176b-a100-tp8", 1, 256),
        ("llama2-70b-a100-tp2", 1, 2048),
        ("llama2-70b-a100-tp2", 4, 512),
        ("llama2-70b-a100-tp8", 16, 512),
    }
    assert median(abs(one.error) for one in found) < 0.016
    assert max(abs(one.error) for one in found) < 0.22
    scattered = rough() & {one.place for one in found}
    assert len(scattered) == 11
    assert missed & scattered == {("llama2-70b-a100-tp4", 4, 512), ("llama2-70b-a100-tp8", 32, 512)}
    assert {("bloom-176b-a100-tp8", 1, 128), ("llama2-70b-a100-tp4", 4, 512)} <= rough()
    thirds = [one for one in held_out("prefill", 3) if one.is_inside]
    assert [abs(one.error) <= 0.1 for one in thirds].count(True) == 69
    assert len(thirds) == 78


def test_a_table_of_splitwise_is_converted() -> None:
    """Medians in seconds; a batch that ran in waves, end to end 16 times its sum, is left out."""
    lines = [
        "model,hardware,prompt_size,batch_size,token_size,peak_power,average_power,prompt_time,"
        "token_time,e2e_time,tensor_parallel",
        *(f"m,h,512,4,128,0,0,{ms},50,{ms + 6400},2" for ms in (300, 400, 900)),
        "m,h,512,64,128,0,0,800,67,160000,2",
        "m,h,512,64,128,0,0,700,60,8500,4",
    ]
    text = convert(lines, "m", "h", 2)
    assert '# rough = "prefill 4,0,2048: -25 to +125 %"' in text.splitlines()
    assert text.splitlines()[-3:] == [
        "task,batch,context_tokens,tokens,seconds",
        "decode,4,2304,,0.05",
        "prefill,4,0,2048,0.4",
    ]
    with pytest.raises(ValueError, match="no row of m on h, tensor parallel 8"):
        convert(lines, "m", "h", 8)

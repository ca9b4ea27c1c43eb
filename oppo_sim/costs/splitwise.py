"""The timings of splitwise-sim (data/perf_model.csv) as a table of measured times."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from oppo_sim.costs.measurements import COLUMNS

COMMIT = "8f99e7dc"
ROUGH = 0.1  # of the median: repetitions that are farther off are named


def convert(lines: Iterable[str], model: str, hardware: str, tensor_parallel: int) -> str:
    """The text of a table: medians over repetitions, prompts as prefill, token times as decode.

    In a row of theirs `batch_size` prompts of `prompt_size` tokens took `prompt_time` ms, and each
    of `token_size` tokens after that `token_time` ms on average: at the context of its middle.
    Batches that did not fit in memory at once are left out: all took over twice the sum of these.
    The header names the rows whose repetitions scatter.
    """
    wanted = (model, hardware, str(tensor_parallel))
    times: dict[tuple[str, int, int, int], list[float]] = defaultdict(list)
    for row in csv.DictReader(lines):
        if (row["model"], row["hardware"], row["tensor_parallel"]) != wanted:
            continue
        if _ran_in_waves(row):
            continue
        batch, prompt, made = (int(row[k]) for k in ("batch_size", "prompt_size", "token_size"))
        times["prefill", batch, 0, batch * prompt].append(float(row["prompt_time"]))
        middle = batch * (prompt + made // 2)
        times["decode", batch, middle, batch].append(float(row["token_time"]))
    if not times:
        raise ValueError(f"no row of {model} on {hardware}, tensor parallel {tensor_parallel}")
    header = {
        "machine": f"{tensor_parallel} x {hardware} of a DGX, tensor parallel, {model}",
        "versions": "not stated there",
        "date": "not stated there; published in 2024",
        "source": f"Mutinifni/splitwise-sim @ {COMMIT}, data/perf_model.csv; medians",
        "licence": "MIT, Copyright (c) 2024 Pratyush Patel: see splitwise-sim.LICENSE.txt",
        "rough": _rough(times),
    }
    rows = [
        f"{task},{batch},{context},{'' if task == 'decode' else tokens},{median(ms) / 1e3:.6g}"
        for (task, batch, context, tokens), ms in sorted(times.items())
    ]
    return "\n".join(
        [*(f'# {key} = "{value}"' for key, value in header.items()), ",".join(COLUMNS), *rows, ""]
    )


def _rough(times: Mapping[tuple[str, int, int, int], Sequence[float]]) -> str:
    """The rows with a repetition far from the median, as `task batch,context,tokens: from to`."""
    found = []
    for (task, *sizes), ms in sorted(times.items()):
        low, high = min(ms) / median(ms) - 1, max(ms) / median(ms) - 1
        if max(-low, high) > ROUGH:
            found.append(
                f"{task} {','.join(map(str, sizes))}: {100 * low:+.0f} to {100 * high:+.0f} %"
            )
    return "; ".join(found) or "none"


def _ran_in_waves(row: dict[str, str]) -> bool:
    once_ms = float(row["prompt_time"]) + float(row["token_time"]) * int(row["token_size"])
    return float(row["e2e_time"]) > 2 * once_ms

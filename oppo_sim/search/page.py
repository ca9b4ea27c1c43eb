"""A sweep as one page: hover, filter, and open a point's timeline, with no network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

import pandas as pd

from oppo_sim.analysis import canvas
from oppo_sim.search.axes import last_names
from oppo_sim.search.design import Design
from oppo_sim.search.pictures import on_front
from oppo_sim.search.problem import Problem
from oppo_sim.search.swept import Swept
from oppo_sim.search.timelines import STEPS, timeline

PAGE = "sweep.html"
MOST_TIMELINES = 60  # points, the best first, that have one
MOST_POINTS = 20_000
LOOKS = {
    "decode": canvas.SKY,
    "score": canvas.ORANGE,
    "train": canvas.GREEN,
    "sync": canvas.PURPLE,
}
METRICS = (
    ("step_s", "seconds per step"),
    ("speedup", "speed-up"),
    ("staleness", "staleness"),
    ("deferred_share", "share deferred"),
    ("length_bias", "length bias"),
    ("busy", "devices busy"),
    ("wasted_share", "share of tokens wasted"),
    ("kv_peak_tokens", "KV peak, tokens"),
    ("seeds", "seeds"),
)
INTERVALS = {"step_s": ("step_low_s", "step_high_s"), "speedup": ("speedup_low", "speedup_high")}


def page(swept: Swept, problem: Problem, design: Design, seed: int) -> str:
    """The HTML; plotly.js is in it. ValueError without the extra that has it.

    `design`: whose points the table is of, for it has as text what may be no text.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ModuleNotFoundError:
        raise ValueError(
            "--page needs plotly, which is not installed: pip install 'oppo-testbed[pages]'"
        ) from None
    template = files("oppo_sim").joinpath("data/pages/sweep.html").read_text(encoding="utf-8")
    data = json.dumps(_data(swept, problem, design, seed), allow_nan=False)
    parts = {
        "TITLE": escape(f"{swept.scenario}: {len(swept.table)} points"),
        "DATA": data.replace("<", "\\u003c"),  # no tag, no comment, none of these names
        "PLOTLY": str(get_plotlyjs()).replace("</script", "<\\/script"),
    }
    for name, text in parts.items():
        template = template.replace(f"<!--{name}-->", text)
    return template


def _data(swept: Swept, problem: Problem, design: Design, seed: int) -> dict[str, Any]:
    by = "speedup" if swept.baseline else "step_s"
    table = swept.table.sort_values(by, ascending=by == "step_s", kind="stable")
    table = table.head(MOST_POINTS)
    best = on_front(table)
    shown = [name for name, _ in METRICS if table[name].notna().any()]
    return {
        "scenario": swept.scenario,
        "baseline": swept.baseline,
        "axes": [{"path": path, "name": name} for path, name in last_names(swept.axes).items()],
        "metrics": [{"key": key, "name": name} for key, name in METRICS if key in shown],
        "points": [_point(row, swept.axes, shown) for _, row in table.iterrows()],
        "front": best["point"].tolist(),
        "timelines": _timelines(problem, design, seed, pd.concat([best, table])),
        "steps": STEPS,
        "looks": LOOKS,
        "seed": seed,
    }


def _point(row: Any, axes: Sequence[str], metrics: Sequence[str]) -> dict[str, Any]:
    intervals = {
        name: [_plain(row[low]), _plain(row[high])]
        for name, (low, high) in INTERVALS.items()
        if name in metrics
    }
    return {
        "id": int(row["point"]),
        "values": {axis: _plain(row[axis]) for axis in axes},
        "metrics": {name: _plain(row[name]) for name in metrics},
        "intervals": intervals,
    }


def _plain(value: Any) -> Any:
    """As JSON has it; what is not there is null."""
    if isinstance(value, str):
        return value
    if pd.isna(value):
        return None
    return value.item() if hasattr(value, "item") else value


def _timelines(
    problem: Problem, design: Design, seed: int, wanted: pd.DataFrame
) -> dict[int, dict[str, Any]]:
    kept = wanted["point"].drop_duplicates().head(MOST_TIMELINES)
    return {
        place: timeline(problem, design[place].values, seed).as_dict() for place in map(int, kept)
    }

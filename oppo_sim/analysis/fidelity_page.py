"""The page of a validation: steps real against simulated, timelines one over the other, tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from oppo_sim.analysis.fidelity import Fidelity, Pair
from oppo_sim.analysis.fidelity_grades import BARS, NOISY
from oppo_sim.records import Span

COLOURS = ("#3366aa", "#cc5533", "#339966", "#aa3377", "#bb8800", "#557788", "#774499", "#222222")
KINDS = {"decode": "#7aa6d8", "score": "#e5a04c", "train": "#7bb37b", "sync": "#999999"}
SIDE, EDGE = 420, 50  # of the scatter, in pixels
WIDE, ROW = 980, 16  # of a timeline
STEPS = 2  # that a timeline shows


def page(fidelity: Fidelity, about: Mapping[str, str], notes: Iterable[str] = ()) -> str:
    """A whole HTML document that needs nothing else. `about`: lines of its head."""
    document = fidelity.as_dict()
    firsts = {pair.schedule: pair for pair in reversed(fidelity.pairs)}
    parts = [
        "<h1>How wrong is the simulator?</h1>",
        _lines(about),
        _list(notes),
        _summary(document),
        _reading(),
        "<h2>Steps, real against simulated</h2>",
        _scatter(fidelity),
        "<h2>By schedule</h2>",
        _schedules(document["schedules"]),
        "<h2>By command and stage: seconds per step, real, simulated, error</h2>",
        _parts(document["schedules"]),
        "<h2>Timelines: real above, simulated below</h2>",
        *[_timeline(firsts[name], fidelity.warmup) for name in fidelity.schedules],
    ]
    style = (
        "body{font:14px/1.4 sans-serif;max-width:1000px;margin:2em auto;color:#222}"
        "table{border-collapse:collapse}td,th{padding:2px 10px;text-align:right;"
        "border-bottom:1px solid #ddd}td:first-child,th:first-child{text-align:left}"
        "svg{display:block;margin:6px 0}"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>How wrong is the simulator?</title><style>{style}</style></head><body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _lines(about: Mapping[str, str]) -> str:
    return "<p>" + "<br>".join(f"{escape(k)}: {escape(v)}" for k, v in about.items()) + "</p>"


def _list(notes: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f"<ul>{items}</ul>" if items else ""


def _summary(document: Mapping[str, Any]) -> str:
    rows = [
        ("grade", document["grade"]),
        ("median absolute error of a step", percent(document["median_abs_error"])),
        ("the same, worst schedule", percent(document["worst_abs_error"])),
        ("largest error of a speed-up", percent(document["speedup_error"])),
        ("spread of a step's repeats", percent(document["repeat_spread"])),
        ("Kendall's tau", plain(document["tau"])),
        ("pairs of schedules that it is over", str(document["pairs"])),
    ]
    return _table(("", ""), rows)


def _reading() -> str:
    scale = "; ".join(
        f"{bar.grade}: {bar.median:.0%}, {bar.worst:.0%}, {bar.speedup:.0%}, {bar.tau:g}"
        for bar in BARS
    )
    return (
        "<p>An error is simulated / real - 1: above 0 the simulator was too slow. Commands are "
        "what lanes did, whatever else ran meanwhile; stages are what a step waited for. The grade "
        "is the worst of four: median error of a step, that of the worst schedule, the largest "
        f"error of a speed-up, tau ({escape(scale)}; else F). A median need not be below the "
        f"spread of a step's repeats, if that is at most {NOISY:.0%}.</p>"
    )


def step_cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    """A schedule's name, its seconds per step, real and simulated, and how they differ."""
    return (
        one["schedule"],
        f"{one['real_s']:.3f}",
        f"{one['sim_s']:.3f}",
        percent(one["error"], signed=True),
        percent(one["median_abs_error"]),
        percent(one["run_spread"]),
    )


def _range(speedup: Mapping[str, float]) -> str:
    """With the least and the most of its rounds, where there are several."""
    low, high = speedup["low"], speedup["high"]
    rounds = "" if low == high else f" ({low:.3f} to {high:.3f})"
    return f"{speedup['real']:.3f}{rounds}"


def _schedules(schedules: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for one in schedules:
        speedup, drawn = one["speedup"], one["drawn"]
        rows.append(
            (
                *step_cells(one),
                _range(speedup),
                f"{speedup['simulated']:.3f}",
                percent(speedup["error"], signed=True),
                "-" if drawn is None else f"{drawn['sim_s']:.3f}",
                "-" if drawn is None else percent(drawn["error"], signed=True),
            )
        )
    head = ("schedule", "real s", "simulated s", "error", "median |error|", "repeats' spread")
    speed = ("speed-up, real", "simulated", "error", "drawn lengths s", "error")
    return _table((*head, *speed), rows)


def _parts(schedules: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for one in schedules:
        for group in ("commands", "stages"):
            for name, both in one[group].items():
                if both["real_s"] or both["sim_s"]:
                    error = percent(both["error"], signed=True)
                    times = f"{both['real_s']:.3f}", f"{both['sim_s']:.3f}"
                    rows.append((one["schedule"], name, *times, error))
    return _table(("schedule", "command or stage", "real s", "simulated s", "error"), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["".join(f"<th>{escape(cell)}</th>" for cell in head)]
    lines += ["".join(f"<td>{escape(str(cell))}</td>" for cell in row) for row in rows]
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def _scatter(fidelity: Fidelity) -> str:
    most = 1.05 * max(max(step.real_s, step.sim_s) for step in fidelity.steps)

    def x(seconds: float) -> float:
        return EDGE + seconds / most * SIDE

    def y(seconds: float) -> float:
        return EDGE / 2 + SIDE - seconds / most * SIDE

    colours = dict(zip(fidelity.schedules, COLOURS * len(fidelity.schedules), strict=False))
    marks = [
        f'<circle cx="{x(step.real_s):.1f}" cy="{y(step.sim_s):.1f}" r="3.5" fill-opacity="0.7" '
        f'fill="{colours[step.schedule]}"><title>{escape(step.schedule)}, repeat {step.repeat}, '
        f"step {step.step}: {step.real_s:.3f} s, simulated {step.sim_s:.3f} s</title></circle>"
        for step in fidelity.steps
    ]
    lines = [
        f'<line x1="{x(0):.1f}" y1="{y(0):.1f}" x2="{x(most / max(factor, 1)):.1f}" '
        f'y2="{y(min(most, most * factor)):.1f}" stroke="#888" stroke-dasharray="{dash}"/>'
        for factor, dash in ((1.0, "none"), (1.1, "4 4"), (0.9, "4 4"))
    ]
    ticks = [most * share / 4 for share in range(5)]
    axes = [
        f'<text x="{x(t):.1f}" y="{y(0) + 16:.1f}" text-anchor="middle">{t:.2g}</text>'
        f'<text x="{x(0) - 6:.1f}" y="{y(t) + 4:.1f}" text-anchor="end">{t:.2g}</text>'
        for t in ticks
    ]
    names = [
        f'<circle cx="{x(most) + 20:.0f}" cy="{40 + 18 * n}" r="5" fill="{colour}"/>'
        f'<text x="{x(most) + 30:.0f}" y="{44 + 18 * n}">{escape(name)}</text>'
        for n, (name, colour) in enumerate(colours.items())
    ]
    words = (
        f'<text x="{EDGE + SIDE / 2}" y="{SIDE + EDGE + 8}" text-anchor="middle">'
        "real seconds</text>"
        f'<text transform="translate(12 {SIDE / 2 + 20}) rotate(-90)" text-anchor="middle">'
        "simulated seconds</text>"
    )
    size = f'width="{SIDE + EDGE + 220}" height="{SIDE + EDGE + 16}"'
    inside = "".join([*lines, *axes, *marks, *names, words])
    return f'<svg {size} font-size="12" role="img" aria-label="scatter">{inside}</svg>'


def _timeline(pair: Pair, warmup: int) -> str:
    """Lanes of both runs over a few steps, each from the start of its own first one."""
    last = warmup + STEPS - 1
    sides = [(name, run) for name, run in (("real", pair.real), ("simulated", pair.simulated))]
    starts = [run.steps[warmup].start_s for _, run in sides]
    ends = [run.steps[min(last, len(run.steps) - 1)].end_s for _, run in sides]
    most = max(end - start for start, end in zip(starts, ends, strict=True))
    lanes = sorted(
        {(_RANK[span.kind], span.lane, span.kind) for span in pair.real.spans if span.kind in _RANK}
    )
    drawn, height = [], 0
    for _, lane, kind in lanes:
        for (name, run), start in zip(sides, starts, strict=True):
            spans = [s for s in run.spans if s.lane == lane and s.kind == kind]
            drawn.append(
                f'<text x="0" y="{height + 12}">{escape(lane)}, {name}</text>'
                + "".join(_bar(span, start, most, height) for span in spans)
            )
            height += ROW
        height += 4
    title = f"<h3>{escape(pair.schedule)}</h3>"
    return (
        f'{title}<svg width="{WIDE}" height="{height + 4}" font-size="11" role="img" '
        f'aria-label="timeline">{"".join(drawn)}</svg>'
    )


_RANK = {"decode": 0, "score": 1, "train": 2}


def _bar(span: Span, start_s: float, most: float, height: int) -> str:
    left, room = 120, WIDE - 120
    begin = max(0.0, (span.start_s - start_s) / most)
    end = min(1.0, (span.end_s - start_s) / most)
    if end <= begin:
        return ""
    return (
        f'<rect x="{left + begin * room:.1f}" y="{height + 2}" width="{(end - begin) * room:.1f}" '
        f'height="{ROW - 3}" fill="{KINDS[span.kind]}" stroke="#fff" stroke-width="0.5"/>'
    )


def percent(share: float | None, *, signed: bool = False) -> str:
    if share is None:
        return "-"
    return f"{share:+.1%}" if signed else f"{share:.1%}"


def plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"

"""Step time against a fixed chunk size: the paper's chunk-size figure, and what bends it."""

from __future__ import annotations

from matplotlib.figure import Figure

from experiments import chart
from experiments.result import Experiment, Result, Row
from experiments.runs import Variant, simulated

SCENARIO = "stackexchange-7b"
CHUNKS = (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048)  # the last one is the cap
QUICK = (32, 256, 2048)
PAPER = 500  # tokens: the paper's fastest; 100 and 3000 were slower
FREE: dict[str, object] = {"costs.round_s": 0.0}
AT_ONCE: dict[str, object] = {"flush": "rollout"}
CURVES: tuple[tuple[str, dict[str, object], dict[str, object]], ...] = (
    ("a round's end costs 0.5 s, finished rows wait for it", {}, {}),
    ("a round's end is free", FREE, {}),
    ("finished rows do not wait (flush by rollout)", {}, AT_ONCE),
    ("neither cost nor wait", FREE, AT_ONCE),
)
SCHEDULES = ("intra", "oppo")


def run(quick: bool) -> Result:
    chunks = QUICK if quick else CHUNKS
    places = [(s, curve, c) for s in SCHEDULES for curve in range(len(CURVES)) for c in chunks]
    variants = [
        Variant(SCENARIO, s, {"chunk": c, **CURVES[curve][2]}, CURVES[curve][1])
        for s, curve, c in places
    ]
    found = simulated(variants, seeds=1 if quick else 2, steps=15 if quick else 120)
    runs = dict(zip(places, found, strict=True))
    rows: list[Row] = []
    for (schedule, curve, chunk), each in runs.items():
        mean, low, high = each.step_s
        rows.append(
            {
                "scenario": SCENARIO,
                "schedule": schedule,
                "curve": CURVES[curve][0],
                "chunk_tokens": chunk,
                "step_s": mean,
                "low_s": low,
                "high_s": high,
            }
        )
    curves = {
        (s, curve): {c: runs[s, curve, c].step_s.mean for c in chunks}
        for s in SCHEDULES
        for curve in range(len(CURVES))
    }
    return Result(rows, _draw(curves), _text(curves))


def _draw(curves: dict[tuple[str, int], dict[int, float]]) -> Figure:
    figure, axes = chart.panels(2, height=4.9)
    for panel, schedule in zip(axes, SCHEDULES, strict=True):
        for place, (label, *_) in enumerate(CURVES):
            curve = curves[schedule, place]
            dashed = "-" if place == 0 else "--"
            chart.line(panel, place, list(curve), list(curve.values()), label=label, ls=dashed)
        best = min(curves[schedule, 0], key=curves[schedule, 0].__getitem__)
        panel.plot(best, curves[schedule, 0][best], "o", ms=11, mfc="none", color=chart.COLOURS[0])
        panel.axvline(PAPER, color="grey", lw=0.8, ls=":")
        panel.text(PAPER * 1.05, 0.02, "paper's fastest: 500", size=7, color="dimgrey",
                   transform=panel.get_xaxis_transform())  # fmt: skip
        chart.tokens_axis(panel, list(curve), "chunk (response tokens; 2,048 = the cap)")
        panel.set_title(f"schedule {schedule}: {best} tokens are the fastest", loc="left")
        panel.set_ylabel("seconds per PPO step")
        panel.margins(y=0.12)
    axes[0].legend(fontsize=7.5, loc="upper right")
    chart.caption(
        figure,
        f"Scenario {SCENARIO}, B = 112, 7 + 1 H200, a fixed chunk in place of the probe. Seconds "
        "depend on assumed efficiencies; compare shapes. The vertical axes do not begin at 0.",
    )
    return figure


def _text(curves: dict[tuple[str, int], dict[int, float]]) -> list[str]:
    said = [
        f"On {SCENARIO} the chunk was fixed, from {min(curves['intra', 0])} tokens to the response "
        "cap, and everything else kept."
    ]
    for schedule in SCHEDULES:
        base, free, at_once, neither = (curves[schedule, place] for place in range(4))
        chunks = list(base)
        best = min(base, key=base.__getitem__)
        inside = "a U" if chunks[0] < best < chunks[-1] else "no U"
        said.append(
            f"{schedule}: {inside}; {best} tokens are the fastest ({base[best]:.1f} s per step), "
            f"{chunks[0]} cost {base[chunks[0]] / base[best] - 1:+.0%}, the whole response "
            f"{base[chunks[-1]] / base[best] - 1:+.0%}."
        )
        said.append(
            f"If a round's end is free, {_near(free)} tokens are within 1 % of the fastest; if "
            f"finished rows do not wait for it, {_near(at_once)}; with neither the curve spans "
            f"{max(neither.values()) / min(neither.values()) - 1:.1%}."
        )
    best = min(curves["intra", 0], key=curves["intra", 0].__getitem__)
    place = "is" if 200 <= best <= 1000 else "is not"
    said.append(
        "So intra's left arm is the price of a round's end, its right arm the wait of finished "
        "rows for it."
        if _is_explained(curves)
        else "The two causes that were taken away do not explain both arms here."
    )
    said.append(
        f"The paper's fastest chunk was {PAPER}, with 100 and 3,000 slower; intra's optimum here, "
        f"{best}, {place} within 200 to 1,000 ({_near(curves['intra', 0])} are within 1 % of it). "
        "Where it lies follows from the 0.5 s per round's "
        "end, which is assumed."
    )
    return said


def _near(curve: dict[int, float]) -> str:
    """The chunks within 1 % of the fastest."""
    near = [chunk for chunk, seconds in curve.items() if seconds <= 1.01 * min(curve.values())]
    return ", ".join(map(str, near))


def _is_explained(curves: dict[tuple[str, int], dict[int, float]]) -> bool:
    """Each arm of intra's curve loses most of its height when its cause is taken away."""

    def height(place: int, chunk: int) -> float:
        curve = curves["intra", place]
        return curve[chunk] / min(curve.values()) - 1

    first, last = min(curves["intra", 0]), max(curves["intra", 0])
    left = height(1, first) < 0.25 * height(0, first)
    return left and height(2, last) < 0.25 * height(0, last)


EXPERIMENT = Experiment("chunk_size", "Which chunk size makes a step fastest, and why?", 2, run)

"""Step time against a fixed chunk size: the paper's chunk-size figure, and what bends it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import chart
from experiments.result import Experiment, Finding, Result, Row
from experiments.runs import Runs, Variant, simulated
from oppo_sim.config import load_scenario

SCENARIO = "stackexchange-7b"
CHUNKS = (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024)  # and the cap: the whole response
QUICK = (32, 256)
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
Place = tuple[str, int, int]  # schedule, place in CURVES, chunk


def run(quick: bool) -> Result:
    cap = load_scenario(SCENARIO).workload.max_response_tokens
    chunks = [*(c for c in (QUICK if quick else CHUNKS) if c < cap), cap]
    places = [(s, curve, c) for s in SCHEDULES for curve in range(len(CURVES)) for c in chunks]
    variants = [
        Variant(SCENARIO, s, {"chunk": c, **CURVES[curve][2]}, CURVES[curve][1])
        for s, curve, c in places
    ]
    found = simulated(variants, seeds=1, steps=15 if quick else 100)
    runs = dict(zip(places, found, strict=True))
    curves = {
        (s, curve): {c: runs[s, curve, c].step_s.mean for c in chunks}
        for s in SCHEDULES
        for curve in range(len(CURVES))
    }
    added = {(s, c): _added(runs, s, c) for s in SCHEDULES for c in chunks}
    rows = [_row(place, each) for place, each in runs.items()]
    text = [*_text(curves), *_causes(curves, added), *_scorer(runs)]
    return Result(rows, _draw(curves, added), text, judged(curves))


class Added(NamedTuple):
    """Seconds of a step that the chunk decides."""

    stalls: float  # of the actors at the ends of rounds, as far as generation takes longer
    exposed: float  # scoring after the last finish of the batch

    @property
    def sum(self) -> float:
        return self.stalls + self.exposed


def _added(runs: Mapping[Place, Runs], schedule: str, chunk: int) -> Added:
    base, free = (runs[schedule, curve, chunk] for curve in (0, 1))
    stalls = base.stage_s("generation") - free.stage_s("generation")
    return Added(stalls, base.stage_s("scoring"))


def _row(place: Place, runs: Runs) -> Row:
    schedule, curve, chunk = place
    mean, low, high = runs.step_s
    return {
        "scenario": SCENARIO,
        "schedule": schedule,
        "curve": CURVES[curve][0],
        "chunk_tokens": chunk,
        "step_s": mean,
        "low_s": low,
        "high_s": high,
        "generation_s": runs.stage_s("generation"),
        "exposed_scoring_s": runs.stage_s("scoring"),
        "waiting_s": runs.stage_s("waiting"),
        "scorer_s": runs.metrics[0].score_s,
        "hidden_score_share": runs.metrics[0].hidden_score_share,
    }


def _draw(
    curves: dict[tuple[str, int], dict[int, float]], added: Mapping[tuple[str, int], Added]
) -> Figure:
    figure, axes = chart.panels(3, width=13.5, height=4.9)
    _draw_added(axes[2], {chunk: each for (s, chunk), each in added.items() if s == "intra"})
    for panel, schedule in zip(axes[:2], SCHEDULES, strict=True):
        for place, (label, *_) in enumerate(CURVES):
            curve = curves[schedule, place]
            dashed = "-" if place == 0 else "--"
            chart.line(panel, place, list(curve), list(curve.values()), label=label, ls=dashed)
        best = min(curves[schedule, 0], key=curves[schedule, 0].__getitem__)
        panel.plot(best, curves[schedule, 0][best], "o", ms=11, mfc="none", color=chart.COLOURS[0])
        panel.axvline(PAPER, color="grey", lw=0.8, ls=":")
        panel.text(PAPER * 1.05, 0.02, "paper's fastest: 500", size=7, color="dimgrey",
                   transform=panel.get_xaxis_transform())  # fmt: skip
        chart.tokens_axis(panel, list(curve), "chunk (response tokens; the last one is the cap)")
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


def _draw_added(panel: Axes, added: Mapping[int, Added]) -> None:
    chunks = list(added)
    for look, (label, values) in enumerate(
        (
            ("both", [each.sum for each in added.values()]),
            ("stalls at the ends of rounds", [each.stalls for each in added.values()]),
            ("scoring after the last finish", [each.exposed for each in added.values()]),
        )
    ):
        chart.line(panel, look, chunks, values, label=label, ls="--" if look else "-")
    chart.tokens_axis(panel, chunks, "chunk (response tokens; the last one is the cap)")
    panel.set_title("schedule intra: what the chunk adds to a step", loc="left")
    panel.set_ylabel("seconds")
    panel.set_ylim(bottom=0)
    panel.legend(fontsize=7.5, loc="upper center")


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


def _causes(
    curves: dict[tuple[str, int], dict[int, float]], added: Mapping[tuple[str, int], Added]
) -> list[str]:
    """Both arms in seconds."""
    said = []
    for schedule in SCHEDULES:
        base = curves[schedule, 0]
        best = min(base, key=base.__getitem__)
        listed = "; ".join(
            f"{chunk} tokens: {added[schedule, chunk].stalls:.1f} s of stalls and "
            f"{added[schedule, chunk].exposed:.1f} s of scoring after the last finish"
            for chunk in dict.fromkeys((min(base), best, max(base)))
        )
        said.append(f"In seconds per step, {schedule}: {listed}.")
    base = curves["intra", 0]
    rest = [base[chunk] - added["intra", chunk].sum for chunk in base]
    said.append(
        f"The rest of intra's step is {min(rest):.1f} to {max(rest):.1f} s at any chunk. A stall "
        "of 0.5 s comes once per chunk of the longest response; with the whole response as the "
        "chunk the scorer begins when all is decoded."
    )
    return said


def _scorer(runs: Mapping[Place, Runs]) -> list[str]:
    """What smaller chunks cost the scorer, and why oppo wants them smaller."""
    chunks = sorted({chunk for _, _, chunk in runs})
    small, large = (runs["intra", 0, chunk].metrics[0] for chunk in (chunks[0], chunks[-1]))
    hidden = small.hidden_score_share or 0.0
    seconds = {s: runs[s, 1, chunks[-1]].stage_s("generation") for s in SCHEDULES}
    return [
        "The scorer makes no arm: no device both decodes and scores here, so there is no "
        f"contention, and the calls for chunks of {chunks[0]} tokens keep it busy "
        f"{small.score_s:.1f} s instead of {large.score_s:.1f}, of which {hidden:.0%} is hidden.",
        f"oppo wants smaller chunks than intra because it generates in {seconds['oppo']:.1f} s "
        f"instead of {seconds['intra']:.1f}: fewer rounds to pay for, and the scorer has to begin "
        f"early to hide its {large.score_s:.1f} s.",
    ]


def judged(curves: dict[tuple[str, int], dict[int, float]]) -> Finding:
    """Whether intra's fastest chunk lies inside, and where (row C1).

    "confirmed": between 200 and 1,000 tokens, with the smallest chunk and the whole response slower
    by more than 1 %; "corrected": elsewhere, or one end is as fast.
    """
    base = curves["intra", 0]
    best, slower = min(base, key=base.__getitem__), 1.01 * min(base.values())
    inside = min(base[min(base)], base[max(base)]) > slower
    return Finding(
        f"A chunk of about {PAPER} tokens is the fastest; small and large ones are slower (C1).",
        "confirmed" if inside and 200 <= best <= 1000 else "corrected",
        {
            "intra: fastest chunk, tokens": best,
            f"intra: {min(base)} tokens, slower by": base[min(base)] / base[best] - 1,
            "intra: the whole response, slower by": base[max(base)] / base[best] - 1,
            "oppo: fastest chunk, tokens": min(
                curves["oppo", 0], key=curves["oppo", 0].__getitem__
            ),
        },
    )


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


EXPERIMENT = Experiment("chunk_size", "Which chunk size makes a step fastest, and why?", 1, run)

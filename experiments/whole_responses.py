"""Handing over whole responses as they finish, against the paper's chunks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from matplotlib.figure import Figure

from experiments import chart
from experiments.result import Experiment, Finding, Result, Row, Verdict
from experiments.runs import Runs, Variant, simulated
from oppo_sim.analysis.intervals import Mean

SCENARIOS = ("stackexchange-7b", "stackexchange-3b", "opencoder-3b", "gsm8k-7b")
QUICK = SCENARIOS[:1]
ROUNDS_S = (0.0, 0.1, 0.5, 1.0, 2.0)  # what a round's end costs
PAID = 0.5  # what the scenarios assume, as chosen for the paper's fastest chunk
LEVEL = 0.01  # of a step: closer than that is the same
# without and with overcommitment: nothing handed over early, whole responses, chunks
SYSTEMS = {
    "without": ("trl", "response", "intra"),
    "with": ("inter", "response", "oppo"),
}
FLUSHES = ("round", "rollout")  # a finished response's last chunk waits for the round's end, or not
Place = tuple[str, str, str, str, float | None]  # scenario, beyond, schedule, flush, round_s


class Case(NamedTuple):
    """A scenario with or without overcommitment, and the runs of its ways to hand over."""

    none: Runs
    response: Runs
    chunks: Mapping[tuple[str, float], Runs]  # by flush and what a round's end costs

    def over_chunks(self, flush: str, round_s: float) -> Mean:
        """How many times as fast whole responses are as chunks."""
        return self.response.gain(self.chunks[flush, round_s])

    def rounds_s(self) -> list[float]:
        return sorted({at for _, at in self.chunks})


Cases = Mapping[tuple[str, str], Case]


def run(quick: bool) -> Result:
    rounds = (0.0, PAID) if quick else ROUNDS_S
    places: list[Place] = []
    for scenario in QUICK if quick else SCENARIOS:
        for beyond, (none, response, chunks) in SYSTEMS.items():
            places += [(scenario, beyond, each, "rollout", None) for each in (none, response)]
            places += [(scenario, beyond, chunks, how, at) for how in FLUSHES for at in rounds]
    found = simulated([_variant(*place) for place in places], 1, 15 if quick else 120)
    runs = dict(zip(places, found, strict=True))
    cases = {key: _case(runs, *key) for key in dict.fromkeys(place[:2] for place in places)}
    finding = judged(cases)
    rows = [_row(place, each) for place, each in runs.items()]
    return Result(rows, _draw(cases), _text(cases, finding), finding)


def _variant(
    scenario: str, beyond: str, schedule: str, flush: str, round_s: float | None
) -> Variant:
    keys: dict[str, object] = {} if round_s is None else {"costs.round_s": round_s}
    axes: dict[str, object] = {} if round_s is None else {"flush": flush}
    if schedule == "response" and beyond == "without":
        axes["overcommit"] = 0
    return Variant(scenario, schedule, axes, keys)


def _case(runs: Mapping[Place, Runs], scenario: str, beyond: str) -> Case:
    none, response, chunks = SYSTEMS[beyond]
    streamed = {
        (flush, at): each
        for (s, b, schedule, flush, at), each in runs.items()
        if (s, b, schedule) == (scenario, beyond, chunks) and at is not None
    }
    own = (runs[scenario, beyond, each, "rollout", None] for each in (none, response))
    return Case(*own, streamed)


def _row(place: Place, runs: Runs) -> Row:
    scenario, beyond, schedule, flush, round_s = place
    return {
        "scenario": scenario,
        "overcommitment": beyond,
        "schedule": schedule,
        "flush": flush,
        "round_s": round_s,
        "step_s": runs.step_s.mean,
        "generation_s": runs.stage_s("generation"),
        "exposed_scoring_s": runs.stage_s("scoring"),
    }


def judged(cases: Cases) -> Finding:
    """Whether chunks are needed where OPPO overcommits, at PAID seconds per round's end.

    "confirmed": chunks as the paper has them are faster by more than LEVEL in every scenario that
    has anything to stream; "corrected": whole responses are at least level with them in every one.
    """
    held = {s: case for (s, beyond), case in cases.items() if beyond == "with" and streams(case)}
    numbers: dict[str, float | None] = {}
    for scenario, case in held.items():
        for flush, at, words in (
            ("round", PAID, f"at {PAID:g} s a round"),
            ("round", 0.0, "rounds free"),
            ("rollout", PAID, f"at {PAID:g} s, no response waits for a round"),
            ("rollout", 0.0, "rounds free, no response waits for one"),
        ):
            key = f"{scenario}: whole responses over chunks, {words}"
            numbers[key] = case.over_chunks(flush, at).mean
    return Finding(
        "Chunks are needed: sending each finished response at once would not be enough.",
        verdict([case.over_chunks("round", PAID).mean for case in held.values()]),
        numbers,
    )


def verdict(ratios: Sequence[float]) -> Verdict:
    """From how many times as fast whole responses are as chunks."""
    if ratios and all(ratio < 1 - LEVEL for ratio in ratios):
        return "confirmed"
    return "corrected" if ratios and all(ratio > 1 - LEVEL for ratio in ratios) else "undecided"


def streams(case: Case) -> bool:
    """Whether there is anything to hand over early: scoring that a step waits for."""
    return case.none.stage_s("scoring") > 5 * LEVEL * case.none.step_s.mean


def crossing(points: Sequence[tuple[float, float]]) -> float | None:
    """Where whole responses overtake chunks, by straight lines between (round_s, times as fast)."""
    for (at, low), (to, high) in pairwise(points):
        if low <= 1 < high:
            return at + (to - at) * (1 - low) / (high - low)
    return None


def _draw(cases: Cases) -> Figure:
    figure, axes = chart.panels(2, width=10.5, height=4.8, sharey=True)
    scenarios = list(dict.fromkeys(s for s, _ in cases if streams(cases[s, "with"])))
    titles = ("without overcommitment (against intra)", "with overcommitment (against oppo)")
    for panel, beyond, title in zip(axes, SYSTEMS, titles, strict=True):
        for look, scenario in enumerate(scenarios):
            case = cases[scenario, beyond]
            for flush, style in zip(FLUSHES, ("-", "--"), strict=True):
                y = [case.over_chunks(flush, at).mean for at in case.rounds_s()]
                waits = "a round" if flush == "round" else "nothing"
                label = f"{scenario}; finished chunks wait for {waits}"
                chart.line(panel, look, case.rounds_s(), y, ls=style, label=label)
        panel.axhline(1.0, color="black", lw=0.8)
        panel.set_xlabel(f"seconds that a round's end costs an actor (assumed: {PAID:g})")
        panel.set_title(title, loc="left")
    axes[0].set_ylabel("whole responses, times as fast as chunks")
    axes[1].legend(fontsize=7, loc="upper left")
    axes[0].set_ylim(top=axes[0].get_ylim()[1] * 1.12)
    chart.caption(
        figure,
        "Above 1: sending each response when it is finished makes steps shorter than streaming its "
        "chunks, of the sizes that each scenario's own rule picks. Whole responses need no rounds.",
    )
    return figure


def _text(cases: Cases, finding: Finding) -> list[str]:
    said = [
        "Each finished response was sent to the scorer at once (schedule response), and compared "
        "with chunks (intra, oppo) and with handing over the whole batch (trl, inter)."
    ]
    for (scenario, beyond), case in cases.items():
        if not streams(case):
            said.append(
                f"{scenario}, {beyond} overcommitment: a step waits "
                f"{case.none.stage_s('scoring'):.1f} s for scoring, so there is hardly anything to "
                "stream."
            )
            continue
        gains = {key: runs.gain(case.none).mean for key, runs in case.chunks.items()}
        said.append(
            f"{scenario}, {beyond} overcommitment: whole responses are "
            f"{case.response.gain(case.none).mean:.2f} times as fast as a batch handed over at its "
            f"end; chunks {gains['round', PAID]:.2f} times at {PAID:g} s per round's end, "
            f"{gains['round', 0.0]:.2f} if that is free; {gains['rollout', PAID]:.2f} and "
            f"{gains['rollout', 0.0]:.2f} if a finished response's last chunk does not wait for "
            f"its round ({_level(case)})."
        )
    said.append(
        {
            "confirmed": "So whole responses would not be enough where OPPO overcommits, even if "
            f"every round costs a stall of {PAID:g} s.",
            "corrected": "So where OPPO overcommits, whole responses are enough here.",
            "undecided": "So it depends on the set-up whether whole responses are enough.",
        }[finding.verdict]
    )
    ideal = [case.over_chunks("rollout", 0.0).mean for case in cases.values() if streams(case)]
    if ideal and all(abs(ratio - 1) < 2 * LEVEL for ratio in ideal):
        said.append(
            f"Chunks that wait for nothing and cost nothing are level with whole responses (within "
            f"{2 * LEVEL:.0%}) everywhere, so what chunks lose is the wait of finished responses "
            "for the ends of rounds, and the price of those."
        )
    said.append(
        "What a round's end costs is assumed: nobody has published it. A token costs the same "
        "to score in a chunk as in a whole response."
    )
    return said


def _level(case: Case) -> str:
    """At which cost whole responses are level with chunks that wait for nothing."""
    points = [(at, case.over_chunks("rollout", at).mean) for at in case.rounds_s()]
    level = crossing(points)
    if level is not None:
        return f"level with whole responses at {level:.2f} s"
    faster = "slower than" if points[0][1] > 1 else "faster than"
    return f"{faster} whole responses from {points[0][0]:g} to {points[-1][0]:g} s"


EXPERIMENT = Experiment(
    "whole_responses", "Would sending each finished response at once be enough?", 1, run
)

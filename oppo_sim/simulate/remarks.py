"""What a scenario quietly takes from a schedule, or from lengths of one's own, and the remedy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from oppo_sim.config import Scenario
from oppo_sim.config.bounds import MOST_TOKENS
from oppo_sim.costs.layout import Layout
from oppo_sim.policies import Schedule
from oppo_sim.policies.chunk import sizes
from oppo_sim.workload import Constant, Endless, QuantileTable, Replay
from oppo_sim.workload.lengths import Lengths
from oppo_sim.workload.loads import ALMOST_ONE, lengths_alone

CAP = "workload.max_response_tokens"
MOST_OF_A_LAW = 0.999  # a law has no longest response
GRID = (np.arange(1 << 16) + 0.5) / (1 << 16)


def remarks(
    scenario: Scenario, schedules: Sequence[Schedule], *, draws_lengths: bool = True
) -> list[str]:
    """A sentence for each; `draws_lengths`: responses have the workload's lengths, no model's."""
    found = [_cut(scenario) if draws_lengths else None, *_unstreamed(scenario, schedules)]
    return [text for text in (*found, _in_turns(scenario, schedules)) if text is not None]


def _cut(scenario: Scenario) -> str | None:
    """Lengths of the user's own that a cap cuts which the user did not set beside them."""
    changed, cap = scenario.changed, scenario.workload.max_response_tokens
    chosen = any(key.startswith("workload.lengths") for key in changed)
    lengths = scenario.workload.lengths
    if CAP in changed or lengths is None or not (chosen or lengths.file):
        return None
    source = lengths_alone(scenario).lengths
    if isinstance(source, Replay):  # never cut
        return None
    source = source.body if isinstance(source, Endless) else source
    needed, kept = _needed(source)
    if needed <= cap:
        return None
    share = float((source.ppf(GRID) > cap).mean())
    said = f"{share:.1%}" if share >= 0.001 else "less than 0.1%"
    return (
        f"{said} of workload.lengths are longer than {CAP} = {cap} and are cut there: "
        f"--set {CAP}={needed} keeps {kept}"
    )


def _needed(source: Lengths) -> tuple[int, str]:
    """The cap that cuts none, or next to none, of what the source knows."""
    if isinstance(source, Constant | QuantileTable):
        longest = int(source.ppf(np.array([ALMOST_ONE]))[0])
        return min(longest, source.known_tokens or longest), "them whole"
    tokens = int(source.ppf(np.array([MOST_OF_A_LAW]))[0])
    return min(tokens, MOST_TOKENS), f"{MOST_OF_A_LAW:.1%} of them whole"


def _unstreamed(scenario: Scenario, schedules: Sequence[Schedule]) -> list[str]:
    """Rounds as long as the longest response: a lane hands nothing over before it runs dry."""
    cap = scenario.workload.max_response_tokens
    if cap == 1 or (scenario.models is not None and not scenario.models.scored):
        return []  # nothing can be streamed, or there is nothing to stream to
    begins_dry = Layout(scenario.cluster).trains_on_actors
    names: dict[tuple[int, ...], list[str]] = {}
    for schedule in schedules:
        chunks = sizes(schedule.chunk)
        by_rounds = schedule.scoring != "batch" and schedule.flush == "round"
        tops_up = schedule.refill == "event" or not (begins_dry or _in_batches(schedule))
        if by_rounds and not tops_up and chunks and min(chunks) >= cap:
            names.setdefault(chunks, []).append(schedule.name)
    return [
        f"{', '.join(who)}: no chunk ({', '.join(map(str, chunks))} tokens) is below {CAP} = "
        f"{cap}, so nothing is streamed: --set schedule.chunk={max(cap // 4, 1)}, or a smaller "
        "chunk in the schedule's own file"
        for chunks, who in names.items()
    ]


def _in_batches(schedule: Schedule) -> bool:
    """None begins before the batch of the step before has ended."""
    return schedule.ahead == 0 and schedule.overcommit_policy.most == 0


def _in_turns(scenario: Scenario, schedules: Sequence[Schedule]) -> str | None:
    """Batches ahead, so as to train beside generation, where both need the same devices."""
    if not Layout(scenario.cluster).trains_on_actors:
        return None
    ahead = [one.name for one in schedules if one.ahead and one.stop == "train"]
    if not ahead:
        return None
    return (
        f"{', '.join(ahead)}: generating ahead is meant to run beside training, but the trainer "
        f"has the actors' devices, so they take turns: give it its own, {_own_devices(scenario)}"
    )


def _own_devices(scenario: Scenario) -> str:
    """What to set; on as many devices if an actor can be spared."""
    cluster, own = scenario.cluster, "--set cluster.trainer_devices=1"
    if cluster.placement == "colocated":
        return "with placement = 'split' and trainer_devices in [cluster]"
    if cluster.actor_devices + cluster.scorer_devices < cluster.devices:
        return own
    if cluster.actors > 1:
        return f"{own} --set cluster.actors={cluster.actors - 1}"
    return f"{own} --set cluster.devices={cluster.devices + cluster.nodes}"

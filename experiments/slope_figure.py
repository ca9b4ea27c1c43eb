"""The figure of the reward-slope controller: D over training, at convergence, and its price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import chart

GROUP = 20  # steps in a point of D over training
Key = tuple[str, str, float]  # step rule, reward curve, noise


def draw(
    traces: Mapping[Key, Sequence[int]],
    rising: Mapping[Key, float],
    flat: Mapping[str, float],
    step_s: Mapping[str, float],
    most: int,
    assumed: float,
    scenario: str,
) -> Figure:
    figure, axes = chart.grid(2, 2, 11.0, 7.4)
    for panel, rule in zip(axes[0], dict.fromkeys(key[0] for key in traces), strict=True):
        own = {key[2]: trace for key, trace in traces.items() if key[0] == rule}
        _over_training(panel, own, most)
        panel.set_title(f"{rule} step, rising reward, means of {GROUP} steps", loc="left", size=9)
    axes[0][0].set_ylabel("D (rollouts beyond the batch)")
    axes[0][0].legend(fontsize=7.5, ncols=3, loc="upper right")
    _at_convergence(axes[1][0], rising, flat, most)
    _seconds(axes[1][1], step_s)
    axes[1][1].set_title(f"step time, noise {assumed:g}, rising reward", loc="left", size=9)
    chart.caption(
        figure,
        f"Scenario {scenario}, schedule oppo, D from 0 to {most}. The reward curve and its noise "
        f"are assumed ({assumed:g} in the scenario). Above: seed 0. Below: means of the second "
        "half of the runs; converged: the controller alone, on a flat reward.",
        150,
    )
    return figure


def _over_training(panel: Axes, traces: Mapping[float, Sequence[int]], most: int) -> None:
    for look, (noise, trace) in enumerate(traces.items()):
        starts = range(0, len(trace) - GROUP + 1, GROUP)
        means = [sum(trace[start : start + GROUP]) / GROUP for start in starts]
        middles = [start + GROUP / 2 for start in starts]
        chart.line(panel, look, middles, means, label=f"noise {noise:g}", markersize=3)
    panel.set_ylim(-0.5, 1.3 * most)
    panel.set_xlabel("PPO step")


def _at_convergence(
    panel: Axes, rising: Mapping[Key, float], flat: Mapping[str, float], most: int
) -> None:
    for look, (rule, share) in enumerate(flat.items()):
        own = {key[2]: 100 * each for key, each in rising.items() if key[0] == rule}
        label = f"{rule} step, rising reward"
        chart.line(panel, look, list(own), list(own.values()), label=label)
        panel.axhline(100 * share, color=chart.COLOURS[look], ls="--", lw=1.2,
                      label=f"{rule} step, converged, any noise")  # fmt: skip
    panel.set_xscale("symlog", linthresh=0.1)
    panel.set_xlim(-0.01, 1.2 * max(key[2] for key in rising))
    panel.set_ylim(-3, 140)
    panel.set_yticks(range(0, 101, 20))
    panel.set_xlabel("noise of one rollout's reward (standard deviation)")
    panel.set_ylabel(f"mean D (% of {most})")
    panel.set_title("does it switch itself off?", loc="left", size=9)
    panel.legend(fontsize=7, loc="upper right", ncols=2)


def _seconds(panel: Axes, step_s: Mapping[str, float]) -> None:
    panel.barh(list(step_s), list(step_s.values()), color=chart.COLOURS[5], edgecolor="black",
               lw=0.4)  # fmt: skip
    for place, value in enumerate(step_s.values()):
        panel.annotate(f"{value:.1f}", (value, place), (3, 0), textcoords="offset points",
                       va="center", size=8)  # fmt: skip
    panel.invert_yaxis()
    panel.set_xlim(0, 1.15 * max(step_s.values()))
    panel.set_xlabel("seconds per PPO step")

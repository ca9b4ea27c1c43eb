"""The picture of scarce memory: a panel of gains per regime, and why two of them lose."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import chart
from experiments.memories import REDONE, REGIMES, WAITS, Case, Key


def draw(cases: Mapping[Key, Case], gains: Mapping[Key, float]) -> Figure:
    figure, grid = chart.grid(2, 4, width=15.5, height=8.2)
    panels = [*grid[0, :3], *grid[1, :3]]
    for place, panel in enumerate(panels):
        _draw_gains(panel, place, gains)
    panels[0].text(0.98, 0.02, "slower than D = 0", size=8, ha="right",
                   transform=panels[0].transAxes)  # fmt: skip
    _draw_again(grid[0, 3], cases)
    _draw_waits(grid[1, 3], cases)
    many = REGIMES[REDONE[0]]
    chart.caption(
        figure,
        "Schedule inter with fixed D. Top: stackexchange-7b, B = 112 on 7 lanes (16 each), at most "
        "2,560 tokens a rollout; what does not fit queues (right: until all lanes are empty; a "
        "batch fills whole waves with 1, 2, 4, 8 or 16 rollouts a lane, not with 3, 6 or 12). "
        f"Below: B = {many.batch} on 7 lanes (73 each) of A100-80 at vLLM's speed, DeepSeek-R1's "
        f"lengths cut at 2,048, a rule for a reward, prompts of {many.prompt_tokens} tokens "
        f"(right: {REGIMES[WAITS].prompt_tokens:,}); only prompts are reserved. What training "
        f"pauses keeps its cache or not. One seed, {many.steps - many.warmup} steps there.",
        215,
    )
    return figure


def _draw_gains(panel: Axes, place: int, gains: Mapping[Key, float]) -> None:
    memories = sorted({kv for at, kv, _ in gains if at == place})
    for look, d in enumerate(sorted({d for at, _, d in gains if at == place})):
        curve = [gains[place, kv, d] for kv in memories]
        chart.line(panel, look, memories, curve, label=f"D = {d}")
    highest = max(gain for (at, _, _), gain in gains.items() if at == place)
    lowest = min(gain for (at, _, _), gain in gains.items() if at == place)
    panel.axhline(1.0, color="black", lw=0.8)
    panel.axhspan(0.0, 1.0, color="#EEEEEE", zorder=0)
    panel.set_ylim(min(0.95, lowest - 0.03), highest + 0.4 * (highest - 0.95))
    ticks: list[int] = []
    for kv in memories:
        if not ticks or kv >= 1.2 * ticks[-1]:
            ticks.append(kv)
    chart.tokens_axis(panel, ticks, "KV memory of an actor lane (tokens)")
    panel.set_title(REGIMES[place].name, loc="left", size=9)
    panel.set_ylabel("gain in step time over D = 0 (x)", size=8)
    panel.legend(loc="upper left", fontsize=7.5)


def _draw_again(panel: Axes, cases: Mapping[Key, Case]) -> None:
    """Why: what lanes with many rollouts prefill again, without D and with the largest."""
    for look, place in enumerate(REDONE):
        memories = sorted({kv for at, kv, _ in cases if at == place})
        most = max(d for at, _, d in cases if at == place)
        for d, style in ((0, "--"), (most, "-")):
            curve = [cases[place, kv, d].again_s for kv in memories]
            label = f"{REGIMES[place].name.split(', ')[-1]}, D = {d}"
            chart.line(panel, look, memories, curve, ls=style, label=label)
    chart.tokens_axis(panel, memories, "KV memory of an actor lane (tokens)")
    panel.set_title("why: prefilled again, many per lane", loc="left", size=9)
    panel.set_ylabel("seconds of a lane per step", size=8)
    panel.set_ylim(top=1.4 * panel.get_ylim()[1])
    panel.legend(fontsize=7.5, loc="upper right", handlelength=4)


def _draw_waits(panel: Axes, cases: Mapping[Key, Case]) -> None:
    """Why: training waits for lanes that were refilled and prefill."""
    memories = sorted({kv for at, kv, _ in cases if at == WAITS})
    for look, d in enumerate(sorted({d for at, _, d in cases if at == WAITS})):
        curve = [cases[WAITS, kv, d].runs.stage_s("waiting") for kv in memories]
        chart.line(panel, look, memories, curve, label=f"D = {d}")
    chart.tokens_axis(panel, memories, "KV memory of an actor lane (tokens)")
    panel.set_title("why: training waits for a prefill, refilled when empty", loc="left", size=9)
    panel.set_ylabel("seconds per step", size=8)
    panel.legend(fontsize=7.5)

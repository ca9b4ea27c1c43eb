"""Results as tables that fit in 80 columns."""

from __future__ import annotations

from collections.abc import Mapping

from rich.box import SIMPLE
from rich.table import Table

from oppo_sim.analysis.compare import Comparison
from oppo_sim.analysis.intervals import Mean
from oppo_sim.analysis.metrics import Metrics
from oppo_sim.analysis.paper import Outcome


def metrics_table(metrics: Metrics) -> Table:
    """One run: a line per question."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for label, text in _lines(metrics):
        table.add_row(label, text)
    return table


def _lines(m: Metrics) -> list[tuple[str, str]]:
    interval = _interval(Mean(m.mean_step_s, m.mean_step_low_s, m.mean_step_high_s), ".4g")
    interval = "no interval below 40 steps" if interval == "-" else f"95 % interval {interval}"
    stages = [
        f"{stage} {seconds:.4g} s ({seconds / m.mean_step_s:.0%})"
        for stage, seconds in m.stages_s.items()
        if seconds
    ]
    hidden = "-" if m.hidden_score_share is None else f"{m.hidden_score_share:.0%}"
    busy = [f"{device} {share:.0%}" for device, share in m.utilisation.items()]
    admitted = "-" if m.admitted_tokens_mean is None else f"{m.admitted_tokens_mean:.1f}"
    return [
        ("step time", f"mean {m.mean_step_s:.4g} s ({interval})"),
        ("", f"median {m.p50_step_s:.4g} s, 95th percentile {m.p95_step_s:.4g} s"),
        ("exposed, per step", ", ".join(stages)),
        ("scoring hidden", f"{hidden} of {m.score_s:.4g} scorer seconds per step"),
        ("devices busy", f"{m.mean_utilisation:.0%} on average: {', '.join(busy)}"),
        ("versions late", _histogram(m.staleness, "of the trained")),
        ("steps carried", _histogram(m.deferrals, "of the trained")),
        ("stale tokens", f"{m.stale_token_share:.1%} of the trained"),
        ("response tokens", f"{m.trained_tokens_mean:.1f} trained, {admitted} admitted (means)"),
        ("wasted", f"{m.wasted_tokens:.4g} tokens per step, {m.wasted_share:.1%} of the decoded"),
        (
            "prefilled again",
            f"{m.reprefilled_tokens:.4g} tokens per step, {m.reprefilled_share:.1%} of the decoded",
        ),
        ("KV peak", f"{m.kv_peak_tokens:,} tokens on one lane"),
        ("beyond the batch", f"{m.mean_overcommit:.3g} rollouts on average"),
        ("chunk", _histogram(m.chunk_tokens, "of the steps")),
        ("reward", f"{m.reward_mean:.3f} on average"),
    ]


def comparison_table(comparison: Comparison) -> Table:
    """Schedules next to each other."""
    first = comparison.standings[0].schedule
    table = Table(box=SIMPLE, pad_edge=False)
    headers = ("schedule", "step s", "±", f"x {first}", "±", "hidden", "busy", "late", "D")
    for number, header in enumerate(headers):
        table.add_column(header, justify="right" if number else "left")
    for standing in comparison.standings:
        m, speedup = standing.average, standing.speedup
        hidden = "-" if m.hidden_score_share is None else f"{m.hidden_score_share:.0%}"
        is_first = standing is comparison.standings[0]
        table.add_row(
            standing.schedule,
            f"{m.mean_step_s:.4g}",
            _half_width(standing.step_s, ".2g"),
            f"{speedup.mean:.3f}",
            "-" if is_first else _half_width(speedup, ".3f"),
            hidden,
            f"{m.mean_utilisation:.0%}",
            f"{1 - m.staleness.get(0, 0) / sum(m.staleness.values()):.0%}",
            f"{m.mean_overcommit:.3g}",
        )
    return table


def paper_table(outcomes: tuple[Outcome, ...]) -> Table:
    """The paper's rows next to the simulated ones."""
    table = Table(box=SIMPLE, pad_edge=False)
    headers = ("id", "speed-up of", "paper", "simulated", "95 %", "error", "role")
    for header in headers:
        text = header in ("id", "speed-up of", "role")
        table.add_column(header, justify="left" if text else "right")
    for outcome in outcomes:
        row, simulated = outcome.row, outcome.simulated
        table.add_row(
            row.id,
            row.quantity.removeprefix("speed-up of "),
            f"{row.paper:.2f}",
            f"{simulated.mean:.2f}",
            _interval(simulated, ".3f"),
            f"{outcome.error_pct:+.0f} %",
            row.role,
        )
    return table


def _interval(mean: Mean, spec: str) -> str:
    if mean.low is None or mean.high is None:
        return "-"
    return f"{mean.low:{spec}} to {mean.high:{spec}}"


def _half_width(mean: Mean, spec: str) -> str:
    return "-" if mean.high is None else f"{mean.high - mean.mean:{spec}}"


def _histogram(histogram: Mapping[int, int] | Mapping[str, int], of: str) -> str:
    total = sum(histogram.values())
    shares = [f"{key}: {count / total:.1%}" for key, count in histogram.items()]
    shown = ", ".join(shares[:6]) + (", ..." if len(shares) > 6 else "")
    return f"{shown} {of}"

"""Results as tables that fit the terminal: columns are left out before a number is cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.box import SIMPLE
from rich.table import Table

from oppo_sim.analysis.compare import Comparison
from oppo_sim.analysis.fits import Fit
from oppo_sim.analysis.intervals import Mean
from oppo_sim.analysis.metrics import Metrics
from oppo_sim.analysis.paper import Outcome, PaperRow
from oppo_sim.analysis.why import average_key, percent, plain
from oppo_sim.cli.narrow import fits, measuring

LEGEND = (
    "exposed: lengthens the step; hidden: scoring while the batch is generated; busy: devices' "
    "share of the time; stale: mean staleness, in versions; D: overcommit."
)
RUN_LEGEND = (
    "exposed: lengthens the step; hidden: scoring while the batch is generated; busy: devices' "
    "share of the time; staleness: versions of the weights from a rollout's oldest token to its "
    "training; deferrals: steps that a rollout was carried over; stale tokens: decoded by older "
    "weights; KV peak: of one lane, that is of one replica of the actor."
)


class Column(NamedTuple):
    header: str
    cells: Sequence[str]
    drop: int = 0  # 1 is left out first where it is narrow, 0 never
    is_text: bool = False


def metrics_table(metrics: Metrics) -> Table:
    """One run: a line per question."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for label, text in _lines(metrics):
        table.add_row(label, text)
    return table


def _lines(m: Metrics) -> list[tuple[str, str]]:
    low, high = m.mean_step_low_s, m.mean_step_high_s
    interval = "no interval below 40 steps"
    if low is not None and high is not None:
        interval = f"95 % interval {plain(low, 4)} to {plain(high, 4)}"
    stages = [
        f"{stage} {plain(seconds, 4)} s ({percent(seconds / m.mean_step_s)})"
        for stage, seconds in m.stages_s.items()
        if seconds
    ]
    hidden = "-" if m.hidden_score_share is None else percent(m.hidden_score_share)
    busy = [f"{device} {percent(share)}" for device, share in m.utilisation.items()]
    admitted = "-" if m.admitted_tokens_mean is None else f"{m.admitted_tokens_mean:.1f}"
    return [
        ("step time", f"mean {plain(m.mean_step_s, 4)} s ({interval})"),
        ("", f"median {plain(m.p50_step_s, 4)} s, 95th percentile {plain(m.p95_step_s, 4)} s"),
        ("exposed, per step", ", ".join(stages)),
        ("scoring hidden", f"{hidden} of {plain(m.score_s, 4)} scorer seconds per step"),
        ("devices busy", f"{percent(m.mean_utilisation)} on average: {', '.join(busy)}"),
        ("staleness", f"{_histogram(m.staleness, 'of the trained')}, {_mean(m.staleness)}"),
        ("deferrals", f"{_histogram(m.deferrals, 'of the trained')}, {_mean(m.deferrals)}"),
        ("stale tokens", f"{percent(m.stale_token_share)} of the trained"),
        ("response tokens", f"{m.trained_tokens_mean:.1f} trained, {admitted} admitted (means)"),
        ("wasted", _tokens(m.wasted_tokens, m.wasted_share)),
        ("prefilled again", _tokens(m.reprefilled_tokens, m.reprefilled_share)),
        ("KV peak", f"{m.kv_peak_tokens:,} tokens on one lane"),
        ("overcommit (D)", f"{plain(m.mean_overcommit, 3)} rollouts beyond the batch, on average"),
        ("chunk", _histogram(m.chunk_tokens, "of the steps")),
        ("reward", f"{m.reward_mean:.3f} on average"),
    ]


def comparison_table(comparison: Comparison, width: int = 80) -> Table:
    """Schedules next to each other; the share of waste where there is any."""
    standings = comparison.standings
    averages = [standing.side.metrics for standing in standings]
    hidden = [m.hidden_score_share for m in averages]
    columns = [
        Column("schedule", [s.name for s in standings], is_text=True),
        Column("step s", [plain(m.mean_step_s, 4) for m in averages]),
        Column("± s", [_half_width(s.step_s) for s in standings], drop=3),
        Column("speed-up", [f"{s.speedup.mean:.3f}" for s in standings]),
        Column("± x", ["-", *(_half_width(s.speedup) for s in standings[1:])], drop=6),
        Column("hidden", ["-" if h is None else percent(h) for h in hidden], drop=4),
        Column("busy", [percent(m.mean_utilisation) for m in averages], drop=1),
        Column("stale", [f"{average_key(m.staleness):.2f}" for m in averages], drop=5),
        Column("D", [plain(m.mean_overcommit, 2) for m in averages], drop=2),
    ]
    if any(m.wasted_tokens for m in averages):
        columns.append(Column("wasted", [percent(m.wasted_share) for m in averages]))
    return _fitting(columns, width)


def paper_table(outcomes: Sequence[Outcome], width: int = 80) -> Table:
    """The paper's rows next to the simulated ones."""
    papers, simulated, intervals, errors, nulls = zip(*(o.cells() for o in outcomes), strict=True)
    rows = [outcome.row for outcome in outcomes]
    columns = [
        Column("id", [row.id for row in rows]),
        Column("quantity", [row.quantity for row in rows], is_text=True),
        Column("paper", papers),
        Column("simulated", simulated),
        Column("80 % interval", intervals, drop=3),
        Column("error", errors, drop=2),
        Column("null", nulls, drop=1),
        Column("role", [row.role for row in rows]),
    ]
    return _fitting(columns, width)


def fits_table(fit: Fit, rows: Sequence[PaperRow], width: int = 80) -> Table:
    """The shown candidate, the range of the accepted ones, and each row's value with both."""
    shown, accepted = fit.shown, fit.accepted
    names = ("train_mfu", "prefill_mfu", "decode_counts", "wait_counts")
    own = [(name, getattr(shown, name)) for name in names]
    lines = [
        ("lengths", *_tables(fit), ""),
        ("cap", str(shown.max_response_tokens),
         _range([c.max_response_tokens for c in accepted]), ""),
        ("largest D", str(shown.most), _range([c.most for c in accepted]), ""),
        *(
            (name, f"{value:.3f}", _range([getattr(c, name) for c in accepted]), "")
            for name, value in own
            if value is not None
        ),
        *(
            (row.id, f"{shown.values[row.id]:.3f}",
             _range([c.values[row.id] for c in accepted]), row.shown(row.paper))
            for row in rows
        ),
    ]  # fmt: skip
    titles = ("", "shown", "all accepted", "paper")
    columns = [
        Column(title, cells) for title, cells in zip(titles, zip(*lines, strict=True), strict=True)
    ]
    return _fitting(columns, width)


def _tables(fit: Fit) -> tuple[str, str]:
    """The shown table without what all names begin with, and how many there are."""
    names = {candidate.lengths for candidate in fit.accepted}
    count = f"{len(names)} table{'s' if len(names) > 1 else ''}"
    return fit.shown.lengths.removeprefix("alpacaeval_"), count


def _range(values: Sequence[float]) -> str:
    low, high = (f"{end:,}" if isinstance(end, int) else f"{end:.3f}" for end in _ends(values))
    return low if low == high else f"{low} to {high}"


def _ends(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


NARROWEST = 10  # of a text that wraps


def _fitting(columns: list[Column], width: int) -> Table:
    """The table, without the columns that it has no room for; text wraps, numbers never do.

    All columns where that does not help: then the rows are shown under each other.
    """
    whole = table = _table(columns)
    droppable = sorted((c for c in columns if c.drop), key=lambda column: column.drop)
    for column in droppable:
        if _narrowest(table) <= width:
            break
        columns = [c for c in columns if c is not column]
        table = _table(columns)
    return table if fits(table, width) else whole


def _table(columns: Sequence[Column]) -> Table:
    table = Table(box=SIMPLE, pad_edge=False, collapse_padding=True)
    for number, (header, cells, _, is_text) in enumerate(columns):
        longest = max(map(len, (header, *cells)))
        table.add_column(
            header,
            justify="left" if is_text or number == 0 or header == "role" else "right",
            no_wrap=not is_text,
            overflow="fold",
            min_width=min(NARROWEST, longest) if is_text else longest,
        )
    for row in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*row)
    return table


def _narrowest(table: Table) -> int:
    return measuring().measure(table).minimum


def _interval(mean: Mean) -> str:
    if mean.low is None or mean.high is None:
        return "-"
    return f"{mean.low:.3f} to {mean.high:.3f}"


def _half_width(mean: Mean) -> str:
    """Half of the interval, in two digits."""
    if mean.low is None or mean.high is None:
        return "-"
    return plain((mean.high - mean.low) / 2, 2)


def _mean(histogram: Mapping[int, int]) -> str:
    return f"mean {average_key(histogram):.2f}"


def _tokens(per_step: float, share: float) -> str:
    return f"{plain(per_step, 4)} tokens per step, {percent(share)} of the decoded"


def _histogram(histogram: Mapping[int, int] | Mapping[str, int], of: str) -> str:
    total = sum(histogram.values())
    shares = [f"{key}: {100 * count / total:.1f} %" for key, count in histogram.items()]
    shown = ", ".join(shares[:6]) + (", ..." if len(shares) > 6 else "")
    return f"{shown} {of}"

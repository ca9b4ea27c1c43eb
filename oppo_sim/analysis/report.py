"""The page of a reproduction: each claim of the paper, what the simulation says, and why."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from markdown_it import MarkdownIt

from oppo_sim.analysis.bars import Bar, bars, orderings
from oppo_sim.analysis.fits import Fit
from oppo_sim.analysis.paper import Outcome

AGREES_PCT = 10.0


class Claim(NamedTuple):
    """Something that the paper says, the rows that speak of it, and what to keep in mind.

    condition: the beginning of the one that decides it, where the paper gives no numbers.
    """

    says: str
    rows: tuple[str, ...]
    mind: str
    condition: str = ""


CLAIMS = (
    Claim(
        "OPPO is 1.8x to 2.8x faster than TRL.",
        ("T1a", "T1b", "T1c", "T1d"),
        "The two Stack-Exchange rows are held out; OpenCoder is fitted; GSM8K's is a band, since "
        "its tail is not known.",
    ),
    Claim(
        "Intra-step overlap alone gives 1.2x to 1.3x, inter-step alone 1.6x to 2.1x.",
        ("A1", "A2", "A3", "A4"),
        "The 7B's are fitted, the 3B's follow from its decode law and its parameters.",
    ),
    Claim(
        "GPU utilisation rises by 1.4x to 2.1x.",
        ("U1b", "U1o", "U2b", "U2o", "U3b", "U3o", "U4b", "U4o"),
        "What the paper counts is not known; decoding and waiting count as fitted to three rows.",
    ),
    Claim(
        "A chunk of 500 tokens is the fastest.",
        ("C1", "C1o"),
        "It rests on the assumed stall of a round (0.5 s): without it smaller is always better.",
    ),
    Claim(
        "A dynamic D is better than D = 4 or 8 fixed.",
        ("D4", "D8", "T1a"),
        "Here its bound is higher and it stays near it; a larger fixed D would do the same.",
        "stackexchange-7b: dynamic D",
    ),
    Claim(
        "Almost all rollouts are trained at once, nearly all others one step late.",
        ("Q1-0", "Q1-1", "Q1-2"),
        "How many are almost all, the paper does not say: asked is that most are.",
        "Q1:",
    ),
    Claim(
        "On two nodes OPPO is 4.49x faster.",
        ("T2", "T2b", "T2c"),
        "No overlap effect here: it takes a weight gather per token that only the baseline has.",
    ),
    Claim(
        "OPPO is 1.26x faster than VeRL, and faster than AReaL.",
        ("V1", "V1b", "V2", "V2b"),
        "It depends on the inference engine of the other system, not on the schedule alone.",
    ),
    Claim(
        "Quality is the same.",
        ("R1a", "R1b", "R2a", "R2b", "M1a", "M1b", "M1a-s"),
        "Reward by step is put in; only what staleness might cost is asked (M1a-s).",
    ),
)


def report(
    outcomes: Sequence[Outcome],
    fits: Mapping[str, Fit],
    registered: Fit,
    findings: Sequence[Mapping[str, Any]],
    runs: str,
) -> str:
    """The page as Markdown; pictures are named by their file. `runs`: how many and how long."""
    rows = {outcome.row.id: outcome for outcome in outcomes}
    conditions = (*bars(outcomes), *orderings(outcomes))
    lines = [
        "# OPPO's claims, simulated",
        "",
        "Every number is simulated unless it is called the paper's; none was measured on a GPU. "
        "*Fitted*: the scenario was fitted to it. *Held out*: it was not, though the people who "
        "chose the protocol had seen it. *Scenario*: a stated mechanism, no prediction. *Assumed*: "
        f"put in. Intervals are 80 %, over seeds and all accepted fits. Simulated: {runs}.",
        "",
        "## What was asked of it",
        "",
        *(f"- {text}: **{'holds' if holds else 'does not hold'}**" for text, holds in conditions),
        "",
        "![speed-ups](paper_rows.png)",
    ]
    for claim in CLAIMS:
        lines += _claim(claim, [rows[name] for name in claim.rows if name in rows], conditions)
    lines += _fitted(fits, registered)
    lines += _findings(findings)
    return "\n".join(lines) + "\n"


def _claim(claim: Claim, outcomes: Sequence[Outcome], conditions: Sequence[Bar]) -> list[str]:
    verdict = _decided(claim.condition, conditions) if claim.condition else _verdict(outcomes)
    lines = [
        "",
        f"## {claim.says}",
        "",
        f"**{verdict}** {claim.mind}",
        "",
        "| | | paper | simulated | 80 % | error | null | role |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for outcome in outcomes:
        row = outcome.row
        cells = " | ".join([row.id, row.quantity, *outcome.cells(), row.role.replace("_", " ")])
        lines.append(f"| {cells} |")
    picture = PICTURES.get(outcomes[-1].row.id) if outcomes else None
    return [*lines, "", f"![{picture}]({picture}.png)"] if picture else lines


PICTURES = {
    "U4o": "utilisation",
    "C1o": "chunk_sweep",
    "T1a": "fixed_or_dynamic_d",
    "Q1-2": "lateness",
    "T2c": "two_nodes",
    "M1a-s": "time_to_reward",
}


def _verdict(outcomes: Sequence[Outcome]) -> str:
    """From the rows that predict, those held out, and what is assumed; else from what there is."""
    valued = [o for o in outcomes if o.error_pct is not None]
    if any(o.row.role == "held_out" for o in valued):
        asked = [o for o in valued if o.row.role in ("held_out", "assumed")]
        off = [o for o in asked if abs(o.error_pct or 0.0) > AGREES_PCT and not o.is_covered]
        if not off:
            return "Agrees: every held-out row is within 10 %, or its interval holds the paper's."
        names = ", ".join(f"{o.row.id} ({o.error_pct:+.0f} %)" for o in off)
        return f"Agrees in part: off are {names}."
    if any(o.row.role == "scenario" for o in valued):
        return "No prediction: what it takes, by mechanism."
    if valued:
        return "Fitted or put in: it shows that the model can say it, no more."
    return "No number to compare with."


def _decided(condition: str, conditions: Sequence[Bar]) -> str:
    for text, holds in conditions:
        if text.startswith(condition):
            return f"{'Holds' if holds else 'Does not hold'} here: {text}."
    return "Not decided: the runs were too short."


def _fitted(fits: Mapping[str, Fit], registered: Fit) -> list[str]:
    lines = [
        "",
        "## What was fitted",
        "",
        "| stage | candidates | accepted | lengths | cap | largest D | train MFU | score MFU |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for fit in fits.values():
        c = fit.shown
        prefill = "-" if c.prefill_mfu is None else f"{c.prefill_mfu:.3f}"
        lines.append(
            f"| {fit.stage} | {len(fit.candidates)} | {len(fit.accepted)} | `{c.lengths}` | "
            f"{c.max_response_tokens} | {c.most} | {c.train_mfu:.3f} | {prefill} |"
        )
    first = next(iter(fits.values())).shown
    lines += [
        "",
        f"A decoding device counts {first.decode_counts:.2f} as utilised, one that waits for the "
        f"batch {first.wait_counts:.2f}. MFU is per real token: TRL pads rows to the longest of "
        "their batch, four to eight times as many tokens.",
        "",
        "The protocol has rounds of 500 tokens; shown is the paper's own rule (128, 256, 512, "
        "probed). Both, in the median and 80 % of the accepted candidates:",
        "",
        "| | paper's rule | rounds of 500 |",
        "|---|---|---|",
    ]
    for name in ("T1a", "T1b", "A3", "A4", "U2b"):
        both = [_range(fit, name) for fit in (next(iter(fits.values())), registered)]
        lines.append(f"| {name} | {' | '.join(both)} |")
    return lines


def _range(fit: Fit, row: str) -> str:
    spread, middle = fit.spread(row), fit.median(row)
    return "-" if spread is None else f"{middle:.2f} ({spread[0]:.2f} to {spread[1]:.2f})"


def _findings(findings: Sequence[Mapping[str, Any]]) -> list[str]:
    if not findings:
        return ["", "Findings beyond the rows: `make figures`, then `oppo reproduce --findings`."]
    lines = ["", "## Findings", ""]
    for finding in findings:
        verdict = f" *{finding['verdict']}*" if finding.get("verdict") else ""
        lines += [
            f"### {finding['question']}",
            "",
            *([f"{finding['claim']}{verdict}", ""] if finding.get("claim") else []),
            str(finding["paragraph"]),
            "",
            f"![{finding['name']}]({finding['figure']})",
            "",
        ]
    return lines


def read_findings(folder: Path) -> list[dict[str, Any]]:
    """Those of a folder of experiments, in the order of their names.

    ValueError for a folder without any, or with a file that is none.
    """
    found = []
    for file in sorted(folder.glob("*.json")):
        try:
            finding = json.loads(file.read_text("utf-8"))
            _ = finding["question"], finding["paragraph"], finding["name"]
            figure = folder / Path(finding["figure"]).name
        except (OSError, ValueError, KeyError, TypeError):
            raise ValueError(f"{file}: is no finding of an experiment; take it out") from None
        if finding["figure"] != figure.name or not figure.is_file():
            raise ValueError(
                f"{file}: figure = {finding['figure']!r}: must be a file beside it; `make figures` "
                "writes both"
            )
        found.append(finding)
    if not found:
        raise ValueError(f"--findings {folder}: holds no findings; `make figures` writes them")
    return found


def as_html(markdown: str, pictures: Mapping[str, bytes]) -> str:
    """One self-contained page; `pictures` by the name that the Markdown gives them."""
    body = MarkdownIt().enable("table").render(markdown)

    def inline(match: re.Match[str]) -> str:
        data = pictures.get(match[1])
        if data is None:
            return match[0]
        return f'src="data:image/png;base64,{base64.b64encode(data).decode()}"'

    body = re.sub(r'src="([^"]+)"', inline, body)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>OPPO's claims, simulated</title><style>{_STYLE}</style></head><body>\n{body}"
        "</body></html>\n"
    )


_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;font-size:.85rem;display:block;overflow-x:auto}"
    "td,th{border-bottom:1px solid #ddd;padding:.25rem .5rem;text-align:left}"
    "img{max-width:100%}"
)

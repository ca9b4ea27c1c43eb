"""Tables on a narrow terminal: rows under each other before words or numbers are cut."""

from __future__ import annotations

from textwrap import fill

from rich.console import Console
from rich.table import Column, Table

LEAST = 16  # characters of a column of text, below which it is no pleasure to read
INDENT = "  "


def fits(table: Table, width: int) -> bool:
    """Whether no number of it is cut, no word but a long name, and no text is a thin column."""
    edges = _natural(table) - sum(_longest(column) for column in table.columns)
    return edges + sum(_least(column) for column in table.columns) <= width


def stacked(table: Table, width: int) -> str:
    """Each row as its first cell and, indented below it, what the other columns say."""
    titles = [str(column.header) for column in table.columns]
    rows = zip(*(column.cells for column in table.columns), strict=True)
    lines = []
    for first, *others in rows:
        said = [
            f"{title}: {cell}" if title else str(cell)
            for title, cell in zip(titles[1:], others, strict=True)
        ]
        lines += [_indented(str(first), width, "")] if first else []
        lines.append(_indented(", ".join(said), width, INDENT))
    return "\n".join(lines)


def _indented(text: str, width: int, by: str) -> str:
    room = max(width, len(by) + 1)
    return "\n".join(
        fill(line, room, initial_indent=by, subsequent_indent=by, break_on_hyphens=False)
        for line in text.split("\n")
    )


def measuring() -> Console:
    """On which any table fits. Brackets in names are no markup, colons around them no picture."""
    return Console(width=10_000, markup=False, emoji=False)


def _natural(table: Table) -> int:
    return measuring().measure(table).maximum


def _longest(column: Column) -> int:
    return _longest_line(str(column.header), *column.cells)


def _least(column: Column) -> int:
    if column.no_wrap:
        return _longest(column)
    words = [_longest_word(str(column.header)), column.min_width or 0]
    if column.overflow != "fold":  # else long names may go over several lines
        words += [_longest_word(str(cell)) for cell in column.cells]
    return max(min(_longest_line(*column.cells), column.min_width or LEAST), *words)


def _longest_line(*texts: object) -> int:
    return max((len(line) for text in texts for line in str(text).split("\n")), default=0)


def _longest_word(text: str) -> int:
    return max(map(len, text.split()), default=0)

"""Tables of any size, CSV or JSON lines, a chunk of rows at a time in memory that stays flat."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pandas as pd

CHUNK_ROWS = 1 << 18
FIRST_ROWS = 1 << 10  # read to learn how many bytes a row has
CHUNK_BYTES = 1 << 23  # four times as many of a CSV, whose rows are read as columns
LINE_BYTES = 1 << 26  # what is longer is no row
MOST = 2**53  # beyond, floats are not whole numbers any more
TELLS_BYTES = Callable[[int, int], None]


def quiet(done: int, total: int) -> None:
    """Tell nobody."""


def chunks(
    path: Path, columns: tuple[str, ...], progress: TELLS_BYTES = quiet
) -> Iterator[pd.DataFrame]:
    """The wanted columns, some rows at a time, numbered from 0; ValueError if it is no table."""
    read = _csv if _is_csv(path) else _jsonl
    try:
        refuse_pipe(path)
        yield from read(path, columns, progress)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text; save it as UTF-8") from error


def first_columns(path: Path) -> tuple[str, ...]:
    """The names in a CSV's header, or in the first hundred objects of a JSONL file."""
    is_csv = _is_csv(path)
    try:
        refuse_pipe(path)
        with path.open("rb") as source:
            if is_csv:
                header = source.readline(1 << 20).decode("utf-8-sig", errors="replace")
                return tuple(name.strip().strip('"') for name in header.split(","))
            lines = next(filter(None, _lines(path, source)), [])
            rows = _objects(path, lines[:100], 1)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    return tuple(dict.fromkeys(name for row in rows for name in row))


def missing(path: Path, column: str) -> str:
    """What is said of a table without a column that it needs."""
    names = [name for name in first_columns(path) if name]
    shown = ", ".join(names) if len(names) <= 8 else f"{', '.join(names[:8])}, ..."
    text = (
        f"{path}: no column {column} among {shown[:200] or 'none'}; it needs one row per response"
    )
    if _is_csv(path) and len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
        return f"{text} with it, and commas between the columns"
    return f"{text} with it"


def refuse_pipe(path: Path) -> None:
    """ValueError for what cannot be read more than once, and would wait for ever."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise ValueError(f"{path} is a pipe or a device; write what comes from it to a file first")


def _is_csv(path: Path) -> bool:
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".jsonl"):
        raise ValueError(
            f"{path}: lengths are read from a .csv or a .jsonl file, the metrics of a framework "
            "also from the .log or .txt that it printed"
        )
    return suffix == ".csv"


def _csv(path: Path, columns: tuple[str, ...], progress: TELLS_BYTES) -> Iterator[pd.DataFrame]:
    """As many rows at a time as their bytes allow: texts may stand beside the lengths."""
    total, read, rows = path.stat().st_size, 0, min(FIRST_ROWS, CHUNK_ROWS)
    with io.BufferedReader(_Text(path)) as source:
        try:
            reader = pd.read_csv(
                source,
                usecols=lambda name: str(name).strip() in columns,
                dtype={"prompt_id": str},
                skipinitialspace=True,
                index_col=False,
                iterator=True,
                low_memory=False,
            )
            while True:
                try:
                    chunk = reader.get_chunk(rows)
                except StopIteration:
                    return
                done = min(source.tell(), total)
                progress(done, total)
                named = chunk.rename(columns=str.strip)
                yield named.loc[:, ~named.columns.duplicated()]
                read += len(chunk)
                rows = max(1, min(CHUNK_ROWS, 4 * CHUNK_BYTES * read // max(done, 1)))
        except pd.errors.EmptyDataError:
            raise ValueError(f"{path} is empty: it needs a header and a row per response") from None
        except pd.errors.ParserError as error:
            reason = str(error).removeprefix("Error tokenizing data. ").strip()
            raise ValueError(f"{path} is not a CSV table: {reason}") from error


class _Text(io.FileIO):
    """A file's bytes, as long as they can be lines of text: else a reader would hold them all."""

    _open_bytes = 0  # since the last end of a line

    def readinto(self, buffer: Any) -> int:
        count = super().readinto(buffer) or 0
        read = bytes(memoryview(buffer)[:count])
        if b"\0" in read:
            raise ValueError(
                f"{self.name} holds NUL bytes, as where writing it was cut off, or where it is not "
                "UTF-8 text; cut them off, or save it as UTF-8"
            )
        end = max(read.rfind(b"\n"), read.rfind(b"\r"))
        self._open_bytes = self._open_bytes + count if end < 0 else count - end
        if self._open_bytes > LINE_BYTES:
            raise ValueError(too_long(self.name))
        return count


def too_long(path: object) -> str:
    """What is said of a line that no memory should have to hold."""
    return f"{path} has a line of more than {LINE_BYTES >> 20} MiB; write one row a line"


def _lines(path: Path, source: BinaryIO) -> Iterator[list[bytes]]:
    """All lines, some at a time."""
    rest = b""
    while block := source.read(CHUNK_BYTES):
        *lines, rest = (rest + block).split(b"\n")
        if len(rest) > LINE_BYTES:
            raise ValueError(too_long(path))
        yield lines
    if rest:
        yield [rest]


def _jsonl(path: Path, columns: tuple[str, ...], progress: TELLS_BYTES) -> Iterator[pd.DataFrame]:
    total, first_row, first_line = path.stat().st_size, 0, 1
    with path.open("rb") as source:
        for lines in _lines(path, source):
            rows = _objects(path, lines, first_line)
            first_line += len(lines)
            progress(source.tell(), total)
            if rows:
                cells = {name: [row.get(name) for row in rows] for name in columns}
                known = {n: v for n, v in cells.items() if any(cell is not None for cell in v)}
                index = range(first_row, first_row + len(rows))
                yield pd.DataFrame(
                    {
                        name: pd.Series(values, index, _kind(values))
                        for name, values in known.items()
                    },
                    index=index,
                )
                first_row += len(rows)


def _kind(values: list[Any]) -> str:
    return "int64" if all(type(v) is int and abs(v) <= MOST for v in values) else "object"


def _objects(path: Path, lines: list[bytes], first_line: int) -> list[dict[str, Any]]:
    """The objects of some lines: parsed at once, which is quick, or one by one to name the bad."""
    texts = [line.strip() for line in lines]
    if first_line == 1 and texts:
        texts[0] = texts[0].removeprefix(b"\xef\xbb\xbf")
    full = [text for text in texts if text]
    try:
        rows = json.loads(b"[%s]" % b",".join(full))
    except (ValueError, RecursionError):
        rows = None
    if rows is None or len(rows) != len(full) or not all(type(row) is dict for row in rows):
        numbered = [(line, text) for line, text in enumerate(texts, first_line) if text]
        rows = [_object(f"{path}, line {line}", text) for line, text in numbered]
    return [_flat(row) for row in rows]


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """With the metrics that verl's file logger puts a level down: {"step": 1, "data": {...}}."""
    data = row.get("data")
    return {**row, **data} if isinstance(data, dict) else row


def _object(where: str, text: bytes) -> dict[str, Any]:
    try:
        row = json.loads(text)
    except UnicodeDecodeError:
        raise ValueError(f"{where} is not UTF-8 text; save it as UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{where} is not JSON: {error.msg}") from None
    except (ValueError, RecursionError):
        raise ValueError(f"{where} is JSON too deep or with a number too long to read") from None
    if not isinstance(row, dict):
        shown = text[:40].decode(errors="replace")
        raise ValueError(f"{where} must be an object, not {shown}")
    return row

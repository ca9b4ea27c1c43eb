"""Files of any size as counts: what they say, and one clear error for whatever is wrong."""

import csv
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oppo_sim.workload import tabular
from oppo_sim.workload.measured import read_measured
from oppo_sim.workload.steplogs import framework_of, read_log
from oppo_sim.workload.tabular import first_columns


def written(folder: Path, name: str, rows: list[dict[str, Any]]) -> Path:
    path = folder / name
    if name.endswith(".csv"):
        text = io.StringIO()
        table = csv.DictWriter(text, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
        path.write_text(text.getvalue())
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


ROWS = [
    {"id": "x", "response_tokens": 30, "prompt_tokens": 5},
    {"id": "y", "response_tokens": 10, "prompt_tokens": 6},
    {"id": "a, b", "response_tokens": 30, "prompt_tokens": 5},
]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "A.CSV"])
def test_a_file_becomes_counts(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name.lower(), ROWS).rename(tmp_path / name)
    found = read_measured(path, cap_tokens=20)
    assert found.sample.tokens.tolist() == [10, 30]
    assert found.sample.counts.tolist() == [1, 2]
    assert (found.sample.n, found.sample.cut) == (3, 2)
    assert found.prompts is not None
    assert found.prompts.mean == pytest.approx(16 / 3)
    assert (found.prompt_effect, found.drift) == (None, None)


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_chunks_do_not_show(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same counts, prompt effect and drift, read at once or some rows at a time."""
    rng = np.random.default_rng(0)
    rows = [
        {
            "response_tokens": int(tokens),
            "prompt_id": i // 4 if i % 3 else str(i // 4),
            "step": i // 100,
        }
        for i, tokens in enumerate(rng.integers(1, 500, 2000))
    ]
    path = written(tmp_path, name, rows)
    at_once = read_measured(path)
    monkeypatch.setattr(tabular, "CHUNK_ROWS", 37)
    monkeypatch.setattr(tabular, "CHUNK_BYTES", 1000)
    told: list[tuple[int, int]] = []
    chunked = read_measured(path, progress=lambda done, total: told.append((done, total)))
    assert chunked.sample.tokens.tolist() == at_once.sample.tokens.tolist()
    assert chunked.sample.counts.tolist() == at_once.sample.counts.tolist()
    assert chunked.prompt_effect == pytest.approx(at_once.prompt_effect)
    assert chunked.drift is not None
    assert at_once.drift is not None
    assert vars(chunked.drift) == pytest.approx(vars(at_once.drift))
    assert len(told) > 10
    assert told[-1] == (path.stat().st_size,) * 2


def test_prompts_and_steps_are_found_again(tmp_path: Path) -> None:
    """800 prompts x 8 with 79 % between them; 250 steps with a trend and an autoregression."""
    rng = np.random.default_rng(1)
    effects, steps, walk = rng.normal(0, 0.79**0.5, 800), 250, [0.0]
    for _ in range(steps - 1):
        walk.append(0.8 * walk[-1] + rng.normal(0, 0.1))
    rows = []
    for i in range(6400):
        z = effects[i // 8] + rng.normal(0, 0.21**0.5)
        rows.append(
            {"response_tokens": round(float(np.exp(6 + 0.4 * z))), "prompt_id": f"p{i // 8}"}
        )
    assert read_measured(written(tmp_path, "p.csv", rows)).prompt_effect == pytest.approx(
        0.79, abs=0.02
    )
    rows = [
        {
            "response_tokens": round(float(np.exp(6 - 0.004 * s + walk[s] + rng.normal(0, 0.4)))),
            "step": s,
        }
        for s in range(steps)
        for _ in range(64)
    ]
    drift = read_measured(written(tmp_path, "d.csv", rows)).drift
    assert drift is not None
    assert drift.per_step == pytest.approx(-0.004, abs=0.001)
    assert drift.ar == pytest.approx(0.8, abs=0.12)
    assert drift.noise == pytest.approx(0.1, abs=0.02)


def test_the_maths_groups_have_their_share_between_prompts(tmp_path: Path) -> None:
    """Eight answers to each of five MATH problems, as measured; 0.846 by hand."""
    groups = [
        (283, 269, 273, 271, 289, 294, 284, 279),
        (482, 476, 473, 429, 451, 410, 445, 473),
        (315, 312, 315, 329, 318, 313, 280, 309),
        (873, 421, 415, 471, 418, 668, 609, 639),
        (308, 232, 159, 308, 198, 213, 194, 318),
    ]
    rows = [
        {"prompt_id": p, "response_tokens": tokens}
        for p, group in enumerate(groups)
        for tokens in group
    ]
    logs = np.log(np.array(groups))
    within = logs.var(axis=1, ddof=1).mean()
    between = logs.mean(axis=1).var(ddof=1) - within / 8
    found = read_measured(written(tmp_path, "m.csv", rows)).prompt_effect
    assert found == pytest.approx(between / (between + within))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "", "a.csv is empty"),
        ("a.csv", "response_tokens\n", "holds no lengths"),
        ("a.jsonl", "\n\n", "holds no lengths"),
        ("a.csv", "tokens\n5\n", "no column response_tokens"),
        ("a.csv", "response_tokens\n5\n0\n", "row 2: response_tokens must be .* >= 1, not '0'"),
        ("a.csv", "response_tokens\n5\nlong\n", "row 2: response_tokens must be .*not 'long'"),
        ("a.csv", "response_tokens\ntrue\ntrue\n", "row 1: response_tokens must be .*not 'True'"),
        ("a.csv", 'response_tokens\n"5', "is not a CSV table: .*EOF inside string"),
        ("a.csv", "response_tokens,prompt_tokens\n5,6\n7,\n", "row 2: prompt_tokens must be"),
        ("a.csv", "response_tokens,step\n5,-6\n", "row 1: step must be a whole number >= 0"),
        ("a.jsonl", '{"response_tokens": 5}\n[5]\n', "line 2 must be an object"),
        ("a.jsonl", '{"response_tokens": 5}\n{"resp', "line 2 is not JSON"),
        ("a.jsonl", '{"response_tokens": 5}, {"response_tokens": 5}\n', "line 1 is not JSON"),
        ("a.jsonl", "[" * 100_000, "line 1 is"),
        ("a.jsonl", '{"response_tokens": ' + "9" * 5000 + "}", "line 1 is"),
        ("a.jsonl", '{"response_tokens": 1e999}', "row 1: response_tokens must be"),
        ("a.jsonl", '{"response_tokens": [3]}', "row 1: response_tokens must be"),
        ("a.txt", "response_tokens\n5\n", "lengths are read from a .csv or a .jsonl"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_measured(path)


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        read_measured(tmp_path / "none.csv")
    for name in ("a.csv", "a.jsonl"):
        (tmp_path / name).write_bytes(b'{"response_tokens": "\xff\xfe"}\nresponse_tokens\n\xff\n')
        with pytest.raises(ValueError, match=name):
            read_measured(tmp_path / name)


@pytest.mark.parametrize("name", ["p.csv", "p.jsonl", "p.log"])
def test_a_pipe_is_refused_before_it_is_waited_for(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(ValueError, match=f"{name} is a pipe or a device; write what comes"):
        read_log(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "start", "message"),
    [
        ("a.csv", b"response_tokens\n5\n", "NUL bytes"),
        ("a.csv", b"response_tokens\n5\n" + b"6" * 300_000, "a line of more than"),
        ("a.jsonl", b"", "a line of more than"),
    ],
)
def test_what_has_no_lines_is_not_held_in_memory(
    tmp_path: Path, name: str, start: bytes, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hole of a gigabyte, as of a file that was cut off: refused at its first bytes."""
    monkeypatch.setattr(tabular, "LINE_BYTES", 2000)
    path = tmp_path / name
    path.write_bytes(start)
    os.truncate(path, 1 << 30)
    with pytest.raises(ValueError, match=f"{name} .*{message}"):
        read_measured(path)


def test_rows_with_texts_come_fewer_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of 2 kB: after the first thousand no more than a MiB of them at once."""
    monkeypatch.setattr(tabular, "CHUNK_BYTES", 1 << 18)
    path = tmp_path / "a.csv"
    text = "some words, " * 170
    path.write_text("text,response_tokens\n" + f'"{text}",7\n' * 4000)
    sizes = [len(chunk) for chunk in tabular.chunks(path, ("response_tokens",))]
    assert sum(sizes) == 4000
    assert max(sizes[1:]) <= (1 << 20) / len(text)


def test_columns_that_are_there_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id;response_tokens\n1;5\n")
    with pytest.raises(ValueError, match=r"among id;response_tokens; .* commas between"):
        read_measured(path)
    path = tmp_path / "a.json"
    path.write_text('[{"response_tokens": 5}]')
    with pytest.raises(ValueError, match=r"read from a \.csv or a \.jsonl"):
        first_columns(path)


def complaint(read: Callable[[], object]) -> str | None:
    try:
        read()
    except ValueError as error:
        return f"{type(error).__name__}: {error}"
    return None


CELLS = st.one_of(
    st.sampled_from(
        ["", "nan", "-1", "0", "1e400", "2.5", "inf", "True", '"', "'", "\x00", "5", "9" * 30]
    ),
    st.text(max_size=8),
    st.integers(-5, 10**30).map(str),
)
HEADERS = st.sampled_from(
    ["response_tokens", " response_tokens", "prompt_tokens", "step", "prompt_id", "x", ""]
)
JSONS = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(HEADERS, inner, max_size=3),
    max_leaves=6,
)
TABLES = st.tuples(st.lists(HEADERS, max_size=4), st.lists(st.lists(CELLS, max_size=5), max_size=6))
MALFORMED = st.one_of(
    st.binary(max_size=200),
    st.text(max_size=200).map(str.encode),
    TABLES.map(lambda t: "\n".join([",".join(t[0]), *(",".join(row) for row in t[1])]).encode()),
    st.lists(JSONS, max_size=5).map(lambda rows: "\n".join(map(json.dumps, rows)).encode()),
    st.lists(st.dictionaries(HEADERS, JSONS, max_size=4), max_size=5).map(
        lambda rows: "\n".join(map(json.dumps, rows)).encode()
    ),
)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(MALFORMED, st.sampled_from([".csv", ".jsonl"]), st.sampled_from([None, 2, 100]))
def test_malformed_files_are_refused_in_one_line(
    tmp_path: Path, content: bytes, ending: str, cap: int | None
) -> None:
    """Whatever a file holds: lengths, or a ValueError that names the file; nothing else."""
    path = tmp_path / f"some{ending}"
    path.write_bytes(content)
    said = [complaint(lambda: read_measured(path, cap)), complaint(lambda: first_columns(path))]
    if said[1] is None and framework_of(first_columns(path)):
        said.append(complaint(lambda: read_log(path)))
    for text in said:
        assert text is None or text.startswith(f"ValueError: {path}")

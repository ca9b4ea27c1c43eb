"""Generated nonsense in cards, configs and tables: one line of error, or something usable."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oppo_sim.costs import Measured, card, card_at, measurements, model_at
from oppo_sim.costs.measurements import COLUMNS, PROVENANCE, TASKS
from tests.costs.test_huggingface import QWEN

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.integers(-(10**400), 10**400)
    | st.floats()
    | st.text(max_size=8)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)
# drawn beyond what was measured, which is warned of; the warning has its own tests
beyond_what_was_measured = pytest.mark.filterwarnings("ignore::oppo_sim.costs.ExtrapolationWarning")
odd_text = st.text(max_size=60) | st.binary(max_size=60).map(lambda b: b.decode("latin-1"))


def one_line(read: Callable[[str, Path], Any], name: str, content: bytes) -> Any:
    """What is read, or None after an error of one line that names the file."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / name
        file.write_bytes(content)
        try:
            return read(name, Path(folder))
        except ValueError as error:
            message = " ".join(str(error).split())
            assert str(file) in message
            assert len(message) > len(str(file)) + 10
            return None


def toml(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case None:
            return '""'
        case str():
            return json.dumps(value)
        case float() if not math.isfinite(value):
            return str(value)
        case list():
            return f"[{', '.join(map(toml, value))}]"
        case dict():
            return "{" + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + "}"
        case _:
            return repr(value)


H200 = {
    key: value
    for key, value in vars(card("H200")).items()
    if key not in ("name", "sources") and value is not None
}


@settings(max_examples=150)
@given(st.sampled_from([*H200, "sources", "hbm"]), values, st.booleans())
def test_a_card_with_a_wrong_number(key: str, value: Any, is_kept: bool) -> None:
    table = {**H200, key: value}
    if not is_kept:
        del table[key]
    text = "\n".join(f"{k} = {toml(v)}" for k, v in table.items())
    found = one_line(card_at, "mine.toml", text.encode(errors="replace"))
    if found is not None:
        assert 0 < found.hbm_bytes_per_s < math.inf
        assert 0 < found.hbm_bytes / found.hbm_bytes_per_s < math.inf


@settings(max_examples=150)
@given(
    st.sampled_from([*QWEN["Qwen2.5-7B"], "head_dim", "num_experts", "attention_bias"]),
    values,
    st.booleans(),
)
def test_a_config_with_a_wrong_value(key: str, value: Any, is_kept: bool) -> None:
    config = {**QWEN["Qwen2.5-7B"], key: value}
    if not is_kept:
        del config[key]
    content = json.dumps(config).encode(errors="replace")
    found = one_line(model_at, "config.json", content)
    if found is not None:
        assert 0 < found.params() * found.pair_flop < math.inf
        assert found.forward_flop() > 0


@settings(max_examples=100)
@given(odd_text, st.sampled_from(["a.toml", "config.json", "a.csv"]))
def test_a_file_of_anything(text: str, name: str) -> None:
    reads = {"a.toml": card_at, "config.json": model_at, "a.csv": measurements}
    assert one_line(reads[name], name, text.encode(errors="replace")) is None


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe\x00", b"\0" * 9, b"[" * 99_999, b'{"a":' * 9999]
)
@pytest.mark.parametrize("name", ["a.toml", "config.json", "a.csv"])
def test_files_that_break_parsers(content: bytes, name: str) -> None:
    reads = {"a.toml": card_at, "config.json": model_at, "a.csv": measurements}
    assert one_line(reads[name], name, content) is None


HEADER = "\n".join(f'# {key} = "x"' for key in PROVENANCE)
numbers = st.integers(-2, 9).map(str) | st.floats().map(str) | st.just("9" * 400) | st.just("1e999")
cells = numbers | st.text(max_size=6) | st.just("")
rows = st.builds(
    lambda task, rest: [task, *rest],
    st.sampled_from(TASKS) | st.text(max_size=5),
    st.lists(cells, min_size=3, max_size=5),
)


@beyond_what_was_measured
@settings(max_examples=200)
@given(st.lists(rows, max_size=5), st.permutations(COLUMNS), st.integers(0, 12))
def test_a_table_with_wrong_cells(table: list[list[str]], columns: list[str], odd: int) -> None:
    lines = [HEADER, ",".join(columns if odd == 0 else COLUMNS), "decode,1,10,,0.1"]
    lines += [",".join(row) for row in table]
    text = "\n".join(lines[1:] if odd == 1 else lines)
    found = one_line(measurements, "times.csv", text.encode(errors="replace"))
    if found is not None:
        law = Measured(measurements=found).decode
        assert 0 <= law.token_s(3, 30) < math.inf
        assert 0 <= law.span_s(2, 10, 5) < math.inf


@beyond_what_was_measured
@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(TASKS),
            st.integers(1, 9),
            st.integers(0, 99),
            st.integers(1, 99),
            st.floats(min_value=5e-324, allow_infinity=False, allow_nan=False),
        ),
        max_size=12,
    )
)
def test_any_positive_times_make_finite_costs(
    table: list[tuple[str, int, int, int, float]],
) -> None:
    lines = [HEADER, ",".join(COLUMNS), "decode,1,10,,0.1"]
    for task, batch, context, tokens, seconds in table:
        made = "" if task == "decode" else tokens
        lines.append(f"{task},{batch},{context},{made},{seconds!r}")
    found = one_line(measurements, "times.csv", "\n".join(lines).encode())
    if found is None:
        return
    costs = Measured(measurements=found)
    tasks = [
        costs.decode.token_s(2, 60),
        costs.prefill_s(30, 450.0),
        costs.score_s(2, 30, 225.0, 1),
        costs.train_s(2, 30, 20),
        costs.sync_s(),
        costs.handoff_s(30),
    ]
    assert all(0 <= seconds < math.inf for seconds in tasks)

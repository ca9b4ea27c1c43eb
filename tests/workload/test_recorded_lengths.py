"""A user's file of lengths: read exactly, or refused with its name, line, value and remedy."""

from pathlib import Path

import pytest

from oppo_sim.workload import read_lengths
from oppo_sim.workload.measured import read_measured


def file(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_csv_is_read_in_its_order(tmp_path: Path) -> None:
    path = file(tmp_path, "a.csv", "id,response_tokens,prompt_tokens\nx,30,5\ny,10,6\n")
    replay = read_lengths(path)
    assert (replay.response_tokens, replay.prompt_tokens) == ((30, 10), (5, 6))
    assert replay.name == str(path)


def test_a_jsonl_is_read_in_its_order(tmp_path: Path) -> None:
    text = '{"response_tokens": 30}\n\n{"response_tokens": 10.0, "more": [1]}\n'
    replay = read_lengths(file(tmp_path, "a.jsonl", text))
    assert (replay.response_tokens, replay.prompt_tokens) == ((30, 10), None)


def test_a_byte_order_mark_is_no_part_of_the_header(tmp_path: Path) -> None:
    assert read_lengths(file(tmp_path, "a.csv", "\ufeffresponse_tokens\n4\n")).response_tokens == (
        4,
    )


@pytest.mark.parametrize("cell", ["", "many", "nan", "2.5", "True"])
def test_a_value_that_is_no_length_is_named(tmp_path: Path, cell: str) -> None:
    path = file(tmp_path, "a.csv", f"id,response_tokens\n0,12\n1,{cell}\n")
    message = f"a.csv, line 3: response_tokens must be a whole number >= 1, not '{cell}'; correct"
    with pytest.raises(ValueError, match=message):
        read_lengths(path)


@pytest.mark.parametrize("cell", ["10000001", "1e30", "inf", "9" * 400, "9" * 5000])
@pytest.mark.parametrize("name", ["a.csv", "a.JSONL"])
def test_a_length_beyond_every_context_is_named(tmp_path: Path, name: str, cell: str) -> None:
    """1e30 would not fit into 64 bits; no text has as many tokens as that."""
    text = f"response_tokens\n{cell}\n"
    if name != "a.csv":
        text = f'{{"response_tokens": {cell.replace("inf", "Infinity")}}}\n'
    path = file(tmp_path, name, text)
    for read in (read_lengths, read_measured):
        with pytest.raises(ValueError, match=rf"{path}.*(at most 10,000,000|too long)") as caught:
            read(path)
        assert len(str(caught.value)) < len(str(path)) + 200


def test_the_longest_there_may_be_and_a_suffix_in_capitals(tmp_path: Path) -> None:
    for name in ("A.CSV", "a.Csv"):
        path = file(tmp_path, name, "response_tokens\n10000000\n1\n")
        assert read_lengths(path).response_tokens == (10_000_000, 1)
        assert read_measured(path).sample.tokens.tolist() == [1, 10_000_000]
    path = file(tmp_path, "B.JSONL", '{"response_tokens": 1e7}\n')
    assert read_lengths(path).response_tokens == (10_000_000,)


@pytest.mark.parametrize("cell", ["0", "-4"])
def test_a_length_below_one_is_named(tmp_path: Path, cell: str) -> None:
    path = file(tmp_path, "a.csv", f"response_tokens\n{cell}\n")
    with pytest.raises(ValueError, match=f"line 2: .* not '{cell}'; even an empty response has"):
        read_lengths(path)


def test_a_length_above_the_cap_is_named(tmp_path: Path) -> None:
    path = file(tmp_path, "a.csv", "response_tokens\n100\n101\n")
    assert read_lengths(path, cap_tokens=101).response_tokens == (100, 101)
    message = "line 3: response_tokens is 101, above cap_tokens = 100; .* raise cap_tokens to 101"
    with pytest.raises(ValueError, match=message):
        read_lengths(path, cap_tokens=100)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "", "holds no lengths"),
        ("a.csv", "response_tokens\n", "holds no lengths"),
        ("a.jsonl", "\n", "holds no lengths"),
        ("a.csv", "tokens\n5\n", r"line 2: no response_tokens among \['tokens'\]"),
        ("a.csv", "response_tokens,prompt_tokens\n5\n", "line 2: prompt_tokens .* not None"),
        ("a.csv", "response_tokens\n\0\n", "response_tokens must be|is not a CSV table"),
        ("a.jsonl", "{oops\n", "line 1 is not JSON"),
        ("a.jsonl", "5\n", "line 1 must be an object, not 5"),
        ("a.jsonl", '{"response_tokens": null}\n', "line 1: response_tokens .* not None"),
        ("a.jsonl", '{"response_tokens": true}\n', "line 1: response_tokens .* not True"),
        ("a.jsonl", '{"response_tokens": NaN}\n', "line 1: response_tokens .* not nan"),
        ("a.jsonl", '{"response_tokens": [3]}\n', r"line 1: response_tokens .* not \[3\]"),
        (
            "a.jsonl",
            '{"response_tokens": 4, "prompt_tokens": 2}\n{"response_tokens": 4}\n',
            "line 2: no prompt_tokens among",
        ),
        (
            "a.jsonl",
            '{"response_tokens": 4}\n{"response_tokens": 4, "prompt_tokens": 2}\n',
            "line 2: prompt_tokens starts here; give it in every row or in none",
        ),
        ("a.txt", "5\n", "read from a .csv or a .jsonl file"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        read_lengths(file(tmp_path, name, text))
    assert name in str(error.value)


def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        read_lengths(tmp_path / "a.csv")
    (tmp_path / "b.csv").write_bytes(b"response_tokens\n\xff\n")
    with pytest.raises(ValueError, match="is not UTF-8 text"):
        read_lengths(tmp_path / "b.csv")

"""Every figure can be drawn, its files say what they are, and the claims that were made hold."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.__main__ import main
from experiments.registry import EXPERIMENTS

ROOT = Path(__file__).parents[2]
Row = dict[str, str]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All figures, quick."""
    out = tmp_path_factory.mktemp("figures")
    assert main(["--quick", "--out", str(out)]) == 0
    return out


def rows(out: Path, name: str) -> list[Row]:
    with (out / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_readme_lists_what_there_is() -> None:
    text = (ROOT / "experiments/README.md").read_text()
    listed = [line.split(" | ") for line in re.findall(r"^\| (\w+ \| .*) \|$", text, re.MULTILINE)]
    assert listed[0][0] == "figure"
    assert listed[1:] == [
        [e.name, e.question, f"`python -m experiments {e.name}`", str(e.minutes), "no"]
        for e in EXPERIMENTS.values()
    ]


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["chunk_sizes"])
    assert "known: chunk_size" in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit, match="2"):
        main(["chunk_size", "--quick", "--out", str(tmp_path / "file")])
    assert "file: File exists; name a folder" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(600)
class TestQuick:
    @pytest.mark.parametrize("name", EXPERIMENTS)
    def test_its_files_are_there(self, drawn: Path, name: str) -> None:
        assert {row["role"] for row in rows(drawn, name)} == {EXPERIMENTS[name].role}
        assert (drawn / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        text = (drawn / f"{name}.md").read_text()
        assert text.startswith(f"# {EXPERIMENTS[name].question}\n")
        assert "quick" in text
        document = json.loads((drawn / f"{name}.json").read_text())
        assert document["question"] == EXPERIMENTS[name].question
        assert document["paragraph"] in text
        assert document["verdict"] in (None, "confirmed", "corrected", "undecided")
        assert (document["claim"] is None) == (document["numbers"] is None)

    def test_what_is_finished_is_skipped(
        self, drawn: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["--quick", "--out", str(drawn)]) == 0
        assert capsys.readouterr().out.count("is there") == len(EXPERIMENTS)

    def test_a_chunk_between_the_extremes_is_the_fastest(self, drawn: Path) -> None:
        """With flush by round, and only as long as a round's end costs something."""
        seconds = {
            (row["curve"], int(row["chunk_tokens"])): float(row["step_s"])
            for row in rows(drawn, "chunk_size")
            if row["schedule"] == "intra"
        }
        curves = list(dict.fromkeys(curve for curve, _ in seconds))
        chunks = sorted({chunk for _, chunk in seconds})
        base, free, at_once, _ = ([seconds[curve, c] for c in chunks] for curve in curves)
        assert base[1] < min(base[0], base[2])
        assert free == sorted(free)
        assert at_once == sorted(at_once, reverse=True)

    def test_stalls_and_exposed_scoring_are_all_that_the_chunk_changes(self, drawn: Path) -> None:
        """In intra; with the whole response as the chunk all of the scoring is exposed."""
        found = [row for row in rows(drawn, "chunk_size") if row["schedule"] == "intra"]
        base, free, *_ = by(found, "curve")
        rest = [
            float(row["step_s"])
            - (float(row["generation_s"]) - float(other["generation_s"]))
            - float(row["exposed_scoring_s"])
            for row, other in zip(base, free, strict=True)
        ]
        assert max(rest) == pytest.approx(min(rest), rel=0.001)
        assert float(base[-1]["exposed_scoring_s"]) == pytest.approx(
            float(base[-1]["scorer_s"]), rel=0.001
        )

    def test_scarce_memory_takes_the_gain_away(self, drawn: Path) -> None:
        """It falls everywhere; it reverses where work is thrown away, redone or in the way."""
        reversed_ = set()
        for lane in by(rows(drawn, "scarce_kv"), "lane"):
            for curve in by(lane, "overcommit"):
                least, *_, most = sorted(curve, key=lambda row: int(row["kv_tokens"]))
                assert 1 < float(most["gain"]) > float(least["gain"])
                if float(least["gain"]) < 1:
                    reversed_.add(lane[0]["lane"])
        assert reversed_ == {
            "static batches, left-overs thrown away",
            "many per lane, preempted, prefixes redone",
            "many per lane, refilled when empty, caches kept",
        }

    def test_what_is_prefilled_again_is_why_it_reverses(self, drawn: Path) -> None:
        """A batch alone fits there; what D prefills again takes longer than what a step loses."""
        redone = [row for row in rows(drawn, "scarce_kv") if row["lane"].endswith("redone")]
        row = min(redone, key=lambda row: int(row["kv_tokens"]))
        again_s = float(row["again_s_per_lane"])
        assert float(row["again_s_per_lane_without"]) < 0.01 * again_s
        assert float(row["generation_gain"]) < 1
        assert again_s > (1 - float(row["gain"])) * float(row["step_s"])

    def test_a_binding_cap_leaves_no_gain(self, drawn: Path) -> None:
        """Where at least D responses of a batch end at the cap."""
        found = rows(drawn, "binding_cap")
        bound = [row for row in found if float(row["at_cap_per_batch"]) >= int(row["overcommit"])]
        assert len(bound) >= 6
        assert all(float(row["gain"]) <= 1.1 for row in bound)
        assert max(float(row["gain"]) for row in found) > 1.3

    def test_ppo_learns_in_either_order(self, drawn: Path) -> None:
        """From chance, a half, to more than 0.8 of the highest reward, which is 1."""
        for run in by(rows(drawn, "learning"), "schedule"):
            rewards = [float(row["reward"]) for row in run]
            assert rewards[0] < 0.6
            assert sum(rewards[-10:]) / 10 > 0.8


def by(found: list[Row], column: str) -> Iterator[list[Row]]:
    for value in dict.fromkeys(row[column] for row in found):
        yield [row for row in found if row[column] == value]

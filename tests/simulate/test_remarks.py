"""What is said of lengths that are cut, chunks that stream nothing, and overlap that is none."""

from dataclasses import replace
from pathlib import Path

import pytest

from oppo_sim.config import Scenario, load_scenario, shipped_scenarios
from oppo_sim.engine.contract import Entry, Score
from oppo_sim.policies import CATALOG, ProbedChunk, Schedule
from oppo_sim.simulate import check, remarks, simulate

FILE = "workload.lengths"
CAP = "workload.max_response_tokens"


def said(scenario: Scenario, *schedules: str | Schedule) -> list[str]:
    chosen = [scenario.schedule(s) if isinstance(s, str) else s for s in schedules]
    return remarks(scenario, chosen)


# lengths


@pytest.fixture
def tens(tmp_path: Path) -> Path:
    """10, 20, ... 1000: read straight from 10 to 1000, 1 - 390.5 / 990 = 60.6 % are above 400."""
    file = tmp_path / "tens.csv"
    file.write_text("\n".join(["response_tokens", *(str(10 * n) for n in range(1, 101))]) + "\n")
    return file


def test_own_lengths_that_the_cap_cuts_are_named_with_the_cap_that_keeps_them(tens: Path) -> None:
    (text,) = said(load_scenario("tiny", {FILE: str(tens)}), "trl")
    assert text.startswith(f"60.6% of workload.lengths are longer than {CAP} = 400 and are cut")
    assert text.endswith(f"--set {CAP}=1000 keeps them whole")
    room = {"cluster.kv_tokens": 20_000}
    assert not said(load_scenario("tiny", {FILE: str(tens), CAP: 1000, **room}), "trl")


def test_a_scenario_of_ones_own_with_a_file_is_told_too(tens: Path, tmp_path: Path) -> None:
    shipped = Path(__file__).parents[2] / "oppo_sim/data/scenarios/tiny.toml"
    mine = tmp_path / "mine.toml"
    mine.write_text(shipped.read_text().replace("{ exponential = 100 }", '"tens.csv"'))
    assert "60.6% of workload.lengths" in said(load_scenario(mine), "trl")[0]


def test_a_law_has_no_longest_response() -> None:
    """P(X > 400) = (1 - 1/300)^400 = 26.3 %; one in 1,000 is above log(0.001) / log(1 - 1/300)."""
    (text,) = said(load_scenario("tiny", {FILE: "{ exponential = 300 }"}), "trl")
    assert text.startswith("26.3% of workload.lengths")
    assert text.endswith(f"--set {CAP}=2069 keeps 99.9% of them whole")


def test_a_cap_that_was_chosen_is_not_remarked_on(tens: Path) -> None:
    assert not said(load_scenario("tiny", {FILE: str(tens), CAP: 300}), "trl")
    assert not said(load_scenario("tiny", {CAP: 60}), "trl")  # shipped lengths
    for name in shipped_scenarios():
        assert not said(load_scenario(name), "trl")


def test_what_the_source_cut_has_no_cap_that_keeps_it(tens: Path) -> None:
    """Known to 500: with that cap nothing more is cut, with 400 what is from 400 to 500."""
    cut_at = {FILE: f"{{ file = {str(tens)!r}, cut_at_tokens = 500 }}"}
    assert said(load_scenario("tiny", cut_at), "trl")[0].endswith(
        f"--set {CAP}=500 keeps them whole"
    )
    assert not said(load_scenario("tiny", {**cut_at, CAP: 500, "cluster.kv_tokens": 9000}), "trl")


def test_a_model_that_writes_its_own_responses_draws_no_lengths(tens: Path) -> None:
    scenario = load_scenario("tiny", {FILE: str(tens)})
    assert not remarks(scenario, [scenario.schedule("trl")], draws_lengths=False)


# chunks


def pieces(scenario: Scenario, schedule: Schedule) -> int:
    """Chunks that were scored before their response had ended."""
    early = 0

    def listen(entry: Entry) -> None:
        nonlocal early
        if isinstance(entry, Score):
            early += sum(not chunk.last for chunk in entry.chunks)

    list(simulate(scenario, schedule, steps=10, listen=listen))
    return early


def test_chunks_that_stream_nothing_are_named_and_really_do_not() -> None:
    short = load_scenario("tiny", {CAP: 100})
    probed = replace(short.schedule("oppo"), chunk=ProbedChunk((128, 256)))
    (text,) = said(short, "trl", replace(short.schedule("intra"), chunk=100), "oppo")
    assert text.startswith(f"intra: no chunk (100 tokens) is below {CAP} = 100, so nothing is ")
    assert "--set schedule.chunk=25" in text
    assert said(short, probed)[0].startswith("oppo: no chunk (128, 256 tokens) is below")
    assert pieces(short, probed) == 0
    assert pieces(short, replace(probed, chunk=25)) > 0


def test_schedules_with_the_same_chunks_share_a_line() -> None:
    (text,) = said(load_scenario("tiny", {CAP: 40}), "trl", "intra", "inter", "oppo", "response")
    assert text.startswith("intra, oppo: no chunk (50 tokens)")


def test_one_candidate_below_the_cap_is_enough() -> None:
    scenario = load_scenario("tiny", {CAP: 200})
    schedule = replace(scenario.schedule("oppo"), chunk=ProbedChunk((128, 256, 512)))
    assert not said(scenario, schedule)
    assert pieces(scenario, schedule) > 0


def test_rounds_that_outlast_a_step_stream_whatever_the_chunk() -> None:
    """What is carried decodes on beside the next batch, and rounds end in the midst of that."""
    own = load_scenario("tiny", {"cluster.devices": 4, "cluster.trainer_devices": 1})
    schedule = replace(own.schedule("oppo"), chunk=400)
    assert not said(own, schedule)
    assert pieces(own, schedule) > 0
    assert said(own, replace(schedule, overcommit=0))
    assert pieces(own, replace(schedule, overcommit=0)) == 0


# overlap


def test_training_beside_generation_needs_devices_of_its_own() -> None:
    (text,) = said(load_scenario("tiny"), *CATALOG)
    assert text.startswith("one-step-off, areal, pipeline-rl: ")
    assert text.endswith("--set cluster.trainer_devices=1 --set cluster.actors=1")


@pytest.mark.parametrize(
    ("cluster", "remedy"),
    [
        ({}, {"cluster.trainer_devices": 1, "cluster.actors": 1}),
        ({"cluster.devices": 4}, {"cluster.trainer_devices": 1}),
        (
            {"cluster.devices": 2, "cluster.actors": 1},
            {"cluster.trainer_devices": 1, "cluster.devices": 3},
        ),
    ],
)
def test_its_remedy_works(cluster: dict[str, int], remedy: dict[str, int]) -> None:
    (text,) = said(load_scenario("tiny", cluster), "areal")
    assert text.endswith(" ".join(f"--set {key}={value}" for key, value in remedy.items()))
    mended = load_scenario("tiny", {**cluster, **remedy})
    assert not said(mended, "areal")
    check(mended, mended.schedule("areal"), steps=4)


def test_where_actors_and_scorers_share_devices_the_layout_has_to_change() -> None:
    shared = {
        "cluster.placement": "colocated",
        "cluster.devices": 2,
        "cluster.contention": "{ decode_stretch = 1.2, score_stretch = 1.2 }",
    }
    (text,) = said(load_scenario("tiny", shared), "areal")
    assert text.endswith("with placement = 'split' and trainer_devices in [cluster]")

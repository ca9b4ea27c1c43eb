"""Comparisons are paired, do not depend on the number of processes, and go on after a kill."""

import json
import re
import shutil
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from oppo_sim.analysis import digests, parts
from oppo_sim.analysis.compare import Comparison, Standing, compare
from oppo_sim.analysis.documents import schedule_document
from oppo_sim.analysis.metrics import average, summarise
from oppo_sim.config import ConfigError, Scenario, load_scenario, load_schedule
from oppo_sim.costs import ExtrapolationWarning
from oppo_sim.policies import CATALOG, FixedChunk, ProbedChunk, RewardSlope, Schedule
from oppo_sim.simulate import simulate
from tests.simulate.test_tables import SCENARIO, TABLE
from tests.steps import step

SEEDS = (0, 1, 2)


@pytest.fixture(scope="module")
def tiny() -> Scenario:
    return load_scenario("tiny", {"steps": 12})


@pytest.fixture(scope="module")
def schedules(tiny: Scenario) -> list[Schedule]:
    return [tiny.schedule(name) for name in ("trl", "inter", "oppo")]


@pytest.fixture(scope="module")
def found(tiny: Scenario, schedules: list[Schedule]) -> Comparison:
    return compare(tiny, schedules, SEEDS, jobs=1)


def test_a_speedup_is_the_geometric_mean_of_the_seeds_ratios_with_a_paired_interval(
    tiny: Scenario, schedules: list[Schedule], found: Comparison
) -> None:
    def mean_step_s(schedule: Schedule, seed: int) -> float:
        seconds = [record.seconds for record in simulate(tiny, schedule, seed=seed)]
        return sum(seconds) / len(seconds)

    trl, _, oppo = schedules
    ratios = [mean_step_s(trl, seed) / mean_step_s(oppo, seed) for seed in SEEDS]
    logs = np.log(ratios)
    low, high = np.exp(stats.t.interval(0.95, 2, loc=np.mean(logs), scale=stats.sem(logs)))
    assert found["oppo"].speedups == pytest.approx(ratios)
    assert found["oppo"].speedup == pytest.approx((stats.gmean(ratios), low, high))
    assert found["trl"].speedups == (1, 1, 1)


def test_the_same_seed_gives_the_same_rollouts_whatever_the_schedule(tiny: Scenario) -> None:
    """Sequential and overlapped steps train other rollouts first, but each has its own length."""
    lengths: dict[int, set[int]] = {}
    for name in ("trl", "oppo", "one-step-off"):
        for record in simulate(tiny, tiny.schedule(name), seed=3):
            for rollout, tokens in zip(record.trained, record.tokens, strict=True):
                lengths.setdefault(rollout, set()).add(tokens)
    assert {len(found) for found in lengths.values()} == {1}


def test_the_number_of_processes_changes_nothing(
    tiny: Scenario, schedules: list[Schedule], found: Comparison
) -> None:
    assert compare(tiny, schedules, SEEDS, jobs=2) == found


def test_the_first_schedule_is_the_measure(tiny: Scenario, found: Comparison) -> None:
    turned = compare(tiny, [tiny.schedule("oppo"), tiny.schedule("trl")], SEEDS, jobs=1)
    assert turned["trl"].speedups == pytest.approx([1 / s for s in found["oppo"].speedups])


def test_it_says_why(found: Comparison) -> None:
    inter, oppo = found.why()
    assert inter.verdict.startswith("inter: ")
    assert oppo.verdict.startswith("oppo: ")
    document = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert [row["verdict"] for row in document["why"]] == [inter.verdict, oppo.verdict]
    assert document["verdict"] == found.verdict()


@pytest.mark.parametrize(
    ("names", "seeds", "message"),
    [
        ((), SEEDS, "at least two schedules, not 0"),
        (("trl",), SEEDS, "at least two schedules, not 1: name another, as in trl,oppo"),
        (("trl", "oppo", "trl"), SEEDS, "two schedules are called 'trl'"),
        (("trl", "oppo"), (), "seeds = 0"),
    ],
)
def test_nothing_to_compare(
    tiny: Scenario, names: tuple[str, ...], seeds: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        compare(tiny, [tiny.schedule(name) for name in names], seeds, jobs=1)


def test_no_steps_to_compare(tiny: Scenario, schedules: list[Schedule]) -> None:
    with pytest.raises(ConfigError, match="steps = 0"):
        compare(tiny, schedules, SEEDS, 0, jobs=1)


# the verdict


def comparison(**speedups: tuple[float, ...]) -> Comparison:
    """Schedules with these speed-ups per seed, over metrics that say nothing else."""
    standings = []
    for name, of_seeds in speedups.items():
        metrics = [summarise([step(end_s=10 / speedup)]) for speedup in of_seeds]
        schedule = CATALOG[name.replace("_", "-")]
        standings.append(
            Standing(schedule=schedule, metrics=tuple(metrics), speedups=tuple(of_seeds))
        )
    return Comparison(
        scenario="s",
        seeds=tuple(range(len(standings[0].speedups))),
        steps=1,
        standings=tuple(standings),
        trains_on_actors=True,
    )


def test_the_verdict_names_the_fastest() -> None:
    """Of 2 and 2.42: 2.2 times or by exp(12.706 * log(1.21) / 2), t with one degree of freedom."""
    found = comparison(trl=(1, 1), intra=(1.2, 1.2), oppo=(1.6, 1.6))
    assert found.verdict() == "Fastest: oppo, 1.60x trl (95 % interval 1.600 to 1.600)."
    spread = comparison(trl=(1, 1), oppo=(2, 2.42)).verdict()
    assert spread == (
        "Not decided: on average oppo is the fastest, 2.20x trl (95 % interval 0.655 to 7.385), "
        "but the interval includes 1; use more seeds or steps."
    )


def test_the_verdict_does_not_rank_what_is_not_told_apart() -> None:
    """Over response oppo gains 0, 6 and 1 %, over inter 13 % with every seed."""
    found = comparison(
        trl=(1, 1, 1), inter=(1.5, 1.6, 1.7), response=(1.7, 1.7, 1.9), oppo=(1.7, 1.81, 1.92)
    )
    assert found.verdict().endswith(". Not decided against response.")


def test_the_verdict_names_what_ran_the_same() -> None:
    found = comparison(trl=(1, 1), oppo=(1.5, 1.6), inter=(1.5, 1.6))
    assert found.verdict().endswith(". The same run: inter.")
    assert [reason.verdict for reason in found.why()][1] == "inter: the same run as oppo."


def test_the_first_may_be_the_fastest_and_one_seed_decides_nothing() -> None:
    assert comparison(trl=(1, 1), oppo=(0.8, 0.8)).verdict() == "Fastest: trl."
    one = comparison(trl=(1,), oppo=(1.5,)).verdict()
    assert one == "Fastest: oppo, 1.50x trl (1 seed, so no interval)."


def test_a_fastest_that_skipped_work_is_called_that() -> None:
    found = comparison(trl=(1, 1), pipeline_rl=(2, 2))
    dropping = replace(
        found.standings[1].metrics[0],
        wasted_tokens=8.0,
        trained_tokens_mean=9.0,
        admitted_tokens_mean=10.0,
    )
    trl, pipeline = found.standings
    pipeline = replace(pipeline, metrics=(dropping, dropping))
    said = replace(found, standings=(trl, pipeline)).verdict()
    assert said.endswith(". Part of its gain is skipped work.")


# parts on disk


def test_finished_parts_are_read_and_the_rest_is_simulated(
    tiny: Scenario,
    schedules: list[Schedule],
    found: Comparison,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simulated = []

    def counted(part: parts.Part) -> dict[str, object]:
        simulated.append((part.schedule.name, part.seed))
        return plain(part)

    plain = parts._run
    monkeypatch.setattr(parts, "_run", counted)
    assert compare(tiny, schedules, SEEDS, jobs=1, keep=tmp_path) == found
    kept = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert len(kept) == len(simulated) == 9

    (tmp_path / "tiny.oppo.1.json").unlink()
    (tmp_path / "tiny.trl.0.json").write_text('{"key":')  # damaged
    simulated.clear()
    assert compare(tiny, schedules, SEEDS, jobs=1, keep=tmp_path) == found
    assert simulated == [("trl", 0), ("oppo", 1)]
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == kept


def test_a_part_of_other_numbers_or_other_code_is_not_taken(
    tiny: Scenario, schedules: list[Schedule], monkeypatch: pytest.MonkeyPatch
) -> None:
    part = parts.Part(scenario=tiny, schedule=schedules[0], seed=0, steps=12)
    others = [
        parts.Part(scenario=tiny, schedule=schedules[0], seed=1, steps=12),
        parts.Part(scenario=tiny, schedule=schedules[0], seed=0, steps=13),
        parts.Part(scenario=tiny, schedule=schedules[1], seed=0, steps=12),
        parts.Part(
            scenario=load_scenario("tiny", {"steps": 12, "costs.train_call_s": 2.5}),
            schedule=schedules[0],
            seed=0,
            steps=12,
        ),
    ]
    keys = {part.key(), *(other.key() for other in others)}
    monkeypatch.setattr(digests, "of_package", lambda: "another version")
    keys.add(part.key())
    assert len(keys) == 6


def file_name(tiny: Scenario, scenario: str, schedule: str) -> str:
    return parts.Part(
        scenario=tiny.model_copy(update={"name": scenario}),
        schedule=replace(tiny.schedule(), name=schedule),
        seed=4,
        steps=1,
    ).file_name


def test_a_name_is_its_file_name_where_any_file_system_takes_it(tiny: Scenario) -> None:
    assert file_name(tiny, "two-node_a100", "oppo-chunk-16") == "two-node_a100.oppo-chunk-16.4.json"


def test_no_two_names_share_a_file(tiny: Scenario) -> None:
    names = [
        "a b",
        "a_b",
        "A_b",
        "a/b",
        "../a b",
        "a.b",
        "a",
        "b.a",
        "\u00e9",
        "e\u0301",
        "x" * 300,
    ]
    names += ["x" * 301, "con", ""]
    found = [file_name(tiny, one, two) for one in names for two in names]
    assert len({name.lower() for name in found}) == len(names) ** 2
    assert max(map(len, found)) <= 120
    assert all(re.fullmatch(r"[a-z0-9_~-]*\.[a-z0-9_~-]*\.4\.json", name) for name in found)


def test_runs_that_would_share_a_file_are_refused(tiny: Scenario, tmp_path: Path) -> None:
    part = parts.Part(scenario=tiny, schedule=tiny.schedule("trl"), seed=0, steps=2)
    with pytest.raises(ConfigError, match=r"2 runs would be kept as tiny\.trl\.0\.json"):
        parts.run_parts([part, replace(part, steps=3)], jobs=1, keep=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_a_kept_run_warned_of_is_warned_of_again(tmp_path: Path) -> None:
    (tmp_path / "times.csv").write_text(TABLE)
    (tmp_path / "mine.toml").write_text(SCENARIO)
    mine = load_scenario(tmp_path / "mine.toml")
    chosen = [mine.schedule("trl"), mine.schedule("oppo")]
    said = []
    for jobs in (1, 2, 1):  # simulated, simulated in processes, read
        keep = tmp_path / ("other" if jobs == 2 else "kept")
        with pytest.warns(ExtrapolationWarning) as caught:
            compare(mine, chosen, SEEDS, jobs=jobs, keep=keep)
        said.append(sorted(str(warning.message) for warning in caught))
    assert said[0] == said[1] == said[2]
    assert len(said[0]) == len(set(said[0]))
    files = {file.name: file.read_bytes() for file in (tmp_path / "kept").iterdir()}
    assert files == {file.name: file.read_bytes() for file in (tmp_path / "other").iterdir()}


# averages and documents


def test_runs_average_to_means_sums_and_peaks() -> None:
    one = summarise([step(0, staleness=(0, 1), kv_peak_tokens=10, chunk_tokens=None)])
    two = summarise([step(0, end_s=20.0, kv_peak_tokens=30, overcommit=3)])
    both = average([one, two])
    assert both.mean_step_s == 15
    assert both.stages_s["sync"] == (1 + 11) / 2
    assert both.utilisation["gpu0"] == pytest.approx((0.6 + 0.3) / 2)
    assert both.staleness == {0: 3, 1: 1}
    assert both.overcommit == {1: 1, 3: 1}
    assert both.mean_overcommit == 2
    assert list(both.chunk_tokens.items()) == [("256", 1), ("whole", 1)]
    assert both.kv_peak_tokens == 30
    assert both.admitted_tokens_mean is None
    assert both.mean_step_low_s is None


@pytest.mark.parametrize("name", CATALOG)
def test_every_schedule_has_a_json_document(name: str) -> None:
    document = json.loads(json.dumps(schedule_document(CATALOG[name])))
    assert document["name"] == name
    assert document["batch"] == 112


def test_a_document_uses_the_words_of_a_schedule_file(tiny: Scenario, tmp_path: Path) -> None:
    schedule = Schedule(
        name="mine",
        chunk=ProbedChunk(candidates=(64, 96), every=20),
        overcommit=RewardSlope(most=9),
    )
    document = schedule_document(schedule)
    assert document["chunk"] == {
        "policy": "probe",
        "candidates": (64, 96),
        "every": 20,
        "repeats": 1,
    }
    assert document["overcommit"]["policy"] == "reward-slope"
    assert schedule_document(Schedule(name="mine", chunk=FixedChunk(5)))["chunk"] == 5
    share = {"policy": "share", "of_batch": 1.0}
    assert schedule_document(CATALOG["april"])["overcommit"] == share
    knobs = ", ".join(f"{k} = {json.dumps(v)}" for k, v in document["overcommit"].items())
    file = tmp_path / "mine.toml"
    file.write_text(f'base = "inter"\novercommit = {{ {knobs} }}\n')
    assert load_schedule(file, tiny).overcommit == schedule.overcommit


def test_a_policy_that_no_file_can_name_has_a_document_whatever_its_class() -> None:
    class Mine:
        window, most = 0, 4

        def __init__(self, rollouts: int) -> None:
            self.rollouts = rollouts

        def overcommit(self, seen: object) -> int:
            return self.rollouts

    document = schedule_document(Schedule(name="mine", overcommit=Mine(3)))
    assert json.loads(json.dumps(document))["overcommit"] == {"policy": "Mine", "rollouts": 3}


def test_a_part_is_another_once_a_file_that_its_scenario_names_has_changed(tmp_path: Path) -> None:
    lengths = tmp_path / "lengths.csv"
    keys = set()
    for tokens in (5, 6):
        lengths.write_text(f"response_tokens\n{tokens}\n7\n")
        shutil.copy(str(files("oppo_sim") / "data/scenarios/tiny.toml"), tmp_path / "mine.toml")
        own = load_scenario(tmp_path / "mine.toml", {"workload.lengths": "lengths.csv"})
        keys.add(parts.Part(scenario=own, schedule=own.schedule("trl"), seed=0, steps=2).key())
    assert len(keys) == 2

"""`oppo compare`, `reproduce`, `bench` and the lists; help; and every mistake in one line."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from oppo_sim.analysis.documents import schedule_document
from oppo_sim.config import load_scenario, shipped_scenarios
from oppo_sim.policies import CATALOG
from tests.cli.conftest import Oppo

FAST = ("--steps", 4, "--seeds", 2, "--jobs", 1)


def contents(folder: Path) -> dict[str, bytes]:
    files = [file for file in folder.rglob("*") if file.is_file()]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def test_compare_says_who_is_faster_and_why(oppo: Oppo) -> None:
    few = ("--steps", 20, "--seeds", 3, "--jobs", 1)
    code, out, _ = oppo("compare", "tiny", *few, "--schedules", "trl,oppo")
    assert code == 0
    assert out.startswith("Fastest: oppo, ")
    assert "tiny: 20 steps, 3 seeds, common random numbers." in out
    assert "Every number is simulated." in " ".join(out.split())
    assert "oppo: " in out
    assert "  - Exposed generation " in out
    assert "± s" in out
    assert "± x" in out
    assert "wasted" not in out
    assert max(map(len, out.splitlines())) <= 80


def test_compare_shows_waste_where_there_is_any(oppo: Oppo) -> None:
    out = oppo("compare", "tiny", "--seeds", 2, "--jobs", 1, "--schedules", "trl,pipeline-rl").out
    said = " ".join(out.split())
    assert "wasted" in out
    assert "Part of its gain is skipped work." in said
    assert "It threw away " in said
    assert "shorter than admitted: part of the gain is skipped work." in said


def test_one_of_a_thing_is_one(oppo: Oppo) -> None:
    out = oppo("compare", "tiny", "--steps", 1, "--seeds", 1, "--jobs", 1).out
    assert "tiny: 1 step, 1 seed, " in out
    assert "(1 seed, so no interval)" in out


def test_runs_that_are_the_same_are_said_to_be(oppo: Oppo) -> None:
    """A rule has nothing to stream to, so intra is trl, and oppo is inter."""
    out = oppo("compare", "gsm8k-7b", *FAST, "--schedules", "trl,intra").out
    assert out.startswith("Fastest: trl. The same run: intra.")
    assert "intra: the same run as trl." in out
    out = oppo("compare", "gsm8k-7b", *FAST, "--schedules", "trl,inter,oppo").out
    assert "oppo: the same run as inter." in out


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_tables_never_cut_a_number(
    oppo: Oppo, columns: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "a-baseline-with-a-long-name.toml").write_text('base = "trl"\n')
    names = f"{tmp_path}/a-baseline-with-a-long-name.toml,pipeline-rl,one-step-off"
    wide = comparison_numbers(oppo, names, 200, monkeypatch)
    found = comparison_numbers(oppo, names, columns, monkeypatch)
    assert len(found) == 3
    for numbers, all_of_them in zip(found, wide, strict=True):
        assert len(numbers) >= 2  # step time and speed-up
        assert set(numbers) <= set(all_of_them)


def comparison_numbers(
    oppo: Oppo, names: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> list[list[str]]:
    """The numbers of each schedule's line, as wide as that."""
    monkeypatch.setenv("COLUMNS", str(columns))
    out = oppo("compare", "tiny", *FAST, "--schedules", names).out
    assert max(map(len, out.splitlines())) <= columns
    assert "\u2026" not in out
    table = out.split("\u2500 \n")[1].split("exposed:")[0].replace(" %", "%")
    lines = [re.findall(r"(?<=\s)[\d.]+%?(?=\s)", line) for line in table.splitlines()]
    return [numbers for numbers in lines if numbers]


def test_compare_as_json(oppo: Oppo) -> None:
    document = json.loads(oppo("compare", "tiny", *FAST, "--json").out)
    assert document["role"] == "simulated"
    assert [row["schedule"] for row in document["schedules"]] == ["trl", "intra", "inter", "oppo"]
    assert document["schedules"][0]["speedup"] == {"mean": 1, "low": 1, "high": 1}
    assert document["seeds"] == [0, 1]
    assert [row["schedule"] for row in document["why"]] == ["intra", "inter", "oppo"]


def test_a_comparison_is_written_and_resumed(
    oppo: Oppo, refused: Callable[..., str], tmp_path: Path
) -> None:
    arguments = ("compare", "tiny", *FAST, "--schedules", "trl,oppo", "--out", tmp_path)
    assert oppo(*arguments).code == 0
    before = contents(tmp_path)
    assert set(before) == {
        "comparison.json",
        "header.json",
        *(f"parts/tiny.{name}.{seed}.json" for name in ("trl", "oppo") for seed in (0, 1)),
    }
    assert "is not empty" in refused(*arguments)
    assert oppo(*arguments, "--resume").code == 0
    assert contents(tmp_path) == before
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("")
    said = refused(*arguments[:-1], tmp_path / "other", "--resume")
    assert "holds something else than a comparison" in said


def test_reproduce_prints_the_rows_and_why(oppo: Oppo, tmp_path: Path) -> None:
    code, out, _ = oppo("reproduce", *FAST, "--out", tmp_path / "paper")
    assert code == 0
    for words in ("T1b", "assumed", "inter > intra > 1", "Why, on stackexchange-3b (simulated)"):
        assert words in out
    first = out.split("\n\n")[0]
    assert "80 % interval" in first  # that of the rows, not the 95 % of the comparisons below
    assert "95 %" not in first
    assert "two-node" not in first  # a stated mechanism is no evidence of who is faster
    assert max(map(len, out.splitlines())) <= 80
    assert {"paper_rows.csv", "paper_rows.png", "README.md"} < set(contents(tmp_path / "paper"))
    document = json.loads(oppo("reproduce", *FAST, "--seed", 3, "--json").out)
    assert document["conditions"][0]["seeds"] == [3, 4]
    oppo_there = schedule_document(load_scenario("stackexchange-3b").schedule("oppo"))
    schedules = document["conditions"][1]["schedules"]
    assert json.loads(json.dumps(oppo_there)) in schedules
    ids = [row["id"] for row in document["rows"]]
    assert ids[:6] == ["A1", "A2", "A3", "A4", "T1a", "T1b"]
    assert {"T2", "U4o", "C1", "Q1-2", "R2b"} < set(ids)
    assert {"common", "stackexchange-7b", "two-node-a100-gather"} < set(document["assumptions"])


@pytest.mark.slow
def test_bench_and_run_simulate_the_same(oppo: Oppo) -> None:
    bench = json.loads(oppo("bench", "--suite", "sim", "--rounds", 1, "--json").out)
    run = json.loads(oppo("run", "bench", "--json").out)
    assert bench["seed"] == run["seed"]
    assert bench["mean_step_s"] == run["mean_step_s"]
    assert bench["ratio"] == bench["simpy_timeouts_per_s"] / bench["steps_per_s"]


def test_the_lists_name_all_there_is(oppo: Oppo) -> None:
    assert set(json.loads(oppo("scenarios", "--json").out)) == set(shipped_scenarios())
    assert set(json.loads(oppo("schedules", "--json").out)) == set(CATALOG)
    for name in shipped_scenarios():
        assert name in oppo("scenarios").out


@pytest.mark.parametrize("name", ["gsm8k-7b", "experiments/configs/real/even-tokens.toml"])
def test_a_scenario_says_what_it_assumes_and_where_its_file_is(oppo: Oppo, name: str) -> None:
    scenario = load_scenario(name)
    code, out, err = oppo("scenarios", name)
    assert (code, err) == (0, "")
    said = " ".join(out.split())
    assert scenario.assumptions
    for text in (scenario.about, *(f"- {text}" for text in scenario.assumptions)):
        assert text in said
    (file,) = (Path(line) for line in out.splitlines() if line.endswith(".toml"))
    assert load_scenario(file).document() == scenario.document()
    document = json.loads(oppo("scenarios", name, "--json").out)
    assert document["assumptions"] == list(scenario.assumptions)
    assert document["file"] == str(file)


def test_every_schedule_has_a_sentence_and_a_source(oppo: Oppo) -> None:
    sources = {
        "trl": "TRL",
        "oppo": "arXiv 2509.25762",
        "one-step-off": "verl",
        "areal": "arXiv 2505.24298",
        "april": "arXiv 2509.18521",
        "pipeline-rl": "arXiv 2509.19128",
    }
    found = json.loads(oppo("schedules", "--json").out)
    said = " ".join(oppo("schedules").out.split())
    for name, row in found.items():
        assert row["idea"].endswith(".")
        assert f"{row['idea']} ({row['source']})" in said
        assert sources.get(name, "") in row["source"]
    assert "overcommit = 1 x batch" in said


def test_help_teaches(oppo: Oppo) -> None:
    code, out, _ = oppo("--help")
    assert code == 0
    assert oppo() == (0, out, "")
    for words in ("oppo run tiny", "oppo compare tiny", "oppo reproduce", "simulated", "assumed"):
        assert words in out
    assert oppo("run", "--help").code == 0


def test_the_version(oppo: Oppo) -> None:
    from oppo_sim import __version__

    assert oppo("--version").out == f"oppo-testbed {__version__}\n"


# mistakes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("rum tiny", "No such command 'rum'"),
        ("run", "Missing argument 'SCENARIO'"),
        ("run tiny --shedule oppo", "--shedule"),
        ("run tinny", "no scenario is called 'tinny'; did you mean 'tiny'?"),
        ("scenarios opo", "no scenario is called 'opo'"),
        ("run missing.toml", "missing.toml: the scenario cannot be read: No such file"),
        ("run tiny --schedule opo", "no schedule is called 'opo'; did you mean 'oppo'?"),
        ("run tiny --steps 0", "greater than or equal to 1. See: oppo run --help"),
        ("run tiny --steps many", "--steps"),
        ("run tiny --seed -1", "--seed"),
        ("run tiny --set chunk", "--set chunk: must be KEY=VALUE"),
        ("run tiny --set workload.lenghts=3", "unknown key 'lenghts'; did you mean 'lengths'?"),
        ("run tiny --set cluster.actors=-1", "cluster.actors = -1: must be at least 1"),
        ("run tiny --set costs.decode_token_s=nan", "costs.decode_token_s = nan"),
        ("run tiny --set schedule.chunk=0", "schedule.chunk"),
        ("run tiny --set schedule.overcommit=-1", "schedule.overcommit"),
        ("run tiny --set schedule.batch=9999", "schedule.batch = 9999"),
        ("run tiny --spans", "--spans needs --out DIR"),
        ("run tiny --resume", "--resume needs --out DIR"),
        ("compare tiny --schedules trl,trl", "two schedules are called 'trl'"),
        ("compare tiny --schedules trl", "at least two schedules, not 1: name another, as in"),
        ("compare tiny --schedules trl,opo", "no schedule is called 'opo'"),
        ("compare tiny --seeds 0", "--seeds"),
        (
            "compare tiny --schedules trl,inter --steps 2 --jobs 1 --set costs={model='constant'}",
            "the costs of decoding must be above 0",
        ),
        ("bench --suite gpu", "--suite"),
        ("run tiny --set workload.prompt_tokens=9223372036854775808", "must be at most 10,000,000"),
        ("run tiny --set costs.train_call_s=1e15", "must be at most 10,000,000"),
        ("reproduce --resume", "--resume needs --out DIR"),
    ],
)
def test_a_mistake_is_one_clear_line(
    refused: Callable[..., str], arguments: str, message: str
) -> None:
    assert message in refused(*arguments.split())


def test_malformed_toml_is_one_clear_line(refused: Callable[..., str], tmp_path: Path) -> None:
    file = tmp_path / "broken.toml"
    file.write_text("[workload\nlengths = 3")
    assert "broken.toml: is not valid TOML" in refused("run", file)


@pytest.mark.parametrize("command", ["run tiny --steps 2", "compare tiny --steps 2", "reproduce"])
def test_a_folder_that_cannot_be_written_is_one_clear_line(
    refused: Callable[..., str], tmp_path: Path, command: str
) -> None:
    (tmp_path / "file").write_text("")
    said = refused(*command.split(), "--out", tmp_path / "file" / "out")
    assert "cannot write to" in said
    assert "Not a directory" in said
    said = refused(*command.split(), "--out", tmp_path / "file")
    assert f"--out {tmp_path / 'file'}: is not a folder; name a new or empty one" in said


def test_developers_can_have_the_traceback(oppo: Oppo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPPO_TRACEBACK", "1")
    with pytest.raises(ValueError, match="tinny"):
        oppo("run", "tinny")


@pytest.mark.parametrize(
    "command",
    [
        "schedules",
        "schedules --json",
        "run tiny --steps 2",
        "compare tiny --steps 2 --seeds 1 --jobs 2",
    ],
)
def test_a_reader_that_leaves_early_is_no_error(command: str) -> None:
    line = [sys.executable, "-m", "oppo_sim.cli", *command.split()]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    said = [line for line in process.stderr if not line.startswith("comparing on tiny: ")]
    assert (said, process.wait(timeout=60)) == ([], 141)
    process.stderr.close()


def test_an_interrupt_while_it_starts_is_quiet() -> None:
    """The signal comes in the middle of the imports: a hook on the first of typer sends it."""
    script = (
        "import signal, sys\n"
        "class Hook:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'typer':\n"
        "            signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Hook())\n"
        "from oppo_sim.cli import main\n"
        "sys.exit(main(['schedules']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    said = "oppo: interrupted; with --out, --resume goes on from what is written\n"
    assert (done.returncode, done.stdout, done.stderr) == (130, "", said)


def test_the_command_line_starts_light() -> None:
    """Help must be quick: what a command needs is loaded when it runs."""
    script = (
        "import sys, oppo_sim.cli\n"
        "print({'numpy', 'scipy', 'pandas', 'matplotlib', 'simpy', 'loky', 'pydantic', 'torch'}"
        " & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "set()\n"


@pytest.mark.parametrize(
    ("line", "environment"),
    [
        ("oppo compare tiny --schedules trl,oppo --steps 3", {"PYTHONIOENCODING": "ascii"}),
        ("oppo run tiny --steps 2 >&-", {}),
        ("oppo run tiny --steps 2 2>&-", {}),
    ],
)
def test_any_terminal_or_none_will_do(line: str, environment: dict[str, str]) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        line,
        shell=True,
        env={**os.environ, **environment, "PATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr

"""What the root files promise about each other."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import oppo_sim

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def tracked_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [file for file in files if file.is_file()]


def direct_requirements() -> list[Requirement]:
    extras = [line for lines in PROJECT["optional-dependencies"].values() for line in lines]
    requirements = [Requirement(line) for line in PROJECT["dependencies"] + extras]
    return [r for r in requirements if r.name != PROJECT["name"]]


def pins() -> dict[str, Requirement]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    found = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(r.name): r for r in found}


def pinned_version(pin: Requirement) -> str:
    (only,) = pin.specifier
    assert only.operator == "==", f"{pin} is not an exact pin"
    assert "+" not in only.version, f"{pin} names a local build"
    return only.version


def test_every_constraint_is_an_exact_public_version() -> None:
    for pin in pins().values():
        pinned_version(pin)


@pytest.mark.parametrize("requirement", direct_requirements(), ids=lambda r: r.name)
def test_constraints_pin_each_direct_dependency_to_a_version_it_allows(
    requirement: Requirement,
) -> None:
    pin = pins().get(canonicalize_name(requirement.name))
    assert pin is not None, f"constraints.txt has no pin for {requirement.name}"
    assert requirement.specifier.contains(pinned_version(pin))


def test_dev_installs_every_extra_that_the_tests_can_use() -> None:
    extras = PROJECT["optional-dependencies"]
    inside = {e for line in extras["dev"] for e in Requirement(line).extras}
    assert inside == extras.keys() - {"dev", "vllm"}


def test_the_version_is_the_same_everywhere() -> None:
    citation = (ROOT / "CITATION.cff").read_text()
    cited = re.findall(r"^version: (\S+)$", citation, flags=re.MULTILINE)
    assert [oppo_sim.__version__] == [PROJECT["version"]] == cited


def test_no_tracked_file_names_a_folder_of_somebodys_machine() -> None:
    here = re.escape(str(ROOT))
    elsewhere = re.compile(rf"(?<![\w./])({here}(?!\w)|/(home|Users|root)/\w|[A-Z]:\\Users\\)")
    named = []
    for file in tracked_files():
        text = file.read_bytes().decode("utf-8", errors="replace")
        named += [f"{file.relative_to(ROOT)}: {m.group()}" for m in elsewhere.finditer(text)]
    assert not named

"""The decision core is plain Python, and torch is loaded only by who asks for the real machine."""

import subprocess
import sys

import pytest


def loaded_by(*modules: str) -> set[str]:
    """The top-level packages that importing `modules` adds to a fresh interpreter."""
    script = (
        "import sys; before = set(sys.modules)\n"
        f"import {', '.join(modules)}\n"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "module", ["oppo_sim.records", "oppo_sim.runs", "oppo_sim.policies", "oppo_sim.engine"]
)
def test_the_decision_core_needs_only_the_standard_library(module: str) -> None:
    assert loaded_by(module) <= {"oppo_sim", *sys.stdlib_module_names}


def test_the_command_line_starts_without_torch() -> None:
    assert loaded_by("oppo_sim.cli").isdisjoint({"torch", "transformers", "trl", "oppo_real"})


def test_a_heavy_import_would_be_seen() -> None:
    assert "numpy" in loaded_by("numpy")

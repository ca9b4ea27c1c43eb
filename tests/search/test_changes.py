"""The runs of a sweep say what was changed, and own lengths that are cut are named."""

import json
from pathlib import Path

from oppo_sim.runs import read_header
from tests.cli.conftest import Oppo
from tests.search.conftest import TINY, Write


def test_a_kept_run_names_what_the_point_and_the_options_set(oppo: Oppo, tiny: Path) -> None:
    out = tiny.parent / "out"
    cap = ("--set", "workload.max_response_tokens=150")
    assert oppo("sweep", tiny, *cap, "--keep-runs", "--out", out, "--jobs", 1).code == 0
    headers = [read_header(file.parent) for file in (out / "runs").rglob("run.json")]
    shared = {"workload.max_response_tokens": "150"}
    points = [{"schedule.chunk": c, "schedule.overcommit": d} for c in ("20", "50") for d in "024"]
    expected = [*({**shared, **point} for point in points), shared]  # the baseline is one for all
    found = {json.dumps(header.sets, sort_keys=True) for header in headers}
    assert found == {json.dumps(sets, sort_keys=True) for sets in expected}


def test_own_lengths_that_are_cut_are_named(oppo: Oppo, written: Write, tmp_path: Path) -> None:
    lengths = tmp_path / "long.csv"
    lengths.write_text("response_tokens\n" + "500\n" * 10)
    err = oppo("sweep", written(TINY), "--set", f"workload.lengths={lengths}", "--jobs", 1).err
    assert "100.0% of workload.lengths are longer than workload.max_response_tokens = 400" in err
    assert "warning" not in oppo("sweep", written(TINY), "--jobs", 1).err

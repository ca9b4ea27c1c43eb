"""All stages of the protocol fitted into a folder, which a fit that was stopped goes on in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oppo_sim.analysis import claims, digests, fits
from oppo_sim.analysis.fits import Candidate, Fit
from oppo_sim.calibration.protocol import Protocol, Tail
from oppo_sim.calibration.row_values import overrides
from oppo_sim.calibration.rows import Progress, fit
from oppo_sim.calibration.written import toml
from oppo_sim.config import load_scenario
from oppo_sim.runs import RunError, write_whole


def refit(
    protocol: Protocol, out: Path, *, resume: bool, jobs: int, progress: Progress | None = None
) -> dict[str, Fit]:
    """Fit, and write each stage's candidates and its scenarios with the shown one's numbers.

    RunError for a folder of something else or of another version of the code, or a damaged file.
    """
    claims.claim(out, _header(), resume=resume)
    kept: dict[str, list[Candidate]] = {}
    for stage in protocol.stages:
        kept[stage.name] = _kept(out, stage.name)
    known = {name: tuple(candidates) for name, candidates in kept.items()}

    def found(stage: str, candidate: Candidate) -> None:
        kept[stage].append(candidate)
        _write(out, Fit(stage, tuple(kept[stage])))

    fitted = fit(protocol, jobs=jobs, known=known, progress=progress, found=found)
    for name, changed in changes(protocol, fitted).items():
        said = [f"Fitted to the paper's rows by `oppo calibrate paper`: {', '.join(changed)}."]
        write_whole(out / f"{name}.toml", toml(load_scenario(name, changed).document(), said))
    return fitted


def changes(protocol: Protocol, fitted: Mapping[str, Fit]) -> dict[str, dict[str, object]]:
    """By scenario, what the shown candidate of its stage sets, as `load_scenario` takes it."""
    found = {}
    for stage in protocol.stages:
        shown = fitted[stage.name].shown
        tail = Tail(shown.lengths, shown.max_response_tokens, shown.most)
        parameters = {"train_mfu": shown.train_mfu, "prefill_mfu": shown.prefill_mfu or 0.0}
        for scenario in stage.scenarios:
            found[scenario] = overrides(stage, tail, parameters)
    return found


def _kept(out: Path, stage: str) -> list[Candidate]:
    file = out / f"{stage}.csv"
    try:
        text = file.read_text("utf-8") if file.exists() else ""
        return list(fits.read(stage, text).candidates)
    except ValueError as error:
        raise RunError(f"{out}: {error}; remove the file to fit this stage anew") from None


def _write(out: Path, one: Fit) -> None:
    write_whole(out / f"{one.stage}.csv", fits.written(one))


def _header() -> dict[str, Any]:
    return {
        "schema": claims.SCHEMA,
        "kind": "fit",
        "role": "fitted",
        "code": digests.of_package(),
        "seeds": [],
    }

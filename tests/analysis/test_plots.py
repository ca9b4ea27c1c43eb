"""Pictures show the numbers of the run, say where they come from, and are the same every time."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle, StepPatch

from oppo_sim.analysis import plots
from oppo_sim.analysis.canvas import FORMATS
from oppo_sim.analysis.plots import KINDS, MOST_BARS, draw, plot
from oppo_sim.cli import main
from oppo_sim.runs import RunError, RunWriter, read_run
from tests.analysis.by_hand import HEADER, by_hand
from tests.steps import step

MAGIC = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


@pytest.fixture
def hand(tmp_path: Path) -> Path:
    return by_hand(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_run_gives_the_same_bytes_and_says_what_it_is(hand: Path, kind: str) -> None:
    for form in FORMATS if kind == "gantt" else ("svg",):
        image = plot(hand, kind, form)
        assert image.startswith(MAGIC[form])
        assert image == plot(hand, kind, form)
    svg = plot(hand, kind, "svg").decode()
    assert "(simulated)" in svg  # matplotlib notes each text as a comment
    assert "by-hand, schedule oppo, seed 3, steps 0 to 1" in svg


@pytest.mark.parametrize("kind", KINDS)
def test_every_axis_is_named(hand: Path, kind: str) -> None:
    figure = draw(hand, kind)
    labels = " ".join(f"{axes.get_xlabel()} {axes.get_ylabel()}" for axes in figure.axes)
    for unit in {
        "gantt": ("seconds since the run began", "device"),
        "steps": ("PPO step", "seconds of a step", "D (rollouts)", "chunk (tokens)"),
        "staleness": ("versions late", "steps carried over", "share of trained rollouts"),
        "lengths": ("response tokens", "share of trained rollouts", "share not longer"),
        "utilisation": ("busy share of the time", "device", "PPO step", "busy share of the step"),
    }[kind]:
        assert unit in labels


# values of the run made by hand


def bars(axes: Axes) -> set[tuple[str, str, float, float]]:
    """Device, kind, start, end of every bar of a Gantt chart."""
    devices = [label.get_text() for label in axes.get_yticklabels()]
    found = set()
    for collection in axes.collections:
        for path in collection.get_paths():
            (start, low), (end, high) = path.get_extents().get_points()
            device = devices[round((low + high) / 2)]
            found.add((device, str(collection.get_label()), float(start), float(end)))
    return found


def test_a_gantt_chart_has_a_bar_for_every_task(hand: Path) -> None:
    (axes,) = draw(hand, "gantt", range(1)).axes
    assert bars(axes) == {
        ("gpu2", "decode", 0, 2),
        ("gpu2", "decode", 2, 4),
        ("gpu10", "decode", 0, 3),
        ("gpu11", "score", 2.5, 3.5),
        ("gpu11", "score", 4, 6),
        ("gpu2", "train", 7, 9),
        ("gpu10", "train", 7, 9),
        ("gpu2", "sync", 9, 10),
        ("gpu10", "sync", 9, 10),
    }
    assert axes.get_xlim() == (0, 10)
    assert [text.get_text() for text in axes.texts] == ["step 0"]
    milestones = {line.get_marker(): line.get_xdata() for line in axes.lines[1:]}
    assert {mark: float(np.squeeze(x)) for mark, x in milestones.items()} == {
        "v": 4, "D": 6, "o": 9,
    }  # fmt: skip


def test_a_gantt_chart_of_idle_devices_still_names_them(hand: Path) -> None:
    (axes,) = draw(hand, "gantt", range(1, 2)).axes
    assert not bars(axes)
    assert [text.get_text() for text in axes.get_yticklabels()] == ["gpu2", "gpu10", "gpu11"]


def test_the_stages_are_stacked_and_the_choices_below(hand: Path) -> None:
    """4 generation, 2 scoring, 1 waiting, 2 training, 1 sync, in both steps."""
    top, below, chunk = draw(hand, "steps").axes
    stages = [patch for patch in top.patches if isinstance(patch, StepPatch)]
    assert [patch.get_label() for patch in stages] == [
        "generation", "scoring", "waiting", "training", "sync",
    ]  # fmt: skip
    assert [list(patch.get_data().values) for patch in stages] == [
        [4, 4], [6, 6], [7, 7], [9, 9], [10, 10],
    ]  # fmt: skip
    (line,) = [patch for patch in below.patches if isinstance(patch, StepPatch)]
    assert list(line.get_data().values) == [1, 2]
    (line,) = [patch for patch in chunk.patches if isinstance(patch, StepPatch)]
    assert line.get_data().values[0] == 256
    assert np.isnan(line.get_data().values[1])  # whole responses


@pytest.mark.parametrize("kind", ["steps", "utilisation"])
def test_a_single_step_has_a_whole_number(hand: Path, kind: str) -> None:
    axes = draw(hand, kind, range(1, 2)).axes[-1 if kind == "steps" else 1]
    assert [tick for tick in axes.get_xticks() if 0.5 <= tick <= 1.5] == [1]


def test_a_gantt_chart_of_too_many_steps_is_refused(
    hand: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of 50,000 took minutes, 3 GB of memory and 180 MB of disk."""
    monkeypatch.setattr(plots, "MOST_GANTT", 1)
    with pytest.raises(RunError, match="side by side show nothing; give --steps FROM:TO of 1 or"):
        draw(hand, "gantt")
    draw(hand, "gantt", range(1))


def heights(axes: Axes) -> list[float]:
    return [patch.get_height() for patch in axes.patches if isinstance(patch, Rectangle)]


def test_lateness_is_a_share_of_the_trained(tmp_path: Path) -> None:
    with RunWriter(tmp_path, HEADER) as writer:
        writer.step(step(0, staleness=(0, 0), deferrals=(0, 3)))
        writer.step(step(1, 10.0, staleness=(0, 2), deferrals=(0, 0)))
    left, right = draw(tmp_path, "staleness").axes
    assert heights(left) == [0.75, 0, 0.25]
    assert heights(right) == [0.75, 0, 0, 0.25]
    assert {text.get_text() for text in left.texts} == {"75.0%", "25.0%"}


def test_lengths_are_counted_and_the_cap_is_marked(hand: Path) -> None:
    """10 and 30 tokens in each of two steps; the cap is 30."""
    top, below = draw(hand, "lengths").axes
    assert sum(heights(top)) == pytest.approx(1)
    assert max(heights(top)) == pytest.approx(0.5)
    legend = [text.get_text() for text in top.get_legend().get_texts()]
    assert legend == ["mean 20.0 tokens", "cap 30 tokens, reached by 2 (50.0%)"]
    assert [text.get_text() for text in below.texts] == ["median 10", "95th percentile 30"]
    x, y = (np.asarray(data, dtype=float) for data in below.lines[0].get_data())
    assert {(a, b) for a, b in zip(x, y, strict=True)} == {(10, 0), (10, 0.5), (30, 1)}


def test_a_device_is_busy_for_its_share(hand: Path) -> None:
    left, right, _ = draw(hand, "utilisation").axes
    widths = [patch.get_width() for patch in left.patches if isinstance(patch, Rectangle)]
    assert widths == [0.6, 0.5, 0.3]
    assert [label.get_text() for label in left.get_yticklabels()] == ["gpu2", "gpu10", "gpu11"]
    assert np.array(right.images[0].get_array()).tolist() == [[0.6] * 2, [0.5] * 2, [0.3] * 2]


# real runs


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    arguments = ["run", "tiny", "--steps", str(3 * MOST_BARS - 1), "--spans", "--out", str(folder)]
    assert main(arguments) == 0
    return folder


def test_a_long_run_is_drawn_in_means_that_lose_nothing(real: Path) -> None:
    """359 steps in 120 bars: 119 of three steps and one of two."""
    top, below, _ = draw(real, "steps").axes
    last = [patch for patch in top.patches if isinstance(patch, StepPatch)][-1].get_data()
    sizes = np.diff(last.edges)
    assert (len(sizes), sizes[0], sizes[-1]) == (MOST_BARS, 3, 2)
    steps = read_run(real).steps
    assert (last.values * sizes).sum() == pytest.approx(steps[-1].end_s)
    (line,) = [patch for patch in below.patches if isinstance(patch, StepPatch)]
    overcommit = sum(record.overcommit for record in steps)
    assert (line.get_data().values * sizes).sum() == pytest.approx(overcommit)
    assert "means of 3" in top.get_ylabel()


def test_a_gantt_chart_is_as_busy_as_its_spans(real: Path) -> None:
    (axes,) = draw(real, "gantt", range(10, 13)).axes
    run = read_run(real)
    start_s, end_s = run.steps[10].start_s, run.steps[12].end_s
    spans = [
        (device, span.kind, max(span.start_s, start_s), min(span.end_s, end_s))
        for span in run.spans
        for device in span.devices
    ]
    assert bars(axes) == {bar for bar in spans if bar[2] < bar[3]}


# mistakes


@pytest.mark.parametrize(
    ("kind", "window", "message"),
    [
        ("gant", None, "--kind gant: no such picture; did you mean 'gantt'"),
        ("steps", range(7, 9), "--steps 7:9: the run has steps 0 to 1, which is --steps 0:2"),
    ],
)
def test_what_cannot_be_drawn(hand: Path, kind: str, window: range | None, message: str) -> None:
    with pytest.raises(RunError, match=message):
        draw(hand, kind, window)


def without_spans(folder: Path) -> None:
    (folder / "spans.jsonl").unlink()


def without_steps(folder: Path) -> None:
    (folder / "steps.jsonl").write_bytes(b"")


def torn(folder: Path) -> None:
    file = folder / "steps.jsonl"
    file.write_bytes(file.read_bytes()[:-9])


def other_schema(folder: Path) -> None:
    header = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**header, "schema": 0}))


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (without_spans, "has no spans.jsonl, .*--spans"),
        (without_steps, "has no steps yet"),
        (torn, r"steps\.jsonl:2: cut off"),
        (other_schema, "written in schema 0"),
    ],
)
def test_a_damaged_run_is_named(hand: Path, harm: Callable[[Path], None], message: str) -> None:
    harm(hand)
    with pytest.raises(RunError, match=message):
        draw(hand, "gantt")

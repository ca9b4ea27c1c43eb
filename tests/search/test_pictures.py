"""Pictures and the page of a sweep; the page is opened in a browser where there is one."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from oppo_sim.search import page, pictures
from oppo_sim.search.standing import Standing, read_standing
from oppo_sim.search.swept import Swept, read_swept
from tests.cli.conftest import Oppo
from tests.search.conftest import TINY, Write

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


def table(rows: list[dict[str, float]]) -> pd.DataFrame:
    return pd.DataFrame([{"point": place, "seeds": 2, **row} for place, row in enumerate(rows)])


def swept(**axes: list[float]) -> Swept:
    """A grid whose speed-up is that of the place in it, plus one."""
    rows = []
    for place, values in enumerate(product(*axes.values())):
        own = dict(zip(axes, values, strict=True))
        gain = 1.0 + place
        rows.append(
            {
                **own,
                "speedup": gain,
                "speedup_low": gain - 0.25,
                "speedup_high": gain + 0.25,
                "step_s": 10 / gain,
                "step_low_s": 9 / gain,
                "step_high_s": 11 / gain,
                "staleness": float(place % 3),
            }
        )
    return Swept("tiny", "trl", tuple(axes), table(rows))


def cells(figure: Figure) -> list[list[float]]:
    (image,) = figure.axes[0].images
    found: list[list[float]] = image.get_array().tolist()
    return found


def test_a_heat_map_has_the_speed_up_of_each_pair_and_its_interval() -> None:
    figure = pictures.heatmap(swept(a=[1.0, 2.0, 3.0], b=[5.0, 7.0]))
    assert cells(figure) == [[1.0, 3.0, 5.0], [2.0, 4.0, 6.0]]  # up: b, across: a
    panel = figure.axes[0]
    assert {text.get_text() for text in panel.texts} == {f"{n}\n± 0.25" for n in range(1, 7)}
    assert [each.get_text() for each in panel.get_xticklabels()] == ["1", "2", "3"]
    (marked,) = panel.lines
    assert (marked.get_xdata()[0], marked.get_ydata()[0]) == (2, 1)


def test_of_other_axes_it_takes_the_best() -> None:
    figure = pictures.heatmap(swept(a=[1.0, 2.0], b=[5.0, 7.0], c=[0.0, 1.0]))
    assert cells(figure) == [[2.0, 6.0], [4.0, 8.0]]
    assert "the best c each" in figure.axes[0].get_title(loc="left")
    other = pictures.heatmap(swept(a=[1.0, 2.0], b=[5.0, 7.0], c=[0.0, 1.0]), ("c", "b"))
    assert cells(other) == [[5.0, 6.0], [7.0, 8.0]]


def test_a_random_design_is_dots() -> None:
    places = [float(place) for place in range(9)]
    whole = swept(a=places, b=places)
    some = whole.table[whole.table["a"] == whole.table["b"]]
    figure = pictures.heatmap(whole._replace(table=some))
    assert not figure.axes[0].images
    assert len(figure.axes[0].collections[0].get_offsets()) == 9


def test_the_front_is_what_none_beats() -> None:
    pairs = [(5, 0), (4, 1), (4, 2), (3, 1), (6, 0), (1, 9), (3, 3), (1, 9)]
    found = pictures.on_front(table([{"step_s": s, "staleness": v} for s, v in pairs]))
    assert list(found["point"]) == [5, 3, 0]


def standing(keeps: list[bool], is_whole: list[bool], winner: int | None) -> Standing:
    return Standing(np.array(keeps), np.array(is_whole), winner)


def lines(figure: Figure) -> dict[str, list[float]]:
    """What has a label, by it: the seconds per step."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    drawn = [getattr(handle, "lines", [handle])[0] for handle in handles]
    return {
        label: [round(float(x), 6) for x in line.get_xdata()]
        for label, line in zip(labels, drawn, strict=True)
    }


def test_the_front_is_of_points_that_may_win() -> None:
    """Of steps of 10, 5, 3.33 and 2.5 s the fastest breaks a constraint, the next was given up."""
    of = swept(a=[1.0, 2.0, 3.0, 4.0])
    out = standing([True, True, True, False], [True, True, False, True], 1)
    found = lines(pictures.front(of, out))
    assert found["points"] == [10.0, 5.0]
    assert found["break a constraint"] == [2.5]
    assert found["given up after fewer seeds"] == [3.333333]
    assert found["winner"] == [5.0]
    assert found["beaten by none in both"] == [5.0, 10.0]
    assert set(lines(pictures.front(of))) == {"points", "beaten by none in both"}


def test_a_heat_map_hatches_what_may_not_win_and_marks_the_winner() -> None:
    of = swept(a=[1.0, 2.0], b=[5.0, 7.0])
    panel = pictures.heatmap(of, None, standing([True, True, True, False], [True] * 4, 1)).axes[0]
    (hatched,) = panel.patches
    assert hatched.get_xy() == (0.5, 0.5)  # the last of both axes
    (marked,) = panel.lines
    assert (marked.get_xdata()[0], marked.get_ydata()[0]) == (0, 1)
    assert "breaks a constraint" in panel.get_title(loc="left")


@pytest.mark.parametrize("kind", pictures.PICTURES)
def test_where_no_point_may_win_all_are_drawn_and_none_is_marked(kind: str) -> None:
    none = standing([False] * 4, [True] * 4, None)
    of = swept(a=[1.0, 2.0], b=[5.0, 7.0])
    assert pictures.draw(of, kind, "png", standing=none)
    assert not pictures.heatmap(of, None, none).axes[0].lines
    assert lines(pictures.front(of, none))["points"] == []


def test_the_folder_of_a_search_says_who_may_win(oppo: Oppo, written: Write) -> None:
    file = written(
        'scenario = "tiny"\nsteps = 3\nseeds = 2\ntrials = 8\nconstraints = '
        '["staleness <= 0.3"]\n[axes]\n"schedule.chunk" = [20, 50]\n'
        '"schedule.overcommit" = [0, 2, 4, 8]\n'
    )
    out = file.parent / "out"
    done = json.loads(oppo("search", file, "--out", out, "--json").out)
    table = read_swept(out).table
    found = read_standing(out, table)
    assert found.winner == done["best"]["point"]
    assert list(found.keeps) == [late <= 0.3 for late in table["staleness"]]
    assert not all(found.keeps)
    assert list(found.is_whole) == [one["status"] == "settled" for one in done["trials"]]
    for kind in pictures.PICTURES:
        assert oppo("plot", out, "--kind", kind).code == 0


@pytest.fixture
def drawn(oppo: Oppo, tiny: Path) -> Path:
    out = tiny.parent / "out"
    assert oppo("sweep", tiny, "--out", out, "--jobs", 1, "--page").code == 0
    return out


def test_a_sweep_leaves_its_pictures_and_plot_draws_them_again(
    oppo: Oppo, refused: Callable[..., str], drawn: Path
) -> None:
    for kind in ("heatmap", "front"):
        picture = (drawn / f"{kind}.png").read_bytes()
        assert picture.startswith(b"\x89PNG")
        (drawn / f"{kind}.png").unlink()
        assert oppo("plot", drawn, "--kind", kind).code == 0
        assert (drawn / f"{kind}.png").read_bytes() == picture
    turned = drawn / "turned.svg"
    axes = "schedule.overcommit,schedule.chunk"
    assert oppo("plot", drawn, "--axes", axes, "--out", turned).code == 0
    assert "step_s" not in turned.read_text()
    assert "no such picture of a sweep" in refused("plot", drawn, "--kind", "gantt")
    assert "is no axis of several" in refused("plot", drawn, "--axes", "schedule.chunk,batch")
    assert "must be X,Y" in refused("plot", drawn, "--axes", "schedule.chunk")
    assert "a sweep has none" in refused("plot", drawn, "--steps", "1:2")


def test_one_axis_has_no_heat_map(oppo: Oppo, refused: Callable[..., str], written: Write) -> None:
    file = written(TINY.replace("[20, 50]", "[20]"))
    out = file.parent / "out"
    assert oppo("sweep", file, "--out", out, "--jobs", 1).code == 0
    assert (out / "front.png").exists()
    assert not (out / "heatmap.png").exists()
    assert "this sweep has 1; try --kind front" in refused("plot", out)


def test_a_folder_that_cannot_be_drawn_says_how_it_can(
    refused: Callable[..., str], drawn: Path, tmp_path: Path
) -> None:
    assert "names the same axis twice" in refused(
        "plot", drawn, "--axes", "schedule.chunk,schedule.chunk"
    )
    axes = "schedule.chunk,schedule.overcommit"
    assert "only a heatmap has them" in refused("plot", drawn, "--kind", "front", "--axes", axes)
    part = tmp_path / "part"
    shutil.copytree(drawn, part)
    table = part / "results.parquet"
    table.write_bytes(table.read_bytes()[:100])
    assert "results.parquet is damaged: run the sweep again with --resume" in refused("plot", part)
    table.unlink()
    assert "has no results.parquet yet: run the sweep again" in refused("plot", part)


class Loaded(HTMLParser):
    """What a page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [f"{tag} {value}" for name, value in attrs if name in ("src", "href")]


def test_the_page_holds_the_table_and_fetches_nothing(drawn: Path) -> None:
    text = (drawn / page.PAGE).read_text()
    loaded = Loaded()
    loaded.feed(text)
    assert loaded.found == []
    (found,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', text)
    data = json.loads(found)
    rows = pd.read_parquet(drawn / "results.parquet").set_index("point")
    assert len(data["points"]) == len(rows) == 6
    for point in data["points"]:
        row = rows.loc[point["id"]]
        assert point["metrics"]["speedup"] == row["speedup"]
        assert point["intervals"]["speedup"] == [row["speedup_low"], row["speedup_high"]]
        assert point["values"]["schedule.chunk"] == row["schedule.chunk"]
    gains = [point["metrics"]["speedup"] for point in data["points"]]
    assert gains == sorted(gains, reverse=True)


def test_a_page_of_odd_names_is_read_as_they_are(oppo: Oppo, written: Write) -> None:
    """Text that is JSON, that ends a script, that begins a comment, and that the template has."""
    names = ["12", "null", "</script>", "<!--<script>", "<!--PLOTLY-->", "ü \"'&`"]
    file = written(f'scenario = "tiny"\nsteps = 2\nseeds = 1\n[axes]\nname = {json.dumps(names)}\n')
    out = file.parent / "out"
    done = oppo("sweep", file, "--out", out, "--jobs", 1, "--page")
    assert (done.code, done.err) == (0, "")
    text = (out / page.PAGE).read_text(encoding="utf-8")
    (found,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', text)
    assert "<" not in found
    assert sorted(p["values"]["name"] for p in json.loads(found)["points"]) == sorted(names)


def test_a_timeline_is_that_of_the_run(oppo: Oppo, drawn: Path) -> None:
    """Point 5: chunk 50, D = 4. Its bars are the spans of `oppo run`."""
    out = drawn.parent / "run"
    sets = ("--set", "schedule.chunk=50", "--set", "schedule.overcommit=4")
    assert oppo("run", "tiny", "--steps", 3, "--spans", "--out", out, *sets).code == 0
    spans = pd.read_json(out / "spans.jsonl", lines=True)
    text = (drawn / page.PAGE).read_text()
    (found,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', text)
    own = json.loads(found)["timelines"]["5"]
    bars = sorted((own["devices"][d], kind, end) for d, kind, _, end in own["bars"])
    expected = sorted(
        (device, span.kind, round(span.end_s, 4))
        for span in spans.itertuples()
        for device in span.devices
    )
    assert bars == expected


# What a hand does: it spreads the points over the axes, goes to one with the mouse, and clicks.
CLICK = """
<script>
window.addEventListener("load", () => {
  for (const [id, path] of [["x", "schedule.chunk"], ["y", "schedule.overcommit"]]) {
    document.getElementById(id).value = path;
    document.getElementById(id).dispatchEvent(new Event("change"));
  }
  const chart = document.getElementById("chart"), place = WHICH;
  const id = chart.data[0].customdata[place];
  const box = chart.querySelectorAll("path.point")[place].getBoundingClientRect();
  const where = { bubbles: true, view: window, clientX: box.x + box.width / 2,
                  clientY: box.y + box.height / 2 };
  const layer = chart.querySelector(".nsewdrag");
  for (const kind of ["mousemove", "mousedown", "mouseup", "click"]) {
    const target = kind === "mouseup" ? document.querySelector(".dragcover") ?? layer : layer;
    target.dispatchEvent(new MouseEvent(kind, where));
  }
  document.body.dataset.clicked = id;
});
</script>
"""


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium (apt install chromium)")
@pytest.mark.parametrize("which", [0, 3])
def test_a_point_is_clicked_in_a_browser_and_its_value_read(drawn: Path, which: int) -> None:
    copy = drawn / "clicked.html"
    click = CLICK.replace("WHICH", str(which))
    copy.write_text((drawn / page.PAGE).read_text().replace("</body>", f"{click}</body>"))
    html = dumped(copy)
    (clicked,) = re.findall(r'data-clicked="(\d+)"', html)
    row = pd.read_parquet(drawn / "results.parquet").set_index("point").loc[int(clicked)]
    assert re.findall(r"<b>Point (\d+)</b>", html) == [clicked]
    (shown,) = re.findall(r'<td data-key="speedup">([\d.]+) ', html)
    assert float(shown) == pytest.approx(row["speedup"], rel=1e-4)
    (chunk,) = re.findall(r'<td data-key="schedule.chunk">(\d+)<', html)
    assert int(chunk) == row["schedule.chunk"]
    assert f"Point {clicked}, its first 3 steps" in html  # the timeline's title


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium (apt install chromium)")
def test_a_filter_hides_points(drawn: Path) -> None:
    copy = drawn / "filtered.html"
    untick = (
        '<script>document.querySelector(\'input[name="schedule.chunk"][value="20"]\')'
        ".click()</script>"
    )
    copy.write_text((drawn / page.PAGE).read_text().replace("</body>", f"{untick}</body>"))
    assert '<span id="count">3 of 6 points</span>' in dumped(copy)


def dumped(file: Path) -> str:
    assert BROWSER is not None
    done = subprocess.run(
        [
            *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"),
            *(f"--user-data-dir={file.parent / 'profile'}", "--virtual-time-budget=20000"),
            *("--host-resolver-rules=MAP * ~NOTFOUND", file.resolve().as_uri()),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout

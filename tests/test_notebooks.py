"""The notebooks run from top to bottom, and are committed as they are written: without outputs."""

from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def named(file: Path) -> str:
    return file.stem


def test_there_are_some() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("file", NOTEBOOKS, ids=named)
def test_it_runs(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))  # no history in somebody's home
    notebook = nbformat.read(file, as_version=4)
    place = {"metadata": {"path": str(FOLDER)}}
    with TemporaryDirectory() as sockets:  # no network; tmp_path may be too long for a socket
        connection = str(Path(sockets) / "kernel.json")
        kernel = KernelManager(transport="ipc", connection_file=connection)
        NotebookClient(notebook, km=kernel, timeout=100, resources=place).execute()
    said = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert said
    assert not [output.text for output in said if output.get("name") == "stderr"]


@pytest.mark.parametrize("file", NOTEBOOKS, ids=named)
def test_it_holds_nothing_that_running_it_leaves(file: Path) -> None:
    notebook = nbformat.read(file, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
        assert not cell.metadata


@pytest.mark.parametrize("file", NOTEBOOKS, ids=named)
def test_prose_comes_first_and_code_is_python(file: Path) -> None:
    first, *cells = nbformat.read(file, as_version=4).cells
    assert first.cell_type == "markdown"
    code = [cell.source for cell in cells if cell.cell_type == "code"]
    for source in code:
        compile(source, file.name, "exec")  # no magics and no shell

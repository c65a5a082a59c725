"""The notebook runs as it stands, and its last cells show what its text promises."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "examples" / "train_and_gate.ipynb"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_notebook(tmp_path, monkeypatch):
    monkeypatch.setenv("WOOTZ_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "the notebook is kept without outputs"
    NotebookClient(
        notebook, timeout=540, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    target = next(o for o in outputs if "data" in o and "'verdict'" in o["data"]["text/plain"])["data"]["text/plain"]
    assert "'verdict': 'better'" in target
    files = outputs[-1]["data"]["text/plain"]
    assert "verdict.json" in files
    assert "report.html" in files

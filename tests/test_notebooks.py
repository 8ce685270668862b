"""The example notebooks run as notebooks, from an empty folder, and show what their words say."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import absent

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
#: Runs a notebook in a kernel and prints it with its outputs; in a process of its own, where warnings of the
#: notebook's machinery are no errors of ours.
PROGRAM = """
import sys, jupytext, nbformat
from nbclient import NotebookClient
book = jupytext.read(sys.argv[1])
NotebookClient(book, timeout=300, kernel_name="python3", resources={"metadata": {"path": sys.argv[2]}}).execute()
nbformat.write(book, sys.argv[3])
"""
#: What must be seen among the outputs of each, as text or in a table.
SHOWN = {
    "loans": ["delta = 0.", "FOUND", "CERTIFIED: with confidence 0.999", "6 HELD", "<table>"],
    "mlflow_gate": ["promoted: {'promises_held': ", "'promises_broken': 0", "blocked: "],
    "refits": ["FOUND", "CERTIFIED: with confidence 0.95", "of 93 draws failed", "HELD", "found without a refit to search", "<table>"],
    "toy": ["margin: [0.8629]", "delta = 0.109028 keeps class 1", "REFUTED a little further", "keep class 1 at delta = 0.27"],
    "torch_model": ["least: 6 rows: 6 REFUTED", "safer: 6 rows: 6 CERTIFIED", "6 rows: 6 HELD", "<table>"],
}  # fmt: skip
PICTURES = {"loans": 3, "mlflow_gate": 0, "refits": 0, "toy": 2, "torch_model": 2}


def needed(name: str, what: str, reason: str) -> None:
    """Skip without a module, or fail where CI says that it must be there."""
    if importlib.util.find_spec(name) is None:
        absent(what, reason)


def test_every_notebook_is_run():
    assert sorted(path.stem for path in FOLDER.glob("*.py")) == sorted(SHOWN) == sorted(PICTURES)


@pytest.mark.parametrize("name", sorted(SHOWN))
def test_notebook(name, tmp_path):
    for module in ("jupytext", "nbclient", "ipykernel"):
        needed(module, "notebooks", f'{module} is not installed: pip install ".[notebooks]"')
    needed("matplotlib", "plot", 'matplotlib is not installed: pip install ".[plot]"')
    if "import torch" in (FOLDER / f"{name}.py").read_text(encoding="utf-8"):
        needed("torch", "torch", "PyTorch is not installed: make test TORCH=1")
    if "import mlflow" in (FOLDER / f"{name}.py").read_text(encoding="utf-8"):
        needed("mlflow", "mlflow", "mlflow is not installed: make test LIBRARIES=1")
    if "import XGB" in (FOLDER / f"{name}.py").read_text(encoding="utf-8"):
        needed("xgboost", "xgboost", "xgboost is not installed: make test LIBRARIES=1")
    import nbformat

    work, result = tmp_path / "work", tmp_path / "run.ipynb"
    work.mkdir()
    environment = {**os.environ, "PYTHONWARNINGS": "default", "IPYTHONDIR": str(tmp_path / "ipython"), "COLUMNS": "120"}
    environment.pop("MPLBACKEND", None)  # pictures go into the notebook
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(FOLDER / f"{name}.py"), str(work), str(result)],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    outputs = [out for cell in nbformat.read(result, 4).cells if cell.cell_type == "code" for out in cell.outputs]
    assert not [out for out in outputs if out.output_type == "error"]
    warned = [out.text for out in outputs if out.output_type == "stream" and out.name == "stderr"]
    assert warned == []
    texts = [out.text for out in outputs if out.output_type == "stream"]
    texts += [text for out in outputs for kind, text in out.get("data", {}).items() if kind.startswith("text/")]
    for said in SHOWN[name]:
        assert any(said in text for text in texts), said
    assert sum("image/png" in out.get("data", {}) for out in outputs) == PICTURES[name]

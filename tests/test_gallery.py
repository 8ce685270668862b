"""The programs of the gallery: each runs by itself in an empty folder within a minute, and prints and draws what the page shows."""

from __future__ import annotations

import re
import time
import warnings
from contextlib import ExitStack

import numpy as np
import pytest
from conftest import library
from postgres_server import running_server
from test_docs import GALLERY, blocks, run_python, tidy

PAGE = GALLERY.read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
#: How the library of each mark is imported.
LIBRARIES = {"dask": "distributed", "postgres": "psycopg"}
#: How far two pictures may be apart, on average over the places of a grid, of which 1 is from black to white.
SAME = 0.01


def section(title):
    """The program, what it prints, its picture, and what it needs."""
    begins = [PAGE[: match.start()].count("\n") + 1 for match in re.finditer(r"^## ", PAGE, re.MULTILINE)]
    begin = begins[EXAMPLES.index(title)]
    end = next((line for line in begins if line > begin), len(PAGE))
    program, printed = (block for block in blocks(GALLERY) if begin < block.line < end)
    (picture,) = re.findall(r"!\[[^]]+\]\((\w+\.png)\)", "\n".join(PAGE.splitlines()[begin:end]))
    return program, printed.text, picture


def test_the_gallery_has_what_it_should():
    assert EXAMPLES == [
        *("Scorecard", "XGBoost", "PyTorch", "Keras", "From DiCE", "MLflow gate", "Ledger on PostgreSQL", "Dask")
    ]
    shown = [section(title)[2] for title in EXAMPLES]
    assert sorted(shown) == sorted(path.name for path in GALLERY.parent.glob("*.png"))


def pixels(path):
    """A picture in grey, on a coarse grid: fonts differ a little between versions."""
    from matplotlib.image import imread

    grey = imread(path)[:, :, :3].mean(axis=2)
    rows, columns = (np.linspace(0, n, 41).astype(int) for n in grey.shape)
    return np.add.reduceat(np.add.reduceat(grey, rows[:-1], 0), columns[:-1], 1) / (grey.size / 1600)


def differ(a, b):
    return float(np.abs(pixels(a) - pixels(b)).mean())


@pytest.mark.parametrize("title", EXAMPLES)
@pytest.mark.filterwarnings("default")
def test_example(title, tmp_path, monkeypatch):
    plt = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is not installed: pip install 'apas[plot]'")
    program, printed, picture = section(title)
    if program.needs:
        library(LIBRARIES.get(program.needs, program.needs))
    monkeypatch.chdir(tmp_path)
    plt.switch_backend("agg")
    with ExitStack() as stack:
        if program.needs == "postgres":
            monkeypatch.setenv("LEDGER", stack.enter_context(running_server()).url)
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # what other libraries say of themselves
        began = time.process_time()
        shown = run_python(GALLERY, program, {"__name__": "__page__"})
        assert time.process_time() - began < 60
    plt.close("all")
    assert tidy(shown) == tidy(printed)
    assert differ(tmp_path / picture, GALLERY.parent / picture) < SAME


def test_another_picture_is_noticed():
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'apas[plot]'")
    pictures = [GALLERY.parent / section(title)[2] for title in EXAMPLES]
    near = [differ(a, b) for a in pictures for b in pictures if a != b]
    assert min(near) > SAME

"""The page of a whole run: everything is in it, everything is escaped, and nothing is loaded from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from html.parser import HTMLParser

import killed_experiments
import pandas as pd
import pytest
from conftest import shared_folder

import apas
from apas import InputError
from apas.datasets import data_from, dataset_path
from apas.paper.experiment import (
    MADE_WITH,
    PAGE,
    Entry,
    ExperimentOutcome,
    Section,
    Unit,
    blas,
    code_version,
    processor,
    write_page,
)

NASTY = "<script>alert('x')</script> & \"quoted\""
PICTURE = b"\x89PNG picture"


class Reader(HTMLParser):
    """Elements with their attributes, and the text between them."""

    def __init__(self):
        super().__init__()
        self.elements, self.text = [], ""

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def section(folder, name="squares", *, title="Squares", seeds="0", without=""):
    picture = folder / f"{name}.png"
    picture.write_bytes(PICTURE)
    (folder / f"{name}.svg").write_text("<svg/>")
    units = [Unit(name, killed_experiments.square, {"number": n, "pause": NASTY}, ("no2",)) for n in range(15)]
    table = pd.DataFrame({"square": [n**2 for n in range(150)], NASTY: [NASTY] * 150})
    return Section(
        Entry(name, title, seeds), units, ExperimentOutcome({name: table}, (picture, folder / f"{name}.svg"), without)
    )


def read(path):
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader


@pytest.fixture
def page(tmp_path):
    with data_from(shared_folder("datasets")):
        sections = [section(tmp_path, title=NASTY), section(tmp_path, "cubes", seeds="", without=NASTY)]
        return read(write_page(sections, tmp_path, quick=True, n_jobs=2))


def test_nothing_is_taken_as_markup(page):
    assert not [tag for tag, _ in page.elements if tag in ("script", "b", "iframe", "object", "link")]
    # title twice; in each of two tables a heading and 150 cells; settings twice; the reason once
    assert page.text.count(NASTY) == 2 + 2 * 151 + 2 + 1


def test_it_refers_to_nothing_else(page):
    addresses = [value for _, attrs in page.elements for key, value in attrs.items() if key in ("src", "href")]
    assert addresses
    assert all(address.startswith(("data:image/png;base64,", "#")) for address in addresses)
    names = {attrs["id"] for tag, attrs in page.elements if tag == "h2" and "id" in attrs}
    assert {address[1:] for address in addresses if address.startswith("#")} == names == {"squares", "cubes"}
    policy = [attrs["content"] for _, attrs in page.elements if attrs.get("http-equiv")]
    assert policy == ["default-src 'none'; img-src data:; style-src 'unsafe-inline'"]


def test_pictures(page):
    sources = [attrs["src"] for tag, attrs in page.elements if tag == "img"]
    assert [base64.b64decode(source.split(",")[1]) for source in sources] == [PICTURE, PICTURE]


def test_what_it_was_made_with(page):
    for word in (code_version(), apas.__version__, "numpy", "scikit-learn", "cores", "processes asked for"):
        assert word in page.text
    assert blas() in page.text
    assert processor() in page.text
    with data_from(shared_folder("datasets")):
        digest = hashlib.sha256(dataset_path("no2").read_bytes()).hexdigest()
    assert page.text.count(digest) == 1
    assert str(shared_folder("datasets")) not in page.text
    assert page.text.count("Seeds: 0.") == 1
    assert "number: 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 | 10 | 11 and 3 more" in page.text
    assert "apas paper all --quick" in page.text
    assert "apas paper cubes --quick, 15 units of work" in page.text


def test_whole_tables_are_shown(page):
    assert "more rows" not in page.text
    assert f"149{149**2}{NASTY}" in page.text  # the last line


def test_a_folder_in_the_way(tmp_path):
    (tmp_path / PAGE).mkdir()
    with pytest.raises(InputError, match="must be a file to write to, got"):
        write_page([], tmp_path, quick=False, n_jobs=1)


def test_what_it_was_made_with_is_written_besides(page, tmp_path):
    text = (tmp_path / MADE_WITH).read_text(encoding="utf-8")
    assert text.startswith("Made by `apas paper all --quick`.")
    assert f"| apas | {code_version()} |" in text
    assert f"| BLAS | {blas()} |" in text
    assert f"| processor | {processor()} |" in text
    assert "| squares | 15 | 0 |" in text
    with data_from(shared_folder("datasets")):
        assert hashlib.sha256(dataset_path("no2").read_bytes()).hexdigest() in text
